//! Statements as text: splits them at their placeholders, for drivers that number placeholders differently or
//! have none.

use idmill::{Error, ErrorKind};

use crate::{Fault, Statement, Value};

/// Returns the text before each placeholder with its value, and the text after the last one. Quoted
/// text is not searched for placeholders.
///
/// # Errors
/// [`Fault::Refused`] for a value that PostgreSQL cannot store: if sent, it would abort the transaction.
pub fn parts<'a>(statement: &'a Statement<'_>) -> Result<Vec<(&'a str, Option<&'a Value>)>, Fault> {
    statement.values.iter().try_for_each(must_be_held)?;
    let (mut parts, mut rest, mut from) = (Vec::new(), &*statement.sql, 0);
    while let Some(at) = rest[from..].find(['$', '\'', '"']).filter(|_| !statement.values.is_empty()) {
        let at = from + at;
        if !rest[at..].starts_with('$') {
            from = at + quoted(&rest[at..]);
            continue;
        }
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = rest[at + 1..][..digits].parse().expect("a placeholder has a number");
        parts.push((&rest[..at], Some(&statement.values[number - 1])));
        (rest, from) = (&rest[at + 1 + digits..], 0);
    }
    parts.push((rest, None));
    Ok(parts)
}

/// Returns the length of quoted text, quotes included. A doubled quote ends one quoted text and
/// begins another.
fn quoted(from: &str) -> usize {
    let quote = from.as_bytes()[0];
    let end = from.bytes().skip(1).position(|byte| byte == quote);
    end.map_or(from.len(), |end| end + 2)
}

fn must_be_held(value: &Value) -> Result<(), Fault> {
    let texts = match value {
        Value::Text(text) => std::slice::from_ref(text),
        Value::Texts(texts) => texts,
        _ => return Ok(()),
    };
    let Some(text) = texts.iter().find(|text| text.contains('\0')) else { return Ok(()) };
    let message = format!("{text:?} contains a NUL, which PostgreSQL cannot store");
    Err(Fault::Refused(Error::new(ErrorKind::InvalidInput, message)))
}
