//! Arguments of commands.

use std::io::Write;

/// A key, field, value or option of a command, encoded as a byte string.
pub trait Argument {
    /// Appends the argument in protocol format: length, then bytes.
    fn append_to(&self, out: &mut Vec<u8>);
}

/// Appends a bulk string of the protocol.
pub(crate) fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    append_head(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a protocol line with a type and a count.
pub(crate) fn append_head(kind: u8, count: usize, out: &mut Vec<u8>) {
    out.push(kind);
    append_decimal(count as u64, out);
    out.extend_from_slice(b"\r\n");
}

fn append_decimal(number: u64, out: &mut Vec<u8>) {
    // Twenty digits are enough for every number.
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

macro_rules! by_bytes {
    ($($kind:ty),*) => {$(
        impl Argument for $kind {
            fn append_to(&self, out: &mut Vec<u8>) {
                append_bytes(self.as_ref(), out);
            }
        }
    )*};
}

by_bytes!(str, String, [u8], Vec<u8>);

impl<const N: usize> Argument for [u8; N] {
    fn append_to(&self, out: &mut Vec<u8>) {
        append_bytes(self, out);
    }
}

/// Encodes a value by its `Display` format, in a buffer on the stack.
macro_rules! by_display {
    ($($kind:ty),*) => {$(
        impl Argument for $kind {
            fn append_to(&self, out: &mut Vec<u8>) {
                // The longest text of these types, 1e-308 in full, has some 330 characters.
                let mut text = [0; 400];
                let mut rest = &mut text[..];
                let before = rest.len();
                let written = match write!(rest, "{self}") {
                    Ok(()) => before - rest.len(),
                    Err(_) => 0,
                };
                append_bytes(&text[..written], out);
            }
        }
    )*};
}

by_display!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, char, bool
);

impl<A: Argument + ?Sized> Argument for &A {
    fn append_to(&self, out: &mut Vec<u8>) {
        (**self).append_to(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(argument: impl Argument) -> String {
        let mut out = Vec::new();
        argument.append_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arguments_carry_their_length() {
        assert_eq!(encoded("key"), "$3\r\nkey\r\n");
        assert_eq!(encoded(""), "$0\r\n\r\n");
        assert_eq!(encoded(-1203i64), "$5\r\n-1203\r\n");
        assert_eq!(encoded(u64::MAX), "$20\r\n18446744073709551615\r\n");
        assert_eq!(encoded(0.5), "$3\r\n0.5\r\n");
        assert_eq!(encoded(b"a\r\nb"), "$4\r\na\r\nb\r\n");
        assert!(encoded(f64::MIN_POSITIVE).starts_with("$3"), "whole");
    }
}
