//! Conversion of Rust values to column values.

use std::fmt::Write;

use ardea_core::Timestamp;

/// A column value, as text in the input format of the column's type.
///
/// | Rust | fits columns of type |
/// |---|---|
/// | `bool` | `boolean` |
/// | whole numbers | `smallint`, `integer`, `bigint`, `numeric` and so on, if they are not too large for it |
/// | `f32`, `f64` | `real`, `double precision`, `numeric` |
/// | `str`, `String`, `char` | `text`, `varchar`, and every type that is written as text: `uuid`, `jsonb`, `numeric`, `date`, `inet`, enums, arrays … |
/// | `[u8]`, `Vec<u8>` | `bytea` |
/// | [`Timestamp`] | `timestamptz`; its first and last are `-infinity` and `infinity` |
/// | `Option` of these | the same, or null |
///
/// The server refuses a value that does not fit its column. The record is then handled by the
/// sink's error policy.
pub trait Cell {
    /// Appends the value as text to `out`. Returns false and appends nothing if the value is null.
    fn append_to(&self, out: &mut String) -> bool;
}

macro_rules! by_display {
    ($($kind:ty),*) => {$(
        impl Cell for $kind {
            fn append_to(&self, out: &mut String) -> bool {
                // Writing to memory does not fail.
                let _ = write!(out, "{self}");
                true
            }
        }
    )*};
}

by_display!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, char, bool
);

impl Cell for str {
    fn append_to(&self, out: &mut String) -> bool {
        out.push_str(self);
        true
    }
}

impl Cell for String {
    fn append_to(&self, out: &mut String) -> bool {
        self.as_str().append_to(out)
    }
}

impl Cell for [u8] {
    fn append_to(&self, out: &mut String) -> bool {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.push_str("\\x");
        for byte in self {
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        true
    }
}

impl Cell for Vec<u8> {
    fn append_to(&self, out: &mut String) -> bool {
        self.as_slice().append_to(out)
    }
}

/// Start of the year 1. PostgreSQL writes earlier years with `BC`.
const YEAR_ONE: Timestamp = Timestamp::from_secs(-62_135_596_800);

impl Cell for Timestamp {
    fn append_to(&self, out: &mut String) -> bool {
        match *self {
            Timestamp::MIN => out.push_str("-infinity"),
            Timestamp::MAX => out.push_str("infinity"),
            time if time < YEAR_ONE => {
                let text = time.to_string();
                let (year, rest) = text
                    .trim_start_matches('-')
                    .split_once('-')
                    .unwrap_or_default();
                // PostgreSQL writes year 0 as 1 BC.
                let year = year.parse::<i64>().unwrap_or_default() + 1;
                let _ = write!(out, "{year:04}-{rest} BC");
            }
            time => {
                let _ = write!(out, "{time}");
            }
        }
        true
    }
}

impl<C: Cell> Cell for Option<C> {
    fn append_to(&self, out: &mut String) -> bool {
        self.as_ref().is_some_and(|cell| cell.append_to(out))
    }
}

impl<C: Cell + ?Sized> Cell for &C {
    fn append_to(&self, out: &mut String) -> bool {
        (**self).append_to(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: impl Cell) -> Option<String> {
        let mut out = String::new();
        let is_there = cell.append_to(&mut out);
        assert!(is_there || out.is_empty());
        is_there.then_some(out)
    }

    #[test]
    fn values_are_written_as_the_server_reads_them() {
        assert_eq!(text(-3i64).as_deref(), Some("-3"));
        assert_eq!(text(true).as_deref(), Some("true"));
        assert_eq!(text("a\"b").as_deref(), Some("a\"b"));
        assert_eq!(text(vec![0u8, 171, 255]).as_deref(), Some("\\x00abff"));
        assert_eq!(text(Timestamp::MIN).as_deref(), Some("-infinity"));
        let time = Timestamp::from_micros(1_500_000);
        assert_eq!(text(time).as_deref(), Some("1970-01-01T00:00:01.500Z"));
        let before_christ = Timestamp::from_secs(-62_135_596_801);
        assert_eq!(
            text(before_christ).as_deref(),
            Some("0001-12-31T23:59:59Z BC")
        );
        assert_eq!(text(Some("x")).as_deref(), Some("x"));
        assert_eq!(text(None::<String>), None);
        assert_eq!(text(f64::NAN).as_deref(), Some("NaN"));
    }
}
