//! A fixed layout of values in payloads.
//!
//! The layout has no alignment, so that any language can read it in a loop. Integers and floats are
//! little-endian in their width; `bool` and the tag of an `Option` take one byte; `char` is a
//! `u32`. A string or list is its length in four bytes and then its bytes or values; tuples and
//! structs are written field by field. A column of strings, as in a chunk of strings, has all
//! lengths first and then all bytes.

use std::fmt;
use std::sync::Arc;

use ardea_core::{Timestamp, Watermark};

/// An error for bytes that are not a value of the requested type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The bytes end too early.
    Short,
    /// Bytes are left after the values.
    Long,
    /// The bytes are invalid: not UTF-8, or an unknown tag.
    Invalid,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::Short => "it ends in the middle of a value",
            WireError::Long => "it is longer than its values",
            WireError::Invalid => "it holds bytes that are no value of the type",
        })
    }
}

impl std::error::Error for WireError {}

/// A value with a fixed layout in payloads.
///
/// Implement this trait for your own types with [`wire!`](crate::wire). Readers accept any bytes
/// and return a value or an error, and no length makes them reserve more memory than the input can
/// fill.
pub trait Wire: Sized + Send + 'static {
    /// The smallest size of a value in bytes, at least one.
    const LEAST_BYTES: usize;

    /// The size of every value in bytes, if it is the same for all.
    const FIXED_BYTES: Option<usize>;

    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value from the front.
    ///
    /// # Errors
    /// If the bytes are not a valid value.
    fn get(input: &mut &[u8]) -> Result<Self, WireError>;

    /// Appends values from the front of a column until they take about `limit` bytes. Returns their
    /// number, at least one if there is a value.
    #[inline]
    fn put_some(values: &[Self], limit: usize, out: &mut Vec<u8>) -> usize {
        if let Some(bytes) = Self::FIXED_BYTES {
            let count = values.len().min((limit / bytes).max(1));
            out.reserve(count * bytes);
            values[..count].iter().for_each(|value| value.put(out));
            return count;
        }
        let end = out.len().saturating_add(limit);
        for (index, value) in values.iter().enumerate() {
            if out.len() >= end && index > 0 {
                return index;
            }
            value.put(out);
        }
        values.len()
    }

    /// Reads a column of `count` values written by [`put_some`](Self::put_some).
    ///
    /// # Errors
    /// If the bytes are not such a column; values before the fault have been appended.
    #[inline]
    fn get_some(input: &mut &[u8], count: usize, into: &mut Vec<Self>) -> Result<(), WireError> {
        can_hold::<Self>(input, count)?;
        into.reserve(count);
        for _ in 0..count {
            into.push(Self::get(input)?);
        }
        Ok(())
    }
}

/// Checks that `input` can hold `count` values, before memory is reserved.
fn can_hold<T: Wire>(input: &[u8], count: usize) -> Result<(), WireError> {
    let least = count.checked_mul(T::LEAST_BYTES.max(1));
    if least.is_some_and(|least| least <= input.len()) {
        Ok(())
    } else {
        Err(WireError::Short)
    }
}

/// Takes the first `count` bytes.
fn take<'a>(input: &mut &'a [u8], count: usize) -> Result<&'a [u8], WireError> {
    input.split_off(..count).ok_or(WireError::Short)
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            const LEAST_BYTES: usize = size_of::<$number>();
            const FIXED_BYTES: Option<usize> = Some(size_of::<$number>());

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                let (bytes, rest) = input.split_first_chunk().ok_or(WireError::Short)?;
                *input = rest;
                Ok(<$number>::from_le_bytes(*bytes))
            }

            #[inline]
            fn put_some(values: &[Self], limit: usize, out: &mut Vec<u8>) -> usize {
                const BYTES: usize = size_of::<$number>();
                let count = values.len().min((limit / BYTES).max(1));
                let start = out.len();
                out.resize(start + count * BYTES, 0);
                for (slot, value) in out[start..].chunks_exact_mut(BYTES).zip(values) {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
                count
            }

            #[inline]
            fn get_some(input: &mut &[u8], count: usize, into: &mut Vec<Self>) -> Result<(), WireError> {
                const BYTES: usize = size_of::<$number>();
                can_hold::<Self>(input, count)?;
                let (chunks, _) = take(input, count * BYTES)?.as_chunks::<BYTES>();
                into.extend(chunks.iter().map(|bytes| <$number>::from_le_bytes(*bytes)));
                Ok(())
            }
        }
    )*};
}

wire_numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

/// Implements [`Wire`] for types that are written as a number.
macro_rules! wire_as {
    ($($type:ty as $number:ty: $to:expr, $from:expr;)*) => {$(
        impl Wire for $type {
            const LEAST_BYTES: usize = <$number as Wire>::LEAST_BYTES;
            const FIXED_BYTES: Option<usize> = <$number as Wire>::FIXED_BYTES;

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                let to: fn(&$type) -> $number = $to;
                to(self).put(out);
            }

            #[inline]
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                let from: fn($number) -> Option<$type> = $from;
                from(<$number>::get(input)?).ok_or(WireError::Invalid)
            }
        }
    )*};
}

wire_as! {
    bool as u8: |it| u8::from(*it), |byte| match byte { 0 => Some(false), 1 => Some(true), _ => None };
    char as u32: |it| u32::from(*it), char::from_u32;
    usize as u64: |it| *it as u64, |number| usize::try_from(number).ok();
    isize as i64: |it| *it as i64, |number| isize::try_from(number).ok();
    Timestamp as i64: |it| it.as_micros(), |micros| Some(Timestamp::from_micros(micros));
    Watermark as i64: |it| it.0.as_micros(), |micros| Some(Watermark(Timestamp::from_micros(micros)));
}

fn put_len(len: usize, out: &mut Vec<u8>) {
    // A list of more than four billion values is rejected later because of its frame size.
    (u32::try_from(len).unwrap_or(u32::MAX)).put(out);
}

fn get_len(input: &mut &[u8]) -> Result<usize, WireError> {
    Ok(u32::get(input)? as usize)
}

impl<T: Wire> Wire for Vec<T> {
    const LEAST_BYTES: usize = 4;
    const FIXED_BYTES: Option<usize> = None;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_len(self.len(), out);
        T::put_some(self, usize::MAX, out);
    }

    #[inline]
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let mut list = Vec::new();
        let count = get_len(input)?;
        T::get_some(input, count, &mut list)?;
        Ok(list)
    }
}

macro_rules! wire_texts {
    ($($text:ty),*) => {$(
        impl Wire for $text {
            const LEAST_BYTES: usize = 4;
            const FIXED_BYTES: Option<usize> = None;

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                put_len(self.len(), out);
                out.extend_from_slice(self.as_bytes());
            }

            #[inline]
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                let len = get_len(input)?;
                let text = str::from_utf8(take(input, len)?).map_err(|_| WireError::Invalid)?;
                Ok(text.into())
            }

            fn put_some(values: &[Self], limit: usize, out: &mut Vec<u8>) -> usize {
                let (mut count, mut bytes) = (0, 0);
                for value in values {
                    bytes += 4 + value.len();
                    if bytes > limit && count > 0 {
                        break;
                    }
                    put_len(value.len(), out);
                    count += 1;
                }
                for value in &values[..count] {
                    out.extend_from_slice(value.as_bytes());
                }
                count
            }

            fn get_some(input: &mut &[u8], count: usize, into: &mut Vec<Self>) -> Result<(), WireError> {
                can_hold::<Self>(input, count)?;
                let (lengths, _) = take(input, 4 * count)?.as_chunks::<4>();
                let lengths = lengths.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
                let total = lengths.clone().sum();
                // One UTF-8 check of all bytes is much cheaper than one per string.
                let mut rest = str::from_utf8(take(input, total)?).map_err(|_| WireError::Invalid)?;
                into.reserve(count);
                for length in lengths {
                    let (text, behind) = rest.split_at_checked(length).ok_or(WireError::Invalid)?;
                    into.push(text.into());
                    rest = behind;
                }
                Ok(())
            }
        }
    )*};
}

wire_texts!(String, Box<str>, Arc<str>);

impl<T: Wire> Wire for Option<T> {
    const LEAST_BYTES: usize = 1;
    const FIXED_BYTES: Option<usize> = None;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    #[inline]
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        bool::get(input)?.then(|| T::get(input)).transpose()
    }
}

/// Returns the sum, if all parts are known.
#[doc(hidden)]
pub const fn fixed_sum(parts: &[Option<usize>]) -> Option<usize> {
    let (mut sum, mut at) = (0, 0);
    while at < parts.len() {
        match parts[at] {
            Some(bytes) => sum += bytes,
            None => return None,
        }
        at += 1;
    }
    Some(sum)
}

macro_rules! wire_tuples {
    ($(($($part:ident $at:tt),*);)*) => {$(
        impl<$($part: Wire),*> Wire for ($($part,)*) {
            const LEAST_BYTES: usize = 0 $(+ $part::LEAST_BYTES)*;
            const FIXED_BYTES: Option<usize> = fixed_sum(&[$($part::FIXED_BYTES),*]);

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$at.put(out);)*
            }

            #[inline]
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Ok(($($part::get(input)?,)*))
            }
        }
    )*};
}

wire_tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
}

/// Implements [`Wire`](crate::Wire) for a struct with the layout of its fields in order.
///
/// ```
/// use ardea_codec::{Wire, wire};
///
/// #[derive(Debug, PartialEq)]
/// struct Bid { auction: u64, price: u64, bidder: String }
/// wire!(Bid { auction: u64, price: u64, bidder: String });
///
/// let bid = Bid { auction: 7, price: 100, bidder: "Ada".into() };
/// let mut bytes = Vec::new();
/// bid.put(&mut bytes);
/// assert_eq!(bytes.len(), 8 + 8 + 4 + 3);
/// assert_eq!(Bid::get(&mut &bytes[..]), Ok(bid));
/// ```
#[macro_export]
macro_rules! wire {
    ($name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        impl $crate::Wire for $name {
            const LEAST_BYTES: usize = 0 $(+ <$type as $crate::Wire>::LEAST_BYTES)+;
            const FIXED_BYTES: Option<usize> =
                $crate::fixed_sum(&[$(<$type as $crate::Wire>::FIXED_BYTES),+]);

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            #[inline]
            fn get(input: &mut &[u8]) -> Result<Self, $crate::WireError> {
                Ok($name { $($field: <$type as $crate::Wire>::get(input)?),+ })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Record = (u64, Option<(i16, bool)>, String, Vec<Vec<u32>>, f64, char);

    fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(values: &[T], limit: usize) {
        let (mut bytes, mut back, mut done) = (Vec::new(), Vec::new(), 0);
        while done < values.len() {
            bytes.clear();
            let count = T::put_some(&values[done..], limit, &mut bytes);
            assert!(count > 0);
            done += count;
            let mut input = &bytes[..];
            T::get_some(&mut input, count, &mut back).unwrap();
            assert!(input.is_empty());
        }
        assert_eq!(back, values);
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(
            records in prop::collection::vec(any::<Record>(), 0..30), limit in 0usize..500,
        ) {
            round_trip(&records, limit);
        }

        #[test]
        fn columns_come_back_as_they_were(
            texts in prop::collection::vec(any::<String>(), 0..30),
            numbers in prop::collection::vec(any::<i32>(), 0..300),
            rows in prop::collection::vec(any::<(u64, i8, u32)>(), 0..100),
            limit in 0usize..500,
        ) {
            round_trip(&texts, limit);
            round_trip(&numbers, limit);
            round_trip(&rows, limit);
        }

        #[test]
        fn any_bytes_give_values_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0usize..100_000,
        ) {
            let _ = Record::get(&mut &bytes[..]);
            let mut texts: Vec<String> = Vec::new();
            let _ = String::get_some(&mut &bytes[..], count, &mut texts);
            prop_assert!(texts.capacity() <= 50 + bytes.len());
            let mut records: Vec<Record> = Vec::new();
            let _ = Record::get_some(&mut &bytes[..], count, &mut records);
            prop_assert!(records.capacity() <= bytes.len());
        }
    }

    #[test]
    fn a_length_that_lies_reserves_nothing() {
        let mut input: &[u8] = &[0xff; 8];
        assert_eq!(Vec::<u64>::get(&mut input), Err(WireError::Short));
    }

    #[test]
    fn strings_cut_within_a_letter_are_refused() {
        let mut bytes = Vec::new();
        String::put_some(&["ä".to_string(), "b".to_string()], 100, &mut bytes);
        bytes[0] = 1;
        bytes[4] = 2;
        let mut texts: Vec<String> = Vec::new();
        assert_eq!(
            String::get_some(&mut &bytes[..], 2, &mut texts),
            Err(WireError::Invalid)
        );
    }
}
