//! Validation of job names.

use ardea_core::{Error, ErrorCode, Result, is_invisible};

/// Checks that a name is valid for a job of a cluster.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for a name that is empty, too long or a path, has
/// [invisible characters](is_invisible), or begins or ends with a blank. A name has at most 200
/// letters, digits, `-`, `_` and `.`; each byte of another character counts as three.
pub fn check_job_name(name: &str) -> Result<()> {
    const MOST: usize = 200;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let length: usize = name.bytes().map(|b| if plain(&b) { 1 } else { 3 }).sum();
    let why = if name.is_empty() {
        "it is empty"
    } else if name.contains(is_invisible) {
        "it has control characters, or other invisible characters"
    } else if name.contains('/') || name.chars().all(|c| c == '.') {
        "it would be a path"
    } else if name.trim() != name {
        "it begins or ends with a blank"
    } else if length > MOST {
        "it is too long"
    } else {
        return Ok(());
    };
    let short: String = name.chars().take(60).collect();
    Err(Error::new(
        ErrorCode::InvalidConfig,
        format!("no job can be called {short:?}"),
    )
    .because(why)
    .hint("choose another name with --name, such as word-count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs_are_any_short_text_that_is_no_path() {
        for name in ["a", "word count", "ä.ö", &"x".repeat(200)] {
            check_job_name(name).unwrap();
        }
        for name in [
            "",
            "a\nb",
            "a\u{202e}b",
            "a/b",
            "..",
            " a",
            &"x".repeat(201),
        ] {
            let error = check_job_name(name).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        }
    }
}
