//! What a job may be called.

use ardea_core::{Error, ErrorCode, Result, is_unseen};

/// Refuses what can't be the name of a job of a cluster.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for a name that is empty, has [letters that can't be seen](is_unseen), or is longer than 200 letters and digits; any other
/// character counts as three, as which the cluster's state writes it.
pub fn check_job_name(name: &str) -> Result<()> {
    const MOST: usize = 200;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let length: usize = name.bytes().map(|b| if plain(&b) { 1 } else { 3 }).sum();
    let why = if name.is_empty() {
        "it is empty"
    } else if name.contains(is_unseen) {
        "it has control characters, or others that can't be seen"
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
