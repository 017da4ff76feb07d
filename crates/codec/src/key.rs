//! The key of a permutation: from numbers, bytes or texts; from the environment or a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use siphasher::sip128::SipHasher24;

use super::fault::invalid;
use idmill::{Error, ErrorKind, Operation, Result};

/// Maximum size of a key file in bytes, enough for any key. The limit bounds the read of an endless
/// device.
const LONGEST: u64 = 4096;

/// The 128-bit key of a [`Permutation`](super::Permutation). `Debug` does not show the key.
///
/// The key cannot be changed after ids were published: only the key that encoded an id decodes it. If you
/// lose the key, you cannot decode the ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl From<u128> for Key {
    fn from(number: u128) -> Self {
        Self(number.to_le_bytes())
    }
}

/// Equals the key of the same number as a `u128`.
impl From<u64> for Key {
    fn from(number: u64) -> Self {
        u128::from(number).into()
    }
}

impl Key {
    /// Creates a key from any non-empty bytes, ideally at least 16 random ones. The bytes are hashed by
    /// SipHash-2-4 with 128 bits under a zero key.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if there are no bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(invalid("the key is empty"));
        }
        Ok(Self(SipHasher24::new().hash(bytes).as_bytes()))
    }

    /// Parses a key as in formats, variables and files. A whole number of at most 128 bits, decimal or
    /// hexadecimal after `0x`, is used as this number. Any other text is used as bytes.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an empty text, or a number with more than 128 bits. The
    /// error never contains the text.
    pub fn parse(text: &str) -> Result<Self> {
        let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Self::from_bytes(text.as_bytes());
        }
        let large =
            |_| invalid("the key has more than 128 bits; use at most 32 hexadecimal digits after `0x`");
        u128::from_str_radix(digits, radix).map(Self::from).map_err(large)
    }

    pub(super) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the number that parses to this key.
    pub(super) fn number(&self) -> u128 {
        u128::from_le_bytes(self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// The location of a key that is not part of the format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeySource {
    /// `key=env:NAME`: the value of an environment variable.
    Env(Box<str>),
    /// `key=file:PATH`: the content of a file of at most 4096 bytes, without one trailing line break.
    File(Box<str>),
}

impl KeySource {
    /// Returns the location in the value of `key=`, unless the value is the key itself.
    pub(super) fn of(value: &str) -> Option<Self> {
        let env = value.strip_prefix("env:").map(|name| Self::Env(name.into()));
        env.or_else(|| value.strip_prefix("file:").map(|path| Self::File(path.into())))
    }

    /// Loads the key from this location.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the variable is not set or the file does not exist;
    /// [`Denied`](ErrorKind::Denied) if the file cannot be read because of its permissions;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid key. Errors contain the location, and never
    /// its content.
    pub fn load(&self) -> Result<Key> {
        let text = match self {
            Self::Env(name) => variable(name),
            Self::File(path) => content(path),
        };
        let wrong = |error: Error| Error::invalid(format!("`{self}`: {}", error.message()));
        let key = text.and_then(|text| Key::parse(&text).map_err(wrong));
        key.map_err(|error| error.during(Operation::Configure))
    }
}

/// Uses the spelling after `key=`.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

fn variable(name: &str) -> Result<String> {
    // Empty names and names with `=` or NUL cannot be set, but `std::env::var_os` does not promise `None` for
    // them.
    let possible = !name.is_empty() && !name.contains(['=', '\0']);
    let value = possible.then(|| std::env::var_os(name)).flatten().ok_or_else(|| {
        let message = format!("the key's environment variable `{name}` is not set; export it");
        Error::new(ErrorKind::NotFound, message)
    })?;
    value.into_string().map_err(|_| {
        Error::invalid(format!(
            "the key's environment variable `{name}` is not UTF-8; write the key in hexadecimal"
        ))
    })
}

fn content(path: &str) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    file.map_err(|error| unreadable(path, error))?;
    if text.len() as u64 > LONGEST {
        return Err(Error::invalid(format!(
            "the key file `{path}` is longer than {LONGEST} bytes; it must hold only the key"
        )));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn unreadable(path: &str, error: io::Error) -> Error {
    let (kind, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "create it, or correct the path"),
        io::ErrorKind::PermissionDenied => (ErrorKind::Denied, "make it readable"),
        _ => (ErrorKind::InvalidInput, "it must be one line of text, as `openssl rand -hex 16` prints it"),
    };
    Error::new(kind, format!("cannot read the key file `{path}`; {remedy}")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_give_equal_keys_in_every_notation() {
        let key = Key::from(0x5eed_u64);
        assert_eq!(Key::parse("0x5eed").unwrap(), key);
        assert_eq!(Key::parse("0x00005EED").unwrap(), key);
        assert_eq!(Key::parse("24301").unwrap(), key);
        assert_eq!(Key::parse(&format!("{:#x}", u128::MAX)).unwrap(), Key::from(u128::MAX));
        assert_ne!(Key::parse("5eed").unwrap(), key, "a text, and not a number");
        assert_eq!(Key::parse("5eed").unwrap(), Key::from_bytes(b"5eed").unwrap());
        assert_eq!(Key::from(7_u64), Key::from(7_u128));
    }

    #[test]
    fn invalid_key_is_rejected_and_keys_are_redacted() {
        for empty in [Key::parse(""), Key::from_bytes(b"")] {
            assert_eq!(empty.unwrap_err().to_string(), "configure: the key is empty");
        }
        for large in [format!("1{}", u128::MAX), format!("0x1{:032x}", 0)] {
            let error = Key::parse(&large).unwrap_err();
            let message =
                "configure: the key has more than 128 bits; use at most 32 hexadecimal digits after `0x`";
            assert_eq!(error.to_string(), message);
            assert!(!format!("{error} {error:?}").contains(&large));
        }
        let shown = format!("{:?} {:#?}", Key::from(24301_u64), Key::parse("hunter2").unwrap());
        assert_eq!(shown, "Key(not shown) Key(not shown)");
    }

    #[test]
    fn key_file_may_end_with_a_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let source = KeySource::File(path.to_str().unwrap().into());
        for content in ["0x5eed", "0x5eed\n", "0x5eed\r\n", "24301"] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(source.load().unwrap(), Key::from(0x5eed_u64), "{content:?}");
        }
        let shown = path.display();
        for (content, says) in [
            (&b"\n"[..], format!("`file:{shown}`: the key is empty")),
            (
                &[0xff, 0xfe],
                format!(
                    "cannot read the key file `{shown}`; it must be one line of text, as `openssl rand -hex 16` prints it"
                ),
            ),
            (
                &[b'1'; 40],
                format!(
                    "`file:{shown}`: the key has more than 128 bits; use at most 32 hexadecimal digits after `0x`"
                ),
            ),
            (
                &[b'k'; 4097],
                format!("the key file `{shown}` is longer than 4096 bytes; it must hold only the key"),
            ),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = source.load().unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string()),
                (ErrorKind::InvalidInput, format!("configure: {says}"))
            );
        }
        std::fs::write(&path, [b'k'; 4096]).unwrap();
        assert_eq!(source.load().unwrap(), Key::from_bytes(&[b'k'; 4096]).unwrap(), "the longest key");
        std::fs::remove_file(&path).unwrap();
        let missing = source.load().unwrap_err();
        let says = format!("configure: cannot read the key file `{shown}`; create it, or correct the path");
        assert_eq!((missing.kind(), missing.to_string()), (ErrorKind::NotFound, says));
    }

    /// The administrator can read any file, so a test cannot rely on permissions.
    #[test]
    fn unreadable_key_file_has_its_own_kind_and_remedy() {
        let denied = unreadable("/k", io::ErrorKind::PermissionDenied.into());
        let message = "cannot read the key file `/k`; make it readable";
        assert_eq!((denied.kind(), denied.to_string().as_str()), (ErrorKind::Denied, message));
        assert_eq!(std::error::Error::source(&denied).unwrap().to_string(), "permission denied");
    }

    #[test]
    fn unset_or_invalid_variable_is_not_found() {
        for name in ["IDMILL_TEST_NO_SUCH_KEY", "", "a=b", "a\0b"] {
            let error = KeySource::Env(name.into()).load().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let message = format!("configure: the key's environment variable `{name}` is not set; export it");
            assert_eq!(error.to_string(), message);
        }
        // `PATH` is set in every test environment.
        let path = std::env::var("PATH").unwrap();
        assert_eq!(KeySource::Env("PATH".into()).load().unwrap(), Key::parse(&path).unwrap());
    }
}
