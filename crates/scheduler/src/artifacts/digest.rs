//! The identifier of a package: the SHA-256 of its bytes.

use std::fmt;
use std::str::FromStr;

use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a byte sequence. Its text form has 64 lower-case hexadecimal digits.
///
/// ```
/// use ardea_scheduler::artifacts::Digest;
///
/// let digest = Digest::of(b"abc");
/// assert!(digest.to_string().starts_with("ba7816bf"));
/// assert_eq!(digest.to_string().parse::<Digest>()?, digest);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }
}

/// An incremental digest.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let byte = |pair: &[u8]| Some(nibble(pair[0])? << 4 | nibble(pair[1])?);
        let bytes = text.as_bytes();
        let digest: Option<Vec<u8>> = match bytes.len() {
            64 => bytes.chunks_exact(2).map(byte).collect(),
            _ => None,
        };
        digest
            .and_then(|bytes| bytes.try_into().ok())
            .map(Digest)
            .ok_or_else(|| {
                let shown: String = text.chars().take(80).collect();
                Error::new(
                    ErrorCode::InvalidConfig,
                    format!("{shown:?} is no digest of a package"),
                )
                .hint("a digest has 64 digits from 0 to 9 and a to f")
            })
    }
}

/// Serializes the digest as its text form.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Deserializes the digest from its text form.
impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_digest_is_refused() {
        let good = Digest::of(b"").to_string();
        assert_eq!(
            good,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for text in [
            "",
            "abc",
            &good[1..],
            &good.to_uppercase(),
            &format!("../{}", &good[3..]),
            &"ä".repeat(32),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
