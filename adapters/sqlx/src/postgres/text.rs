//! Writes the values of a statement into its text.

use std::fmt::Write as _;

use idmill_sql::postgres::parts;
use idmill_sql::{Fault, Statement, Value};

/// Returns the statement as one text, with this lock timeout.
///
/// # Errors
/// [`Fault::Refused`] for a value that PostgreSQL cannot represent as text.
pub(super) fn inlined(statement: &Statement<'_>, lock_timeout: &str) -> Result<String, Fault> {
    let mut sql = String::with_capacity(statement.sql.len() * 2);
    for (text, value) in parts(statement)? {
        sql.push_str(text);
        sql.extend(value.map(|value| literal(value, lock_timeout)));
    }
    Ok(sql)
}

/// Returns a value as a literal with its type.
fn literal(value: &Value, lock_timeout: &str) -> String {
    match value {
        Value::Null => "NULL::text".to_owned(),
        Value::Integer(integer) => format!("'{integer}'::bigint"),
        Value::Text(text) => text_literal(text),
        Value::Bytes(bytes) => format!("decode('{}', 'hex')", hex(bytes)),
        Value::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| text_literal(text)).collect();
            format!("ARRAY[{}]::text[]", texts.join(", "))
        }
        Value::Timeout => text_literal(lock_timeout),
        _ => unreachable!("statements for PostgreSQL do not bind this value"),
    }
}

/// Text is quoted only if it cannot end the quotes under any settings of the session. All other text is
/// hexadecimal.
fn text_literal(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\')) {
        return format!("'{text}'::text");
    }
    format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex(text.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;

    use super::*;

    fn text(sql: &str, values: impl Into<Vec<Value>>) -> String {
        inlined(&Statement::read(sql, values), "100ms").unwrap()
    }

    #[test]
    fn values_take_their_places_with_their_types() {
        let values = ["s".into(), Value::Texts(vec!["a".into(), "b".into()]), Value::Timeout, Value::Null];
        assert_eq!(
            text("SELECT $1, $2, $3, $4, $1", values),
            "SELECT 's'::text, ARRAY['a'::text, 'b'::text]::text[], '100ms'::text, NULL::text, 's'::text"
        );
        assert_eq!(
            text("$1 $2", [(-7).into(), Value::Bytes(vec![0, 255])]),
            "'-7'::bigint decode('00ff', 'hex')"
        );
        assert_eq!(text("$1", [Value::Texts(Vec::new())]), "ARRAY[]::text[]");
    }

    #[test]
    fn the_tenth_is_not_the_first_and_a_zero() {
        let values: Vec<Value> = (0..10).map(|number| Value::from(number.to_string())).collect();
        assert_eq!(text("$10,$1", values), "'9'::text,'0'::text");
    }

    #[test]
    fn quoted_placeholders_are_ignored() {
        let sql = "SELECT '$1', \"a$1\", 'it''s $1', \"b\"\"$1\", $1";
        assert_eq!(text(sql, ["x".into()]), sql.strip_suffix("$1").unwrap().to_owned() + "'x'::text");
    }

    #[test]
    fn without_values_the_text_stays_as_it_is() {
        assert_eq!(text("it's $1", []), "it's $1");
    }

    #[test]
    fn nothing_gets_out_of_its_quotes() {
        for odd in ["'", "\\", "a' OR 'b", "\\'; DROP TABLE x --", "é", "\n", "\u{7f}", "💥", "$$"] {
            let literal = text("$1", [odd.into()]);
            let inside = literal.split('\'').nth(1).unwrap();
            let plain = odd.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\'' && byte != b'\\');
            assert_eq!(inside.bytes().all(|byte| byte.is_ascii_hexdigit()), !plain, "{literal}");
            assert_eq!(literal.matches('\'').count(), if plain { 2 } else { 6 }, "{literal}");
        }
        assert_eq!(text("$1", ["é".into()]), "convert_from(decode('c3a9', 'hex'), 'UTF8')");
    }

    #[test]
    fn a_nul_would_end_the_statement_and_is_refused() {
        let fault = inlined(&Statement::read("$1", ["a\0b".into()]), "").unwrap_err();
        assert!(matches!(fault, Fault::Refused(error) if error.kind() == ErrorKind::InvalidInput));
    }
}
