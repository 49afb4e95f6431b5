//! Keys and the stable hash that partitions them.

use std::cell::Cell;
use std::hash::Hash;

use xxhash_rust::xxh3::xxh3_64;

/// A value that records can be grouped by: records of equal keys go to the same instance.
///
/// A key has canonical bytes, the same in every language and on every machine; its hash is xxh3-64
/// over them. The hash determines the partition, and so the instance and the part of the state, of
/// a key. It is frozen: it does not change between versions. State is stored under the canonical
/// bytes, so different keys must have different bytes.
/// | type | canonical bytes |
/// |---|---|
/// | integers up to 64 bits, `char`, `bool` | eight bytes, little-endian, sign-extended |
/// | 128-bit integers | sixteen bytes, little-endian |
/// | strings | UTF-8 |
/// | bytes | themselves |
/// | [`Timestamp`](crate::Timestamp) | as the integer of its microseconds since the Unix epoch |
/// | tuples, options, arrays | each part: its length as eight bytes, then its bytes; `None` and `()` have no part |
///
/// A user type implements the trait by writing its parts:
///
/// ```
/// use ardea_core::{Key, KeyBytes};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Route { origin: String, destination: String }
///
/// impl Key for Route {
///     fn write(&self, bytes: &mut KeyBytes) {
///         bytes.part(&self.origin);
///         bytes.part(&self.destination);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key",
    label = "records can't be grouped by this",
    note = "keys are integers, strings, bytes, booleans, options and tuples of them; implement `Key` for a type of your own",
    note = "floating-point numbers are no keys: round them to an integer first"
)]
pub trait Key: Eq + Hash + Clone + Send + Sync + 'static {
    /// Appends the canonical bytes.
    fn write(&self, bytes: &mut KeyBytes);

    /// Appends the canonical bytes to a plain buffer.
    fn write_to(&self, out: &mut Vec<u8>) {
        let mut bytes = KeyBytes {
            bytes: std::mem::take(out),
        };
        self.write(&mut bytes);
        *out = bytes.bytes;
    }

    /// Returns xxh3-64 of the canonical bytes.
    ///
    /// Called for every record: the default writes the bytes to a thread-local buffer, so that it
    /// rarely allocates.
    #[inline]
    fn key_hash(&self) -> u64 {
        // Taken, not borrowed: `write` may compute the hash of another key.
        let mut bytes = SCRATCH.take();
        bytes.bytes.clear();
        self.write(&mut bytes);
        let hash = xxh3_64(&bytes.bytes);
        SCRATCH.set(bytes);
        hash
    }

    /// Returns the key as a small number, if it is one: tables then use it as an index instead of
    /// hashing.
    #[inline]
    fn as_index(&self) -> Option<u64> {
        None
    }
}

thread_local! {
    /// The buffer of keys that use the default hash.
    static SCRATCH: Cell<KeyBytes> = const { Cell::new(KeyBytes { bytes: Vec::new() }) };
}

/// The canonical bytes of a key under construction.
#[derive(Debug, Default)]
pub struct KeyBytes {
    bytes: Vec<u8>,
}

impl KeyBytes {
    /// Appends plain bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a part of a composite key: its length, then its bytes.
    pub fn part(&mut self, part: &impl Key) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        part.write(self);
        let length = (self.bytes.len() - start - 8) as u64;
        self.bytes[start..start + 8].copy_from_slice(&length.to_le_bytes());
    }
}

macro_rules! integer_keys {
    ($($type:ty => $wide:ty, $index:expr;)*) => {$(
        impl Key for $type {
            fn write(&self, bytes: &mut KeyBytes) {
                bytes.raw(&(*self as $wide).to_le_bytes());
            }
            #[inline]
            fn key_hash(&self) -> u64 {
                xxh3_64(&(*self as $wide).to_le_bytes())
            }
            #[inline]
            fn as_index(&self) -> Option<u64> {
                let index: fn($type) -> Option<u64> = $index;
                index(*self)
            }
        }
    )*};
}

integer_keys! {
    u8 => u64, |k| Some(k as u64);
    u16 => u64, |k| Some(k as u64);
    u32 => u64, |k| Some(k as u64);
    u64 => u64, Some;
    usize => u64, |k| Some(k as u64);
    i8 => i64, |k| u64::try_from(k).ok();
    i16 => i64, |k| u64::try_from(k).ok();
    i32 => i64, |k| u64::try_from(k).ok();
    i64 => i64, |k| u64::try_from(k).ok();
    isize => i64, |k| u64::try_from(k).ok();
    u128 => u128, |k| u64::try_from(k).ok();
    i128 => i128, |k| u64::try_from(k).ok();
    bool => u64, |k| Some(u64::from(k));
    char => u64, |k| Some(k as u64);
}

macro_rules! byte_keys {
    ($($type:ty => |$key:ident| $bytes:expr;)*) => {$(
        impl Key for $type {
            fn write(&self, bytes: &mut KeyBytes) {
                let $key = self;
                bytes.raw($bytes);
            }
            #[inline]
            fn key_hash(&self) -> u64 {
                let $key = self;
                xxh3_64($bytes)
            }
        }
    )*};
}

byte_keys! {
    String => |key| key.as_bytes();
    Box<str> => |key| key.as_bytes();
    std::sync::Arc<str> => |key| key.as_bytes();
    &'static str => |key| key.as_bytes();
    Vec<u8> => |key| key.as_slice();
}

macro_rules! tuple_keys {
    ($($name:ident),*) => {
        impl<$($name: Key),*> Key for ($($name,)*) {
            fn write(&self, bytes: &mut KeyBytes) {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                $(bytes.part($name);)*
            }
        }
    };
}

tuple_keys!(A);
tuple_keys!(A, B);
tuple_keys!(A, B, C);
tuple_keys!(A, B, C, D);

/// Eight bytes: microseconds since the Unix epoch.
impl Key for crate::Timestamp {
    fn write(&self, bytes: &mut KeyBytes) {
        self.as_micros().write(bytes);
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        self.as_micros().key_hash()
    }
}

/// The key of a stream that is not grouped: shared by all records.
impl Key for () {
    fn write(&self, _: &mut KeyBytes) {}

    #[inline]
    fn as_index(&self) -> Option<u64> {
        Some(0)
    }
}

impl<K: Key> Key for Option<K> {
    fn write(&self, bytes: &mut KeyBytes) {
        if let Some(key) = self {
            bytes.part(key);
        }
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn write(&self, bytes: &mut KeyBytes) {
        for key in self {
            bytes.part(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_frozen() {
        // These values are part of the format of state and of keyed edges. They must never change.
        assert_eq!(7u64.key_hash(), xxh3_64(&7u64.to_le_bytes()));
        assert_eq!(0u64.key_hash(), 0xc77b_3abb_6f87_acd9);
        assert_eq!("ardea".to_string().key_hash(), xxh3_64(b"ardea"));
    }

    #[test]
    fn canonical_bytes_are_appended_to_a_plain_buffer() {
        let mut out = vec![1, 2];
        ("ab".to_string(), true).write_to(&mut out);
        let parts = [&[1, 2][..], &2u64.to_le_bytes(), b"ab"];
        let rest = [8u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
        assert_eq!(out, [&parts.concat()[..], &rest].concat());
    }

    #[test]
    fn equal_numbers_of_different_width_are_one_key() {
        assert_eq!(5u8.key_hash(), 5i64.key_hash());
        assert_eq!((-1i8).key_hash(), (-1i64).key_hash());
    }

    #[test]
    fn a_composite_key_is_the_hash_of_its_parts_with_their_lengths() {
        let bytes = [&2u64.to_le_bytes()[..], b"ab", &1u64.to_le_bytes(), b"c"].concat();
        let key = ("ab".to_string(), "c".to_string());
        assert_eq!(key.key_hash(), xxh3_64(&bytes));
        assert_eq!(key.key_hash(), xxh3_64(&bytes), "again, in the same buffer");
    }

    #[test]
    fn a_key_may_ask_for_the_hash_of_another_while_it_is_written() {
        #[derive(Clone, PartialEq, Eq, Hash)]
        struct ByHash(String);
        impl Key for ByHash {
            fn write(&self, bytes: &mut KeyBytes) {
                bytes.raw(b"before");
                bytes.raw(&(self.0.clone(), 1u8).key_hash().to_le_bytes());
            }
        }
        let inner = ("x".to_string(), 1u8).key_hash().to_le_bytes();
        let expected = xxh3_64(&[&b"before"[..], &inner].concat());
        assert_eq!(ByHash("x".to_string()).key_hash(), expected);
    }

    #[test]
    fn composite_keys_do_not_run_together() {
        let a = ("ab".to_string(), "c".to_string());
        let b = ("a".to_string(), "bc".to_string());
        assert_ne!(a.key_hash(), b.key_hash());
        assert_ne!(Some(String::new()).key_hash(), None::<String>.key_hash());
    }
}
