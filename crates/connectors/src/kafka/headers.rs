//! Message headers.
//!
//! Outgoing headers are stored in one buffer: length of the name, name, length of the value or
//! [`NONE`], value, and so on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};

/// Length marker of a header without value.
const NONE: u32 = u32::MAX;

/// A message header: its name and its value, if any.
pub type HeaderRef<'a> = (&'a str, Option<&'a [u8]>);

/// Returns all headers of a message in order.
///
/// # Errors
/// The reason why a header cannot be read: its name is not UTF-8.
pub(crate) fn headers_of<'a>(
    message: &'a BorrowedMessage<'_>,
) -> Result<Vec<HeaderRef<'a>>, String> {
    let Some(headers) = message.headers() else {
        return Ok(Vec::new());
    };
    let read = |number| {
        // The client panics on a name that is not UTF-8 and offers no other way to read it.
        let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(number)));
        match header {
            Ok(Some(Header { key, value })) => Ok((key, value)),
            _ => Err(format!("the name of its header {number} is not UTF-8")),
        }
    };
    (0..headers.count()).map(read).collect()
}

/// Appends a header to the buffer of an outgoing message.
pub(super) fn put(buffer: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    // A length beyond four bytes exceeds any broker's limit, so the message is refused anyway.
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(NONE - 1);
    buffer.extend_from_slice(&length(name.as_bytes()).to_le_bytes());
    buffer.extend_from_slice(name.as_bytes());
    buffer.extend_from_slice(&value.map_or(NONE, length).to_le_bytes());
    buffer.extend_from_slice(value.unwrap_or_default());
}

/// Decodes the headers appended by [`put`]; returns `None` if the buffer is truncated.
pub(super) fn each(mut buffer: &[u8]) -> Option<Vec<HeaderRef<'_>>> {
    let mut all = Vec::new();
    while !buffer.is_empty() {
        let name = take(&mut buffer)?;
        let name = name.and_then(|name| std::str::from_utf8(name).ok())?;
        all.push((name, take(&mut buffer)?));
    }
    Some(all)
}

/// Takes a length and the bytes of this length. Returns `Some(None)` for [`NONE`], and `None` if
/// the buffer is truncated.
fn take<'a>(buffer: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, rest) = buffer.split_first_chunk()?;
    *buffer = rest;
    match u32::from_le_bytes(*length) {
        NONE => Some(None),
        length => buffer.split_off(..length as usize).map(Some),
    }
}

/// Converts headers appended by [`put`] to librdkafka headers; `None` for an empty buffer.
pub(super) fn owned(buffer: &[u8]) -> Option<OwnedHeaders> {
    let all = each(buffer).filter(|all| !all.is_empty())?;
    let headers = OwnedHeaders::new_with_capacity(all.len());
    let insert = |headers: OwnedHeaders, (key, value)| headers.insert(Header { key, value });
    Some(all.into_iter().fold(headers, insert))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_written() {
        let mut buffer = Vec::new();
        let headers = [("a", Some(&b"1"[..])), ("", None), ("a", Some(&b""[..]))];
        for (name, value) in headers {
            put(&mut buffer, name, value);
        }
        assert_eq!(each(&buffer).unwrap(), headers);
        assert_eq!(each(&buffer[..buffer.len() - 1]), None);
        assert_eq!(owned(&buffer).unwrap().count(), 3);
        assert!(owned(&[]).is_none());
    }
}
