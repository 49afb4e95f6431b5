//! Bounded reading of payloads that another process wrote.

use std::fmt;

/// A message that breaks the protocol: its description, without a full stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl Violation {
    /// Creates a violation.
    pub fn new(what: impl Into<String>) -> Self {
        Violation(what.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// A cursor over the bytes of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadReader<'a> {
    bytes: &'a [u8],
    /// The name of the message, for violations.
    of: &'static str,
}

impl<'a> PayloadReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], of: &'static str) -> Self {
        PayloadReader { bytes, of }
    }

    /// Returns the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Violation> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(Violation::new(format!(
                "the payload of {} ends {} bytes too early",
                self.of,
                count - self.bytes.len()
            )));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Violation> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Violation> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Violation> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Violation> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Violation> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Violation> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Returns bytes that follow their length.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Violation> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(self) -> Result<(), Violation> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(Violation::new(format!(
                "the payload of {} has {left} bytes too many",
                self.of
            ))),
        }
    }
}

/// Maximum length of the reason of a failure; the rest is cut off.
pub(crate) const MAX_REASON_BYTES: usize = 64 << 10;

/// Appends the reason of a failure after its length.
pub(crate) fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let end = reason.floor_char_boundary(MAX_REASON_BYTES);
    put_sized(out, &reason.as_bytes()[..end]);
}

/// Appends bytes after their length.
pub(crate) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    // Payloads are at most `MAX_FRAME_BYTES` long, which is checked before they are sent.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}
