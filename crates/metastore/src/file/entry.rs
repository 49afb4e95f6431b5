//! The file format of a node: a readable head, and the value as it is.
//!
//! ```text
//! ardea node 1
//! version 42
//! session 8123-41
//! bytes 5
//! xxh3 9c3b1f0e55aa0172
//!
//! hello
//! ```
//!
//! A node without a session has no line `session`. The checksum covers value, version and session.

use crate::{Node, SessionId, Version};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: &str = "ardea node 1";

/// Maximum length of a head.
pub(super) const HEAD_BYTES: usize = 512;

/// Maximum length of a session's name.
const SESSION_BYTES: usize = 64;

/// The parsed head.
struct Head<'a> {
    version: u64,
    session: Option<&'a str>,
    bytes: usize,
    checksum: u64,
    /// Offset of the value.
    end: usize,
}

/// Encodes the file of a node.
pub(super) fn encode(value: &[u8], version: Version, session: Option<&SessionId>) -> Vec<u8> {
    let session = session.map(SessionId::as_str);
    let session_line = session.map_or(String::new(), |name| format!("session {name}\n"));
    let checksum = checksum(value, version.get(), session);
    let mut file = format!(
        "{MAGIC}\nversion {version}\n{session_line}bytes {bytes}\nxxh3 {checksum:016x}\n\n",
        version = version.get(),
        bytes = value.len(),
    )
    .into_bytes();
    file.extend_from_slice(value);
    file
}

/// Decodes the file of a node; returns the reason if it is damaged.
pub(super) fn decode(file: &[u8]) -> Result<Node, String> {
    let head = head(file)?;
    let value = &file[head.end..];
    if value.len() != head.bytes {
        return Err(format!("it has {} bytes of {}", value.len(), head.bytes));
    }
    if checksum(value, head.version, head.session) != head.checksum {
        return Err("its checksum is wrong".to_string());
    }
    Ok(Node {
        value: Arc::from(value),
        version: Version::new(head.version),
        session: head.session.map(SessionId::new),
    })
}

/// Returns the session of a node, from at least the first [`HEAD_BYTES`] of its file.
pub(super) fn session_of(start: &[u8]) -> Result<Option<SessionId>, String> {
    Ok(head(start)?.session.map(SessionId::new))
}

fn head(file: &[u8]) -> Result<Head<'_>, String> {
    let wrong = || "its head is not that of a node".to_string();
    let start = &file[..file.len().min(HEAD_BYTES)];
    let length = start
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .ok_or_else(wrong)?;
    let text = std::str::from_utf8(&start[..length]).map_err(|_| wrong())?;
    let mut lines = text.lines().peekable();
    if lines.next() != Some(MAGIC) {
        return Err(wrong());
    }
    let mut field = |name: &str| {
        let value = lines.peek()?.strip_prefix(name)?.strip_prefix(' ')?;
        lines.next();
        Some(value)
    };
    let version = field("version").and_then(|text| text.parse().ok());
    let session = field("session");
    if session.is_some_and(|name| !is_session(name)) {
        return Err(wrong());
    }
    let bytes = field("bytes").and_then(|text| text.parse().ok());
    let checksum = field("xxh3").and_then(|text| u64::from_str_radix(text, 16).ok());
    match (version, bytes, checksum) {
        (Some(version), Some(bytes), Some(checksum)) => Ok(Head {
            version,
            session,
            bytes,
            checksum,
            end: length + 2,
        }),
        _ => Err(wrong()),
    }
}

/// Returns true if `name` is valid as the name of a session and of its file.
fn is_session(name: &str) -> bool {
    let fits = (1..=SESSION_BYTES).contains(&name.len());
    fits && name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn checksum(value: &[u8], version: u64, session: Option<&str>) -> u64 {
    let session = xxh3_64_with_seed(session.unwrap_or("").as_bytes(), version);
    xxh3_64_with_seed(value, session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            value in proptest::collection::vec(any::<u8>(), 0..300),
            version in any::<u64>(),
            session in proptest::option::of("[a-z0-9-]{1,40}"),
        ) {
            let session = session.map(SessionId::new);
            let file = encode(&value, Version::new(version), session.as_ref());
            prop_assert_eq!(session_of(&file).expect("a head"), session.clone());
            let node = decode(&file).expect("a node");
            prop_assert_eq!(&*node.value, value.as_slice());
            prop_assert_eq!(node.version, Version::new(version));
            prop_assert_eq!(node.session, session);
        }

        #[test]
        fn a_session_that_can_not_be_is_damage(name in "[a-z0-9-]{1,9}[./\\x00 ].{0,9}|[a-z]{65,300}|") {
            let file = encode(b"hello", Version::new(7), Some(&SessionId::new(name)));
            prop_assert!(session_of(&file).is_err());
            prop_assert!(decode(&file).is_err());
        }

        #[test]
        fn no_damage_goes_unnoticed(at in 0usize..80, to in any::<u8>(), cut in 0usize..80) {
            let file = encode(b"hello", Version::new(7), Some(&SessionId::new("8123-6")));
            let mut damaged = file.clone();
            damaged[at.min(file.len() - 1)] = to;
            if damaged != file {
                // Another spelling of the same number is the only change that may go unnoticed.
                let same = decode(&damaged).ok() == decode(&file).ok();
                prop_assert!(same || decode(&damaged).is_err());
            }
            prop_assert!(decode(&file[..cut.min(file.len() - 1)]).is_err());
        }
    }
}
