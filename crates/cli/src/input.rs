//! Reads lines from stdin or a file.

use std::io::{self, BufRead, ErrorKind};

/// Maximum size of a line in bytes, far above the size of any sequence or formatted id. The limit bounds
/// memory for input without line ends.
const LONGEST: usize = 1 << 16;

/// Reads the next line with its line end; an empty line at the end of the input.
///
/// # Errors
/// `FileTooLarge` if the line is too long. Its rest would be read as another line, so stop there.
pub(crate) fn next_bytes(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let size = io::Read::take(from, LONGEST as u64 + 1).read_until(b'\n', &mut line)?;
    if size > LONGEST {
        let message = format!("a line is longer than {LONGEST} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(line)
}

/// Reads the next line without its line end; `None` at the end of the input.
///
/// # Errors
/// `FileTooLarge` as in [`next_bytes`]; `InvalidData` if the line is not UTF-8, after which the next line
/// can be read.
pub(crate) fn next_line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let line = next_bytes(from)?;
    if line.is_empty() {
        return Ok(None);
    }
    let not_text = |_| io::Error::new(ErrorKind::InvalidData, "the line is not UTF-8");
    let text = String::from_utf8(line).map_err(not_text)?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_without_their_ends() {
        let mut input: &[u8] = b"one\r\n\n\xff\nlast";
        assert_eq!(next_line(&mut input).unwrap().as_deref(), Some("one"));
        assert_eq!(next_line(&mut input).unwrap().as_deref(), Some(""));
        assert_eq!(next_line(&mut input).unwrap_err().to_string(), "the line is not UTF-8");
        assert_eq!(next_line(&mut input).unwrap().as_deref(), Some("last"));
        assert_eq!(next_line(&mut input).unwrap(), None);
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut input = io::BufReader::new(io::repeat(b'x'));
        assert!(next_line(&mut input).unwrap_err().to_string().contains("longer than 65536 bytes"));
        let longest = "y".repeat(LONGEST - 1) + "\n";
        assert_eq!(next_line(&mut longest.as_bytes()).unwrap().unwrap().len(), LONGEST - 1);
    }
}
