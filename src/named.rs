//! Values that have a name each, by which they are printed and read: in logs, labels, JSON and settings.

#[doc(hidden)]
#[macro_export]
/// Gives a fieldless enum its names. A variant without a name does not compile.
macro_rules! named {
    ($ty:ident, $what:literal: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $ty {
            /// Every value there is, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns its name, which is stable: for logs, labels of metrics and JSON. `Display` prints it
            /// and `FromStr` reads it.
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

        /// Reads the name, as [`as_str`](Self::as_str) has it. Anything else is
        /// [`InvalidInput`](crate::ErrorKind::InvalidInput), and the error has all names.
        impl ::std::str::FromStr for $ty {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> ::std::result::Result<Self, Self::Err> {
                let known = Self::ALL.iter().copied().find(|value| value.as_str() == name);
                known.ok_or_else(|| {
                    let names = [$($name),+].join(", ");
                    $crate::error::Error::invalid(format!("{name:?} is no {}; there are {names}", $what))
                })
            }
        }
    };
}

pub(crate) use named;
