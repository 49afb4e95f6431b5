//! The display width of texts, and their truncation and padding.

/// Returns the number of columns of a text. Combining marks take none, East Asian wide characters
/// and emoji two. The ranges approximate the East Asian Width table of Unicode (UAX #11).
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().map(char_width).sum()
    }
}

fn char_width(c: char) -> usize {
    match c as u32 {
        0..0x20 | 0x7f..0xa0 => 0,
        0x300..0x370 | 0x200b..0x2010 | 0xfe00..0xfe10 | 0x20d0..0x2100 | 0xfeff => 0,
        0x1100..0x1160
        | 0x2e80..0x303f
        | 0x3041..0xa4d0
        | 0xac00..0xd7a4
        | 0xf900..0xfb00
        | 0xfe30..0xfe70
        | 0xff00..0xff61
        | 0xffe0..0xffe7
        | 0x1f300..0x1f650
        | 0x1f680..0x1f700
        | 0x1f900..0x1fa00
        | 0x20000..0x40000 => 2,
        _ => 1,
    }
}

/// Returns the text in exactly `columns` columns: padded with spaces, or truncated with an
/// ellipsis.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let wide = width(text);
    if wide <= columns {
        let mut fitted = String::with_capacity(text.len() + columns - wide);
        fitted.push_str(text);
        fitted.extend(std::iter::repeat_n(' ', columns - wide));
        return fitted;
    }
    let mut fitted = cut(text, columns.saturating_sub(1));
    if columns > 0 {
        fitted.push('…');
    }
    let wide = width(&fitted);
    fitted.extend(std::iter::repeat_n(' ', columns - wide));
    fitted
}

fn cut(text: &str, columns: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|&c| {
            used += char_width(c);
            used <= columns
        })
        .collect()
}

/// Returns the text for a terminal without Unicode: similar ASCII characters, or `?`.
pub(super) fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '…' => '~',
            '–' | '—' | '─' | '−' => '-',
            '→' => '>',
            '·' => '.',
            '×' => 'x',
            '’' | '‘' => '\'',
            '“' | '”' => '"',
            'µ' => 'u',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wide_and_combining_characters_are_counted_as_they_are_drawn() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("東京"), 4);
        assert_eq!(width("e\u{301}"), 1);
    }

    #[test]
    fn a_wide_character_that_fits_only_by_half_leaves_a_space() {
        assert_eq!(fit("東京都", 4), "東… ");
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abc", 0), "");
    }

    proptest! {
        #[test]
        fn a_fitted_text_has_exactly_the_width_asked_for(text in "\\PC{0,40}", columns in 0usize..50) {
            prop_assert_eq!(width(&fit(&text, columns)), columns);
        }
    }
}
