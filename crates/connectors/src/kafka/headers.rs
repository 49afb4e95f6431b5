//! The headers of messages.
//!
//! Those that are written lie in one buffer: the length of a name, the name, the length of the value or [`NONE`], the value, and so on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};

/// In the place of a length: there is no value.
const NONE: u32 = u32::MAX;

/// A header of a message: its name, and its value if it has one.
pub type HeaderRef<'a> = (&'a str, Option<&'a [u8]>);

/// Reads all headers of a message, in their order.
///
/// # Errors
/// The reason, if a name is not UTF-8.
pub(crate) fn headers_of<'a>(
    message: &'a BorrowedMessage<'_>,
) -> Result<Vec<HeaderRef<'a>>, String> {
    let Some(headers) = message.headers() else {
        return Ok(Vec::new());
    };
    let read = |number| {
        // The client panics at a name that is not UTF-8, and has no other way to read it.
        let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(number)));
        match header {
            Ok(Some(Header { key, value })) => Ok((key, value)),
            _ => Err(format!("the name of its header {number} is not UTF-8")),
        }
    };
    (0..headers.count()).map(read).collect()
}

/// Appends a header to those of a message that is written.
pub(super) fn put(buffer: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    // One that is too long for its length's four bytes is larger than any broker takes a message to be.
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(NONE - 1);
    buffer.extend_from_slice(&length(name.as_bytes()).to_le_bytes());
    buffer.extend_from_slice(name.as_bytes());
    buffer.extend_from_slice(&value.map_or(NONE, length).to_le_bytes());
    buffer.extend_from_slice(value.unwrap_or_default());
}

/// Reads headers that [`put`] has appended; `None` if they break off.
pub(super) fn each(mut buffer: &[u8]) -> Option<Vec<HeaderRef<'_>>> {
    let mut all = Vec::new();
    while !buffer.is_empty() {
        let name = take(&mut buffer)?;
        let name = name.and_then(|name| std::str::from_utf8(name).ok())?;
        all.push((name, take(&mut buffer)?));
    }
    Some(all)
}

/// Takes a length, and as many bytes.
fn take<'a>(buffer: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, rest) = buffer.split_first_chunk()?;
    *buffer = rest;
    match u32::from_le_bytes(*length) {
        NONE => Some(None),
        length => buffer.split_off(..length as usize).map(Some),
    }
}

/// Makes librdkafka's headers of those that [`put`] has appended; none of an empty buffer.
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
