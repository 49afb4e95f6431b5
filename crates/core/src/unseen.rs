//! Letters that make a text look like another, or draw on a terminal: in no name, and escaped where others' words are shown.

use std::borrow::Cow;

/// Whether a letter can't be seen and changes how what stands around it is seen: control characters, line and paragraph separators,
/// marks and overrides of the direction of text, and blanks of no width. Joiners, which some scripts and emojis need, are none.
///
/// ```
/// use ardea_core::is_unseen;
///
/// assert!("\u{1b}\n\u{202e}\u{feff}".chars().all(is_unseen));
/// assert!(!"word count, 語 👩\u{200d}🚀".contains(is_unseen));
/// ```
pub fn is_unseen(letter: char) -> bool {
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

/// A text as it can be shown: where [a letter can't be seen](is_unseen) all such are escaped, `\u{202e}`, and the text stays on its line.
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.contains(is_unseen) {
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
            assert_eq!(shown(text), told);
        }
    }
}
