//! The error type of this crate: its kind, the operation and sequence it concerns, and whether to retry.
//!
//! [`Error::status`] distinguishes three cases, because a caller acts differently on each: *retry*,
//! *permanent*, *outcome unknown*. An unknown outcome is never guessed: the range that may have been reserved
//! becomes a gap.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

#[doc(hidden)]
#[macro_export]
/// Declares a fieldless enum with a string for each variant. Later versions may add variants.
macro_rules! string_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $ty:ident, $what:literal { $($(#[$about:meta])* $variant:ident = $name:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        $vis enum $ty {
            $($(#[$about])* $variant,)+
        }

        impl $ty {
            /// All values, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the stable name of this value, for logs, metric labels and JSON. `Display` prints it
            /// and `FromStr` parses it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl ::std::fmt::Display for $ty {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl AsRef<str> for $ty {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        /// Parses a name returned by [`as_str`](Self::as_str). Anything else is
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput), and the error lists all names.
        impl ::std::str::FromStr for $ty {
            type Err = $crate::Error;

            fn from_str(name: &str) -> ::std::result::Result<Self, Self::Err> {
                let known = Self::ALL.iter().copied().find(|value| value.as_str() == name);
                known.ok_or_else(|| {
                    let names = [$($name),+].join(", ");
                    $crate::Error::invalid(format!("{name:?} is not a {}; use one of: {names}", $what))
                })
            }
        }
    };
}

pub(crate) use string_enum;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

string_enum! {
    /// The kind of an error. See [`ErrorKind::status`] for whether to retry.
    pub enum ErrorKind, "kind of error" {
        /// Memory holds too few ids, and the call never waits. No ids were consumed, except by `try_take`.
        /// Await `next()`, or retry when the refill has completed.
        Empty = "empty",
        /// Too few ids are left within the sequence's bounds and the id type. Permanent, unless the
        /// sequence's max is raised or ids are given back: ids never wrap. 30 s later, the next call queries
        /// the store again.
        Exhausted = "exhausted",
        /// [`max_waiting`](crate::SequencesBuilder::max_waiting) other callers were waiting, until this
        /// call's deadline. A `take` may have consumed ids.
        Overloaded = "overloaded",
        /// The caller's deadline passed. The source is the store's last error, if there was one. Ids reserved
        /// for this caller serve later calls, go back to the store or become a gap.
        Deadline = "deadline",
        /// The store is unreachable or busy, and certainly reserved nothing. Callers keep waiting for ids
        /// until their deadline, unless the store [marks](Error::refusing_waiters) the error.
        Unavailable = "unavailable",
        /// The store did not answer a request, which it may or may not have applied. The allocator never
        /// assumes either outcome.
        UnknownOutcome = "unknown_outcome",
        /// The allocator, its runtime or the store's pool was closed, or was opened before this process was
        /// forked. A child process must open its own `Sequences`.
        Closed = "closed",
        /// An argument, URL or setting is invalid, or a call would block its own refill. Nothing was changed.
        InvalidInput = "invalid_input",
        /// No such sequence, table, file or database.
        NotFound = "not_found",
        /// A sequence of this name already exists.
        AlreadyExists = "already_exists",
        /// The request conflicts with the stored sequence, an open allocator or a guard. Nothing was changed,
        /// unless the message reports a change.
        Conflict = "conflict",
        /// The store denied access.
        Denied = "denied",
        /// The witness of a guard cannot be used: it is missing, damaged, or denies access. No id was handed
        /// out, and the sequence is as it was.
        Witness = "witness",
        /// The store does not support this operation or this stored format.
        Unsupported = "unsupported",
        /// The store broke its contract: a range out of bounds or granted before, a lost sequence, or a
        /// corrupt file. The whole answer was rejected.
        StoreViolation = "store_violation",
    }
}

string_enum! {
    /// Whether a failed call can be retried.
    pub enum Status, "status" {
        /// The same call may succeed later; this one may have left a gap.
        Transient = "transient",
        /// The same call will fail again until something is changed.
        Permanent = "permanent",
        /// The call may or may not have been applied. A new draw or reserve is safe, at the cost of a gap;
        /// assuming either outcome is not.
        Unknown = "unknown",
    }
}

impl ErrorKind {
    /// Returns whether a call that failed with this kind can be retried.
    pub fn status(self) -> Status {
        match self {
            Self::Empty | Self::Overloaded | Self::Deadline | Self::Unavailable => Status::Transient,
            Self::UnknownOutcome => Status::Unknown,
            _ => Status::Permanent,
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Empty => "no id in memory right now; await `next()` or try again",
            Self::Exhausted => "the sequence is exhausted",
            Self::Overloaded => "too many callers are already waiting",
            Self::Deadline => "the deadline passed before an id was available",
            Self::Unavailable => "the store is unavailable",
            Self::UnknownOutcome => "the store did not answer; the outcome is unknown",
            Self::Closed => "the allocator is closed",
            Self::InvalidInput => "invalid input",
            Self::NotFound => "not found",
            Self::AlreadyExists => "exists already",
            Self::Conflict => "refused",
            Self::Denied => "access denied",
            Self::Witness => "the witness that guards this store failed",
            Self::Unsupported => "not supported by this store",
            Self::StoreViolation => "the store broke its contract",
        }
    }
}

string_enum! {
    /// The operation during which an [`Error`] occurred.
    pub enum Operation, "operation" {
        /// Connecting to or opening a store.
        Connect = "connect",
        /// Reserving a range.
        Reserve = "reserve",
        /// Giving back the rest of a range.
        GiveBack = "give back",
        /// Creating a sequence.
        Create = "create",
        /// Reading one sequence.
        Inspect = "inspect",
        /// Listing sequences.
        List = "list",
        /// Changing a sequence.
        Set = "set",
        /// Removing a sequence.
        Remove = "remove",
        /// Drawing ids.
        Draw = "draw",
        /// Configuring a sequence or a set of them.
        Configure = "configure",
    }
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Default)]
struct Context {
    operation: Option<Operation>,
    sequence: Option<Box<str>>,
    message: Cow<'static, str>,
    source: Option<Source>,
    refuses_waiters: bool,
    is_of_one_sequence: bool,
    gap: u64,
}

/// An error of this crate: its [`kind`](Self::kind), its [`status`](Self::status), and its context.
///
/// It is cheap to clone, since one failed reserve is reported to every waiting caller. The bare kinds that
/// the fast paths return do not allocate.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    context: Option<Arc<Context>>,
}

impl Error {
    /// Creates an error of `kind`. The message names the input and, if there is one, the fix.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let context = Context { message: message.into(), ..Context::default() };
        Self { kind, context: Some(Arc::new(context)) }
    }

    /// Creates an error of kind [`ErrorKind::InvalidInput`].
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Returns the kind of the error.
    #[inline]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the failed call can be retried.
    pub fn status(&self) -> Status {
        self.kind.status()
    }

    /// Returns the operation during which the error occurred, if known.
    pub fn operation(&self) -> Option<Operation> {
        self.context.as_ref()?.operation
    }

    /// Returns the name of the sequence, if there is one.
    pub fn sequence(&self) -> Option<&str> {
        self.context.as_ref()?.sequence.as_deref()
    }

    /// Returns the message without the operation and the sequence, which `Display` prints before it.
    pub fn message(&self) -> &str {
        let message = self.context.as_ref().map_or("", |context| &*context.message);
        if message.is_empty() { self.kind.summary() } else { message }
    }

    /// Adds the operation, unless an inner layer has already added one.
    #[must_use]
    pub fn during(self, operation: Operation) -> Self {
        self.amend(|context| {
            context.operation.get_or_insert(operation);
        })
    }

    /// Adds the sequence's name, unless an inner layer has already added one.
    #[must_use]
    pub fn of(self, sequence: &str) -> Self {
        self.amend(|context| {
            context.sequence.get_or_insert_with(|| sequence.into());
        })
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.because_shared(Arc::from(source.into()))
    }

    /// Adds a cause that other errors share. [`source`](std::error::Error::source) returns the cause itself,
    /// not the `Arc`.
    #[must_use]
    pub fn because_shared(self, source: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.amend(|context| context.source = Some(source))
    }

    /// Marks a transient error of a store that will not grant soon, such as a standby, or a store whose
    /// pooled connections are all held by waiting callers. Calls that wait for ids then return this error
    /// instead of waiting for the next attempt. Attempts continue.
    #[must_use]
    pub fn refusing_waiters(self) -> Self {
        self.amend(|context| context.refuses_waiters = true)
    }

    /// Returns whether calls that wait for ids return this error instead of waiting further: it is
    /// [permanent](Status::Permanent), or [marked](Self::refusing_waiters).
    pub fn refuses_waiters(&self) -> bool {
        self.status() == Status::Permanent
            || self.context.as_ref().is_some_and(|context| context.refuses_waiters)
    }

    /// Marks an error that the store reports about this sequence only, such as its absence. Other sequences
    /// are still served.
    #[must_use]
    pub fn of_one_sequence(self) -> Self {
        self.amend(|context| context.is_of_one_sequence = true)
    }

    /// Returns whether the error certainly concerns only its sequence: the sequence is exhausted, or the
    /// store [marked](Self::of_one_sequence) the error. Any other error may concern the whole store.
    pub fn is_of_one_sequence(&self) -> bool {
        self.kind == ErrorKind::Exhausted
            || self.context.as_ref().is_some_and(|context| context.is_of_one_sequence)
    }

    /// Adds ids that the store reserved for the failed call and that will never be handed out. Only for
    /// errors after which it is certain what was reserved.
    #[must_use]
    pub fn leaving_gap(self, ids: u64) -> Self {
        if ids == 0 { self } else { self.amend(|context| context.gap = context.gap.saturating_add(ids)) }
    }

    /// Returns how many ids the store certainly reserved for the failed call.
    pub fn gap(&self) -> u64 {
        self.context.as_ref().map_or(0, |context| context.gap)
    }

    fn amend(mut self, change: impl FnOnce(&mut Context)) -> Self {
        change(Arc::make_mut(self.context.get_or_insert_default()));
        self
    }
}

/// Creates the bare error of a kind, without context and without allocating.
impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, context: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operation(), self.sequence()) {
            (Some(operation), Some(sequence)) => write!(f, "{operation} `{sequence}`: ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, Some(sequence)) => write!(f, "`{sequence}`: ")?,
            (None, None) => {}
        }
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.kind);
        if let Some(context) = &self.context {
            debug.field("operation", &context.operation).field("sequence", &context.sequence);
            debug.field("message", &context.message).field("source", &context.source);
        }
        debug.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.context.as_ref()?.source.as_ref()?;
        Some(&**source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn every_kind_has_one_status_and_one_name() {
        use ErrorKind::*;
        let transient = [Empty, Overloaded, Deadline, Unavailable];
        let permanent = [
            Exhausted,
            Closed,
            InvalidInput,
            NotFound,
            AlreadyExists,
            Conflict,
            Denied,
            Unsupported,
            StoreViolation,
            Witness,
        ];
        assert!(transient.iter().all(|kind| kind.status() == Status::Transient));
        assert!(permanent.iter().all(|kind| kind.status() == Status::Permanent));
        assert_eq!(Error::from(UnknownOutcome).status(), Status::Unknown);
        let names: std::collections::BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names.len(), transient.len() + permanent.len() + 1);
    }

    #[test]
    fn names_round_trip_and_unknown_ones_list_the_choices() {
        assert!(ErrorKind::ALL.iter().all(|kind| kind.to_string().parse::<ErrorKind>().unwrap() == *kind));
        assert!(Status::ALL.iter().all(|status| status.to_string().parse::<Status>().unwrap() == *status));
        assert!(Operation::ALL.iter().all(|one| one.to_string().parse::<Operation>().unwrap() == *one));
        let error = "permanant".parse::<Status>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "\"permanant\" is not a status; use one of: transient, permanent, unknown"
        );
        assert_eq!(format!("{:>6}|", ErrorKind::Empty), " empty|");
    }

    #[test]
    fn the_innermost_context_wins_and_is_printed() {
        let error = Error::new(ErrorKind::Unavailable, "the file is locked")
            .of("orders")
            .during(Operation::Reserve)
            .during(Operation::Draw)
            .of("users")
            .because("disk on fire");
        assert_eq!(error.to_string(), "reserve `orders`: the file is locked");
        assert_eq!(error.message(), "the file is locked");
        assert_eq!(error.sequence(), Some("orders"));
        assert_eq!(error.source().unwrap().to_string(), "disk on fire");
    }

    #[test]
    fn refusing_waiters_outlasts_added_context() {
        let refused = Error::new(ErrorKind::Unavailable, "a standby").refusing_waiters();
        assert!(refused.clone().of("orders").during(Operation::Reserve).refuses_waiters());
        assert_eq!(refused.status(), Status::Transient);
        assert!(!Error::from(ErrorKind::Unavailable).refuses_waiters());
        assert!(Error::from(ErrorKind::Denied).refuses_waiters());
    }

    #[test]
    fn bare_kinds_have_a_message() {
        let error = Error::from(ErrorKind::Exhausted);
        assert_eq!(error.to_string(), "the sequence is exhausted");
        assert_eq!(error.clone().of("x").to_string(), "`x`: the sequence is exhausted");
        assert_eq!(error.clone().of("x").message(), error.message());
    }
}
