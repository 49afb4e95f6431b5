//! Detection and escaping of characters that are invisible or control a terminal.

use std::borrow::Cow;

/// Returns true for a character that is invisible and affects the display of its surroundings:
/// control characters, line and paragraph separators, direction marks and overrides, and zero-width
/// spaces. Joiners, which some scripts and emojis need, are excluded.
///
/// ```
/// use ardea_core::is_invisible;
///
/// assert!("\u{1b}\n\u{202e}\u{feff}".chars().all(is_invisible));
/// assert!(!"word count, 語 👩\u{200d}🚀".contains(is_invisible));
/// ```
pub fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// Returns the text for display: if it contains an [invisible character](is_invisible), special
/// characters are escaped (`\u{202e}`), so that it stays on its line.
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    match text.contains(is_invisible) {
        true => Cow::Owned(text.escape_debug().to_string()),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_seen_is_escaped_and_all_else_is_left_alone() {
        for (text, told) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("two\nlines", "two\\nlines"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("naïve 語 \"x\"", "naïve 語 \"x\""),
        ] {
            assert_eq!(escape_invisible(text), told);
        }
    }
}
