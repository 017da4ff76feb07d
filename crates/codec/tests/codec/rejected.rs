//! Invalid formats and texts: each error has the position, the value and the remedy.

use idmill::ErrorKind;
use idmill_codec::{Base, Format};

const CODEC: &str = "expected a codec, such as `crockford` or `pad(8)`";
const NEXT_CODEC: &str = "expected `|` and another codec, or the end";
const NEXT_VALUE: &str = "expected `,` or `)`; a value with special characters goes between double quotes";
const PAD: &str = "write `pad(N)`, with N from 1 to 32";
const GROUP: &str = "write `group(N)`, with N from 1 to 32";
const CROCKFORD: &str = "`crockford`: write `crockford` or `crockford(check)`";
const REVERSE: &str = "write `reverse(bits=N)`";
const PERMUTE: &str = "write `permute(key=KEY,bits=N)` or `permute(key=KEY,below=N)`, where KEY is env:NAME, \
                       file:PATH or a number";
const BELOW: &str =
    "`below` must be a whole number from 1 to 18446744073709551615; for all ids, use `bits=64`";
const BITS: &str = "`bits` must be a whole number from 1 to 64";

fn expect_invalid(format: &str, at: usize, says: &str) {
    let error = format.parse::<Format>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{format:?}");
    assert_eq!(error.to_string(), format!("configure: format, character {at}: {says}"), "{format:?}");
}

#[test]
fn invalid_syntax_is_rejected_with_its_position() {
    for (format, at, says) in [
        ("", 1, CODEC),
        ("   ", 4, CODEC),
        ("|", 1, CODEC),
        ("base62|", 8, CODEC),
        ("pad(8) base62", 8, NEXT_CODEC),
        ("präfix(a)", 3, NEXT_CODEC),
        ("pad(8", 6, NEXT_VALUE),
        ("prefix(\"ä\"ö)", 11, NEXT_VALUE),
        ("prefix(\"a", 8, "this quote is not closed"),
        ("prefix(\"", 8, "this quote is not closed"),
        (r#"prefix("a\n")"#, 10, r#"in quotes, `\` must be followed by `"` or `\`"#),
        (r#"prefix("a\"#, 10, r#"in quotes, `\` must be followed by `"` or `\`"#),
    ] {
        expect_invalid(format, at, says);
    }
}

#[test]
fn codec_in_a_wrong_place_is_rejected() {
    let known = "use one of: permute, reverse, decimal, base62, crockford, pad, group, prefix, suffix";
    let order = "the order is: permute and reverse; a base (decimal, base62, crockford); pad; group; prefix and suffix";
    expect_invalid("base64", 1, &format!("there is no codec `base64`; {known}"));
    expect_invalid("permute(key=1,bits=3)|x", 23, &format!("there is no codec by that name; {known}"));
    for (format, at, codec, before) in [
        ("pad(8)|base62", 8, "base62", "pad"),
        ("base62|crockford", 8, "crockford", "base62"),
        ("decimal|base62", 9, "base62", "decimal"),
        ("base62|reverse(bits=3)", 8, "reverse", "base62"),
        ("prefix(A)|group(3)", 11, "group", "prefix"),
        ("group(3)|pad(3)", 10, "pad", "group"),
    ] {
        expect_invalid(format, at, &format!("`{codec}` cannot come after `{before}`: {order}"));
    }
    for (format, at, codec) in
        [("prefix(A)|prefix(B)", 11, "prefix"), ("pad(1)|pad(2)", 8, "pad"), ("base62|base62", 8, "base62")]
    {
        expect_invalid(format, at, &format!("duplicate codec `{codec}`; keep one"));
    }
}

#[test]
fn invalid_argument_is_rejected_with_its_position() {
    for (format, at, says) in [
        ("pad(8,9)", 1, PAD),
        ("pad(+8)", 1, PAD),
        ("pad()", 1, PAD),
        ("crockford|group(256)", 11, GROUP),
        ("pad(33)", 1, "33 symbols: choose 1 to 32"),
        ("pad(0)", 1, "0 symbols: choose 1 to 32"),
        ("crockford|group(33)", 11, "33 symbols: choose 1 to 32"),
        ("base62(check)", 8, "`base62`: it takes no arguments"),
        ("decimal(x)", 9, "`decimal`: it takes no arguments"),
        ("crockford(chekc)", 11, CROCKFORD),
        ("crockford(check=check)", 11, CROCKFORD),
        ("crockford(check,check)", 17, CROCKFORD),
        ("base62|group(4)", 8, "`base62` does not allow hyphens; use `crockford`, which ignores them"),
        ("reverse", 1, REVERSE),
        ("reverse(64)", 1, REVERSE),
        ("reverse(below=64)", 1, REVERSE),
        ("reverse(bits=65)", 9, BITS),
        ("reverse(bits=0)", 9, BITS),
        (
            "reverse(bits=64)|reverse(bits=63)",
            18,
            "`reverse` accepts 0 to 9223372036854775807, but the codec before it returns up to 18446744073709551615; widen \
             `reverse`",
        ),
        (
            "reverse(bits=4)|permute(key=1,below=15)",
            17,
            "`permute` accepts 0 to 14, but the codec before it returns up to 15; widen `permute`",
        ),
        ("prefix()", 1, "write `prefix(TEXT)`"),
        ("suffix()", 1, "write `suffix(TEXT)`"),
        ("prefix(\"\")", 1, "``: a prefix or suffix cannot be empty; omit it"),
        ("prefix(a=b)", 8, "write `prefix(TEXT)`; quote text that contains `=`"),
        (
            "prefix(\"a\nb\")",
            1,
            r"`a\nb`: a prefix or suffix cannot contain control characters, such as a line break",
        ),
    ] {
        expect_invalid(format, at, says);
    }
    let long = format!("`{}…`: a prefix or suffix may have at most 64 bytes; shorten it", "x".repeat(64));
    expect_invalid(&format!("prefix({})", "x".repeat(65)), 1, &long);
    let longest: Format = format!("prefix({})", "x".repeat(64)).parse().unwrap();
    assert_eq!(longest.encode(7).unwrap(), format!("{}7", "x".repeat(64)));
}

#[test]
fn invalid_permutation_is_rejected_with_its_position() {
    for (format, at, says) in [
        ("permute(bits=31)", 1, PERMUTE),
        ("permute(key=1)", 1, PERMUTE),
        ("permute(key=1,key=2,bits=31)", 15, PERMUTE),
        ("permute(key=1,bits=31,bits=31)", 23, PERMUTE),
        ("permute(key=1,bits=31,below=9)", 23, PERMUTE),
        ("permute(key=1,below=9,below=9)", 23, PERMUTE),
        ("permute(key=1,bits=31,v=2)", 23, PERMUTE),
        ("permute(key=1,below=0)", 15, BELOW),
        ("permute(key=24301,below=1_000_000)", 19, BELOW),
        ("permute(key=1,bits=+8)", 15, BITS),
        ("permute(key=,bits=31)", 9, "the key is empty"),
    ] {
        expect_invalid(format, at, says);
    }
    let unread = "permute(key=env:KEY,bits=31)".parse::<Format>().unwrap_err().to_string();
    assert_eq!(unread, "configure: the key `env:KEY` must be loaded; use `Format::load`");
}

#[test]
fn text_that_the_format_does_not_write_is_rejected() {
    let format: Format =
        "permute(key=1,below=1000)|crockford(check)|pad(4)|prefix(ORD-)|suffix(.x)".parse().unwrap();
    let text = format.encode(999).unwrap();
    assert_eq!(format.decode(&text.to_lowercase()).unwrap(), 999);
    let digits = text.strip_prefix("ORD-").unwrap().strip_suffix(".x").unwrap();
    let large = Format::new(Base::Crockford { check: true }).pad(4).unwrap().encode(1000).unwrap();
    for (text, says) in [
        (String::new(), ", character 1: it should begin with `ORD-`"),
        ("OR".to_owned(), ", character 3: it should begin with `ORD-`"),
        (format!("ORX-{digits}.x"), ", character 3: it should begin with `ORD-`"),
        (format!(" {text}"), ", character 1: it should begin with `ORD-`"),
        ("ÖRD-ä".to_owned(), ", character 1: it should begin with `ORD-`"),
        (format!("ORD-{digits}"), ", character 9: it should end with `.x`"),
        (format!("ORD-{digits}.y"), ", character 11: it should end with `.x`"),
        ("ORD-x".to_owned(), ", character 6: it should end with `.x`"),
        ("ORD-ä".to_owned(), ", character 6: it should end with `.x`"),
        ("ORD-.x".to_owned(), ", character 5: no digits of `crockford`"),
        (format!("ORD-0{digits}.x"), ": 5 symbols, expected 4: remove leading zeros"),
        (format!("ORD-{}.x", &digits[1..]), ": 3 symbols, expected 4: some are missing"),
        (
            format!("ORD-{large}.x"),
            ": 1000 is not a result of `permute`, which returns 0 to 999; check that the text has this format",
        ),
    ] {
        let error = format.decode(&text).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidInput, format!("`{text}`{says}")));
    }
    let exact: Format = "base62|prefix(u_)".parse().unwrap();
    let other_case = exact.decode("U_4C92").unwrap_err().to_string();
    assert_eq!(other_case, "`U_4C92`, character 1: it should begin with `u_`");
    let other_end: Format = "base62|suffix(z)".parse().unwrap();
    let other_case = other_end.decode("4C92Z").unwrap_err().to_string();
    assert_eq!(other_case, "`4C92Z`, character 6: it should end with `z`");
    assert_eq!(exact.decode("u_4C92").unwrap(), 1_000_000);
}
