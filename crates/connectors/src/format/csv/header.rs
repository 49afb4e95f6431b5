//! Validation of a CSV header, without which no record can be decoded.

use memchr::memchr;

use super::QUOTE;
use super::record::Record;

/// Returns the kind of a file that begins like `frame` and is not UTF-8 text; `None` for other
/// files.
fn foreign(frame: &[u8]) -> Option<&'static str> {
    let is_bzip2 =
        |(begin, rest): (&[u8], &[u8])| begin.starts_with(b"BZh") && rest.starts_with(b"1AY&SY");
    match frame {
        [b'\xff', b'\xfe', ..] | [b'\xfe', b'\xff', ..] => Some("a text in UTF-16, not UTF-8"),
        [b'\xfd', b'7', b'z', b'X', b'Z', 0, ..] => {
            Some("an xz file; only gzip and zstd are unpacked")
        }
        [b'P', b'K', 3, 4, ..] => Some("a zip file; only gzip and zstd are unpacked"),
        _ if frame.split_at_checked(4).is_some_and(is_bzip2) => {
            Some("a bzip2 file; only gzip and zstd are unpacked")
        }
        _ => None,
    }
}

/// Refuses a header that is not UTF-8 text, or that contains several lines of a file with other
/// line ends.
///
/// # Errors
/// The reason why the header is refused.
pub(super) fn check(frame: &[u8], names: &Record) -> Result<(), String> {
    if let Some(kind) = foreign(frame) {
        return Err(format!("it is the beginning of {kind}"));
    }
    let mut names = names.fields();
    let reason = if memchr(0, frame).is_some() {
        "it has a NUL, as a text in UTF-16 has"
    } else if names.any(|name| str::from_utf8(name).is_err()) {
        "it is not UTF-8"
    } else if has_bare_return(frame) {
        "it has a carriage return, as a file has whose lines end in CR alone"
    } else {
        return Ok(());
    };
    Err(reason.to_string())
}

/// Returns true if there is a carriage return outside quotes.
fn has_bare_return(frame: &[u8]) -> bool {
    let mut is_quoted = false;
    frame.iter().any(|&byte| {
        is_quoted ^= byte == QUOTE;
        byte == b'\r' && !is_quoted
    })
}
