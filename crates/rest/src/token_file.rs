//! The file of a cluster's secret: one line, readable only by its owner.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result, Token};

/// Maximum size of the file in bytes.
const MOST_BYTES: u64 = 4096;

/// Reads the secret of a cluster from a file.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the file can't be read, is readable by other users, or holds no
/// secret.
pub fn read(path: &Path) -> Result<Token> {
    let refuse = |why: io::Error, hint: &str| {
        let what = format!("cannot read the cluster's token from {}", path.display());
        Error::new(ErrorCode::ReadFailed, what)
            .because(why)
            .hint(hint)
    };
    let plain = |error| refuse(error, "check cluster.token_file and the file's permissions");
    let file = File::open(path).map_err(plain)?;
    let mode = file.metadata().map_err(plain)?.permissions().mode();
    if mode & 0o077 != 0 {
        let why = format!("others may read it (mode {:03o})", mode & 0o777);
        let hint = format!("chmod 600 {}", path.display());
        return Err(refuse(io::Error::other(why), &hint));
    }
    let mut text = String::new();
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(plain)?;
    let secret = text.trim();
    let is_a_line = !secret.is_empty() && secret.chars().all(|c| c.is_ascii_graphic());
    if !is_a_line || text.len() as u64 == MOST_BYTES {
        let why = io::Error::other("it is not one line of letters, digits and signs");
        return Err(refuse(
            why,
            "write a secret into it, such as of `openssl rand -hex 32`",
        ));
    }
    Ok(Token::new(secret))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_read_only_where_nobody_else_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let with = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        assert!(with("sesame\n", 0o600).unwrap().is("sesame"));
        assert!(with("sesame", 0o400).unwrap().is("sesame"));
        for (text, mode, why) in [
            ("sesame", 0o640, "others may read it (mode 640)"),
            ("sesame", 0o604, "chmod 600"),
            ("", 0o600, "openssl"),
            ("two words", 0o600, "not one line"),
            (&"x".repeat(9000), 0o600, "not one line"),
        ] {
            let error = with(text, mode).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read(&path).is_err());
    }
}
