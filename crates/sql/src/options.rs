//! The options that the SQL stores share: declared, documented and checked once.

use std::time::Duration;

use idmill_kit::Mode;
use idmill_kit::history::Failover;

use crate::postgres::Keeps;

/// How a store opens its table, from its options.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Opening {
    /// Whether the table may be created or written.
    pub mode: Mode,
    /// The durability required of grants. Only PostgreSQL has this option.
    pub keeps: Keeps,
    /// The policy for a sequence that another server wrote last. SQLite has no such option.
    pub failover: Option<Failover>,
    /// How long a statement may take.
    pub timeout: Duration,
}

/// Declares the options of an SQL store, as [`idmill_kit::options!`] does, in one of the dialects:
///
/// ```ignore
/// options! {
///     /// …
///     pub struct ToyOptions at hosts "toy" as "toy://HOST/DATABASE" { pub authority: Authority }
///
///     sql table in mysql;
///     /// An option of this store.
///     pub copies: u32 = "1" in whole(1, 9);
///     sql opening in mysql;
/// }
/// ```
///
/// `sql table` declares the option `table`, and `sql opening` the other shared options, with a method
/// `opening` that returns them as [`Opening`].
#[macro_export]
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident $(at $place:ident $($scheme:literal)|+ as $form:literal)? {
        $($fields:tt)*
    } $($options:tt)*) => {
        $crate::options! { @ $name [
            $(#[$meta])* pub struct $name $(at $place $($scheme)|+ as $form)? { $($fields)* }
        ] $($options)* }
    };
    (@ $name:ident [$($done:tt)*] sql table in $dialect:ident; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// The table. Each table is a separate namespace.
            pub table: String = { $crate::$dialect::DEFAULT_TABLE } in $crate::$dialect::NAME;
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] sql opening in postgres; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*] sql mode; sql durability; sql failover; sql timeout; $($rest)* }
        $crate::opening! { $name, mode, keeps, failover, timeout }
    };
    (@ $name:ident [$($done:tt)*] sql opening in mysql; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*] sql mode; sql failover; sql timeout; $($rest)* }
        $crate::opening! { $name, mode, failover, timeout }
    };
    (@ $name:ident [$($done:tt)*] sql opening in sqlite; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// How long a write waits for other writers before it fails with `Unavailable`.
            ///
            /// Rounded up to whole milliseconds, which SQLite counts in 31 bits.
            pub busy_timeout: Duration = "5s" in $crate::kit::options::duration("0s", "2147483647ms");
            /// How the file and the table are opened.
            pub mode: Mode = "rwc" in $crate::kit::options::words::<$crate::kit::Mode>();
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] sql mode; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// How the table is opened.
            pub mode: Mode = "rwc" in $crate::kit::options::words::<$crate::kit::Mode>();
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] sql durability; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// How grants survive a crash.
            pub keeps ("durability"): Keeps = "disk" in $crate::kit::options::words::<$crate::postgres::Keeps>();
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] sql failover; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// What happens to a sequence that another server, cluster or timeline wrote last. Default:
            /// `refuse`, or `allow` if the server does not report which it is.
            pub failover: Option<Failover> = "" in $crate::kit::history::FAILOVER;
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] sql timeout; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            /// How long one statement may take before its outcome is unknown. Waiting for a lock is limited
            /// to half of the timeout.
            pub timeout: Duration = "10s" in $crate::kit::options::TIMEOUT;
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] $(#[doc = $doc:literal])+ $vis:vis $option:ident $(($key:literal))?:
     $type:ident $(<$inner:ident>)? = $default:tt in $kind:expr; $($rest:tt)*) => {
        $crate::options! { @ $name [$($done)*
            $(#[doc = $doc])+ $vis $option $(($key))?: $type $(<$inner>)? = $default in $kind;
        ] $($rest)* }
    };
    (@ $name:ident [$($done:tt)*] $($groups:tt)*) => {
        $crate::kit::options! { $($done)* $($groups)* }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! opening {
    ($name:ident, $($field:ident),*) => {
        impl $name {
            pub(crate) fn opening(&self) -> $crate::Opening {
                let mut opening = $crate::Opening::default();
                $(opening.$field = self.$field;)*
                opening
            }
        }
    };
}
