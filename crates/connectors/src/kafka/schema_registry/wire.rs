//! The header of messages with a registered schema: a zero byte and the id of the schema.

/// The first byte of a message with the id of a schema.
const MAGIC: u8 = 0;

/// The reason for refusing a message that is too short for a header.
const TOO_SHORT: &str =
    "it is too short for the id of a schema: it was not written with a schema registry";

/// Returns the id of the schema of a message, and the rest of the message.
///
/// # Errors
/// The reason why the message has no id.
pub fn parse(value: &[u8]) -> Result<(u32, &[u8]), String> {
    match value.split_first() {
        None => Err(TOO_SHORT.to_string()),
        Some((&MAGIC, rest)) => {
            let (id, rest) = rest.split_first_chunk().ok_or(TOO_SHORT)?;
            Ok((u32::from_be_bytes(*id), rest))
        }
        Some((other, _)) => Err(format!(
            "its first byte is {other}, and not 0, which precedes the id of a schema"
        )),
    }
}

/// Appends the header of a message with a schema.
pub fn write(id: u32, out: &mut Vec<u8>) {
    out.push(MAGIC);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Takes an unsigned integer of variable length, as in the encoding of Protocol Buffers.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes a signed integer of variable length.
fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = take_varint(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Returns the indexes that lead to the message type in its file, the outermost type first, and the
/// rest of the message.
///
/// # Errors
/// The reason why the message has no indexes.
pub fn parse_indexes(mut rest: &[u8]) -> Result<(Vec<usize>, &[u8]), String> {
    /// More levels of nested types than any file has.
    const MAX_LEVELS: usize = 64;
    let bad = || "the indexes of its message type are malformed".to_string();
    let count = take_signed(&mut rest).ok_or_else(bad)?;
    if count == 0 {
        // The first message type, in short.
        return Ok((vec![0], rest));
    }
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= MAX_LEVELS);
    let mut indexes = Vec::new();
    for _ in 0..count.ok_or_else(bad)? {
        let index = take_signed(&mut rest).and_then(|index| usize::try_from(index).ok());
        indexes.push(index.ok_or_else(bad)?);
    }
    Ok((indexes, rest))
}

/// Appends the indexes that lead to a message type.
pub fn write_indexes(indexes: &[usize], out: &mut Vec<u8>) {
    if indexes == [0] {
        out.push(0);
        return;
    }
    for value in [indexes.len()].iter().chain(indexes) {
        let mut value = (*value as u64) << 1;
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_comes_back_and_anything_else_is_refused() {
        let mut bytes = Vec::new();
        write(258, &mut bytes);
        bytes.push(9);
        assert_eq!(parse(&bytes), Ok((258, &[9][..])));
        for short in [&b""[..], &[0], &[0, 1, 2, 3]] {
            assert!(parse(short).unwrap_err().contains("too short"));
        }
        assert!(parse(b"{\"a\":1}").unwrap_err().contains("123"));
    }

    proptest! {
        #[test]
        fn indexes_come_back(indexes in prop::collection::vec(0usize..1000, 1..6)) {
            let mut bytes = Vec::new();
            write_indexes(&indexes, &mut bytes);
            bytes.push(7);
            prop_assert_eq!(parse_indexes(&bytes), Ok((indexes, &[7][..])));
        }

        #[test]
        fn any_bytes_are_indexes_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = parse_indexes(&bytes);
        }
    }

    #[test]
    fn the_first_type_is_one_byte() {
        assert_eq!(parse_indexes(&[0, 5]), Ok((vec![0], &[5][..])));
        assert!(parse_indexes(&[1]).is_err() && parse_indexes(&[]).is_err());
    }
}
