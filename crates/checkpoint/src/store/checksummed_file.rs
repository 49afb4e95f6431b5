//! Text files with a kind, a version and a checksum.
//!
//! The first line is `KIND VERSION xxh3 0123456789abcdef`: the checksum covers everything after the
//! line, in hexadecimal.

use xxhash_rust::xxh3::xxh3_64;

/// The reason why a file cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsealed {
    /// The file is damaged or of another kind.
    Damaged,
    /// The file is intact, but of this other version.
    Version(String),
}

/// Returns the content of a file with this kind, version and body.
pub fn seal(kind: &str, version: &str, body: &[u8]) -> Vec<u8> {
    let mut file = first_line(kind, version, body).into_bytes();
    file.extend_from_slice(body);
    file
}

/// Returns the body of a file, if it is intact and of this kind and version.
///
/// ```
/// use ardea_checkpoint::store::{Unsealed, seal, unseal};
///
/// let file = seal("ardea example", "1", b"{}");
/// assert_eq!(unseal("ardea example", "1", &file), Ok(&b"{}"[..]));
/// assert_eq!(unseal("ardea example", "2", &file), Err(Unsealed::Version("1".into())));
/// assert_eq!(unseal("ardea example", "1", &file[1..]), Err(Unsealed::Damaged));
/// ```
///
/// # Errors
/// If the file is damaged, or of another version.
pub fn unseal<'a>(kind: &str, version: &str, file: &'a [u8]) -> Result<&'a [u8], Unsealed> {
    let cut = file.iter().position(|byte| *byte == b'\n');
    let (first, body) = file.split_at(cut.map_or(file.len(), |at| at + 1));
    if first == first_line(kind, version, body).as_bytes() {
        return Ok(body);
    }
    // An intact file of another version.
    let other = std::str::from_utf8(first)
        .ok()
        .and_then(|first| first.strip_prefix(kind)?.trim_start().split(' ').next());
    match other {
        Some(other) if first == first_line(kind, other, body).as_bytes() && is_number(other) => {
            Err(Unsealed::Version(other.to_string()))
        }
        _ => Err(Unsealed::Damaged),
    }
}

fn first_line(kind: &str, version: &str, body: &[u8]) -> String {
    let checksum = xxh3_64(body);
    format!("{kind} {version} xxh3 {checksum:016x}\n")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
