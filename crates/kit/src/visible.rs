//! Invisible characters in text from outside, such as a name.

/// Escapes invisible characters, such as `\u{202e}`, which reverses the rest of a line.
pub fn visible(text: &str) -> String {
    let shown = |c: char| if is_invisible(c) { c.escape_unicode().collect() } else { String::from(c) };
    text.chars().map(shown).collect()
}

/// Returns whether the character is invisible: a control character, a direction mark, a joiner, a filler
/// or another character without a width.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        for text in ["orders.é.עם <b>", "it's \"x\" \\", "строка", "注文 🧾"] {
            assert_eq!(visible(text), text);
        }
        let ranges = [
            '\u{180b}'..='\u{180f}',
            '\u{200b}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2060}'..='\u{206f}',
            '\u{fe00}'..='\u{fe0f}',
            '\u{fff0}'..='\u{fffb}',
            '\u{e0000}'..='\u{e0fff}',
        ];
        for range in ranges {
            assert!(is_invisible(*range.start()) && is_invisible(*range.end()), "{range:?}");
        }
        for c in "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{3164}\u{feff}\u{ffa0}\0".chars() {
            assert!(is_invisible(c), "{c:?}");
        }
        for c in ['a', '\u{180a}', '\u{200a}', '\u{2027}', '\u{202f}', '\u{fffc}', '\u{fe10}'] {
            assert!(!is_invisible(c), "{c:?}");
        }
        assert_eq!(visible("a\u{202e}b\u{200b}\u{feff}\n"), "a\\u{202e}b\\u{200b}\\u{feff}\\u{a}");
    }
}
