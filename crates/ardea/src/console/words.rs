//! Command-line words as UTF-8 texts.

use std::ffi::OsString;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::Shown;

/// Returns the words of a command line as texts, as a job takes them and a cluster stores them.
/// Errors number them from one.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for a word that is not UTF-8.
pub fn words(given: impl IntoIterator<Item = OsString>) -> Result<Vec<String>> {
    let text = |(number, word): (usize, OsString)| {
        word.into_string().map_err(|word| {
            let what = format!(
                "argument {} is not UTF-8: {}",
                number + 1,
                Path::new(&word).shown()
            );
            Error::new(ErrorCode::InvalidConfig, what)
                .hint("rename the file, or pass its folder if the job reads folders")
        })
    };
    given.into_iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_word_that_is_no_text_is_refused_with_its_bytes_and_not_changed() {
        let word = |word: &[u8]| OsString::from_vec(word.to_vec());
        assert_eq!(
            words([word(b"run"), word("ü".as_bytes())]).unwrap(),
            ["run", "ü"]
        );
        let error = words([word(b"run"), word(b"M\xfcnchen.csv")]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        let text = error.to_string();
        assert!(
            text.contains("argument 2") && text.contains("M\\xFCnchen.csv"),
            "{text}"
        );
    }
}
