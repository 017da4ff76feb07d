//! The macros that declare options.

/// Declares the options of a store: a struct, its defaults, its setters and its
/// [`Options`](crate::options::Options).
///
/// - The fields in braces are set by a constructor. If such a field has [`Options`](crate::options::Options),
///   `use FIELD;` includes its options. `use FIELD as FILTER;` includes a subset: `FILTER` maps an
///   [`Entry`](crate::options::Entry) to an `Option`.
/// - Each option is `name: Type = DEFAULT in KIND;`, or `name ("key"): …` if its key in the URL differs. It
///   has a setter of the same name and visibility. The first paragraph of its documentation also appears on
///   the store's page.
/// - `with_defaults(FIELDS…)` creates a value with every option at its default.
///
/// With `at hosts "SCHEME" as "EXAMPLE"`, or `at path …` for URLs without hosts, the struct also has `parse`,
/// `FromStr`, `Display` and `Debug`. They call three methods of the struct:
/// `at(scheme, place) -> Result<Self>` parses the text between the scheme and the question mark,
/// `place(&self) -> String` prints all before the question mark, and `check(&self) -> Result<_>` validates
/// all values without I/O.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(at $place:ident $($scheme:literal)|+ as $form:literal)? {
            $($(#[$plain_meta:meta])* $plain_vis:vis $plain:ident: $plain_type:ty),* $(,)?
        }
        $(
            $(#[doc = $doc:literal])+
            $option_vis:vis $option:ident $(($key:literal))?: $type:ident $(<$inner:ident>)?
                = $default:tt in $kind:expr;
        )*
        $(use $group:ident $(as $filter:expr)?;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq)]
        #[non_exhaustive]
        $vis struct $name {
            $($(#[$plain_meta])* $plain_vis $plain: $plain_type,)*
            $($(#[doc = $doc])+ $option_vis $option: $type $(<$inner>)?,)*
        }

        impl $name {
            #[allow(dead_code)] // not used by every store
            pub(crate) fn with_defaults($($plain: $plain_type),*) -> Self {
                Self {
                    $($option: $crate::described!($option $(($key))?, $default, $kind, "").usual(),)*
                    $($plain,)*
                }
            }

            $($crate::setter! {
                #[doc = concat!("Sets [`", stringify!($option), "`](#structfield.", stringify!($option), ").")]
                $option_vis $option = $option: $type $(<$inner>)?
            })*
        }

        impl $crate::options::Options for $name {
            fn entries(&mut self) -> Vec<$crate::options::Entry<'_>> {
                #[allow(unused_mut)]
                let mut entries = vec![$($crate::options::Entry {
                    about: $crate::described!(
                        $option $(($key))?, $default, $kind, concat!($($doc, "\n"),+)
                    ),
                    field: &mut self.$option,
                },)*];
                $(entries.extend(
                    $crate::options::Options::entries(&mut self.$group).into_iter() $(.filter_map($filter))?,
                );)*
                entries
            }
        }

        $($crate::by_url! { $name, $place, [$($scheme),+], $form })?
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! described {
    ($name:ident, $($rest:tt)+) => {
        $crate::described!(@ stringify!($name), $($rest)+)
    };
    ($name:ident ($key:literal), $($rest:tt)+) => {
        $crate::described!(@ $key, $($rest)+)
    };
    (@ $key:expr, $default:expr, $kind:expr, $means:expr) => {
        $crate::options::Described { key: $key, kind: $kind, default: $default, means: $means }
    };
}

/// Generates the setter of an option from its type.
#[doc(hidden)]
#[macro_export]
macro_rules! setter {
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: String) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, impl Into<String>, value.into() }
    };
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: Option<String>) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, impl Into<String>, Some(value.into()) }
    };
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: Option<PathBuf>) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, impl Into<::std::path::PathBuf>, Some(value.into()) }
    };
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: Option<Duration>) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, impl Into<Option<::std::time::Duration>>, value.into() }
    };
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: Option<$type:ident>) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, $type, Some(value) }
    };
    ($(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+: $type:ident) => {
        $crate::setter! { @ $(#[$doc])* $vis $name = $($field).+, value, $type, value }
    };
    (@ $(#[$doc:meta])* $vis:vis $name:ident = $($field:ident).+, $value:ident, $type:ty, $set:expr) => {
        $(#[$doc])*
        #[must_use]
        #[allow(dead_code)] // for an option that is set only by URLs
        $vis fn $name(mut self, $value: $type) -> Self {
            self.$($field).+ = $set;
            self
        }
    };
}

/// Generates the setters for a field of type [`Tls`](crate::options::Tls). Each of them turns TLS on, except
/// `optional`, which can also turn it off.
#[doc(hidden)]
#[macro_export]
macro_rules! tls_setters {
    ($field:tt $($name:ident),+) => {
        $($crate::tls_setters! { @ $name $field })+
    };
    (@ optional [$($field:ident).+]) => {
        /// Turns TLS on or off. Default: on only if a certificate is set. Trusts the store's default
        /// authorities, unless [`ca`](Self::ca) replaces them.
        #[must_use]
        pub fn tls(mut self, tls: bool) -> Self {
            self.$($field).+.on = Some(tls);
            self
        }
    };
    (@ tls [$($field:ident).+]) => {
        /// Turns TLS on, with the system's authorities or those of `ca`.
        #[must_use]
        pub fn tls(mut self) -> Self {
            self.$($field).+.on = Some(true);
            self
        }
    };
    (@ ca [$($field:ident).+]) => {
        /// Turns TLS on, with the authorities in this PEM file instead of the default ones. The file is read
        /// when the store connects.
        #[must_use]
        pub fn ca(mut self, file: impl Into<::std::path::PathBuf>) -> Self {
            (self.$($field).+.on, self.$($field).+.ca) = (Some(true), Some(file.into()));
            self
        }
    };
    (@ client_certificate [$($field:ident).+]) => {
        /// Turns TLS on, with the client certificate in this PEM file and its key in the other. The files are
        /// read when the store connects.
        #[must_use]
        pub fn client_certificate(
            mut self,
            certificate: impl Into<::std::path::PathBuf>,
            key: impl Into<::std::path::PathBuf>,
        ) -> Self {
            self.$($field).+.on = Some(true);
            (self.$($field).+.cert, self.$($field).+.key) = (Some(certificate.into()), Some(key.into()));
            self
        }
    };
}

/// Parses and prints the options as a URL.
#[doc(hidden)]
#[macro_export]
macro_rules! by_url {
    ($name:ident, $place:ident, $schemes:expr, $form:literal) => {
        impl $name {
            /// Parses a URL. Does no I/O.
            ///
            /// # Errors
            /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with advice, and never with a password.
            pub fn parse(url: &str) -> $crate::idmill::Result<Self> {
                let (scheme, place, query) = $crate::query::$place(url, &$schemes, $form)?;
                let options = $crate::options::Options::read(Self::at(&scheme, place)?, query)?;
                options.check().map(|_| options)
            }
        }

        $crate::shown_as_url! { $name }
    };
}

/// Implements `FromStr`, `Display` and `Debug` by `parse` and `place`.
#[doc(hidden)]
#[macro_export]
macro_rules! shown_as_url {
    ($name:ident) => {
        impl ::std::str::FromStr for $name {
            type Err = $crate::idmill::Error;

            fn from_str(url: &str) -> $crate::idmill::Result<Self> {
                Self::parse(url)
            }
        }

        /// Prints the URL, with `***` in place of a password.
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&$crate::options::Options::url(self, self.place()))
            }
        }

        /// Uses the `Display` form, which hides the password.
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}
