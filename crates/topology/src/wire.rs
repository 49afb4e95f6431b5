//! A batch of tuples as bytes that travel to other processes.
//!
//! All numbers are little-endian. The fields are in the batch as they travel, see [`value`](crate::Value); around them:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the version of this layout, 1 |
//! | 1 | flags: 1 the tuples are tied to trees, 2 they name their target |
//! | 4 | the number n of tuples |
//! | 4 | the number b of bytes of all fields |
//! | 4 | the number a of anchors; zero without flag 1 |
//! | 4 n | where each tuple ends among the bytes |
//! | b | the fields |
//! | 4 n | flag 1: where each tuple's anchors end |
//! | 16 a | flag 1: each anchor: the tree, the tuple's id in it |
//! | 4 n | flag 2: the number of the instance that the tuple is for |

use ardea_core::{Error, ErrorCode, Result};

use crate::anchor::{Anchor, Root};
use crate::batch::TupleBatch;
use crate::value::Field;

const VERSION: u8 = 1;
const ANCHORED: u8 = 1;
const TARGETED: u8 = 2;

impl TupleBatch {
    /// Appends the batch, as far as it has not been read, to `to`.
    pub fn write_to(&self, to: &mut Vec<u8>) {
        let anchored = !self.anchor_ends.is_empty();
        let targeted = !self.targets.is_empty();
        let (ends, bytes) = unread(&self.ends, &self.bytes, self.first());
        let (anchor_ends, anchors) = unread(&self.anchor_ends, &self.anchors, self.first());
        to.push(VERSION);
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        to.push(flag(ANCHORED, anchored) | flag(TARGETED, targeted));
        let sizes = [self.len(), bytes.len(), anchors.len()];
        write_numbers(to, sizes.into_iter().map(|size| size as u32));
        write_numbers(to, ends);
        to.extend_from_slice(bytes);
        write_numbers(to, anchor_ends);
        for anchor in anchors {
            to.extend_from_slice(&anchor.root.bits().to_le_bytes());
            to.extend_from_slice(&anchor.id.to_le_bytes());
        }
        let targets = self.targets.iter().skip(self.first());
        write_numbers(to, targets.copied());
    }

    /// Reads a batch of tuples with `fields` fields each. Everything is checked here, so that nothing need be later.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] for what [`write_to`](TupleBatch::write_to) does not write, with what is wrong.
    pub fn read_from(bytes: &[u8], fields: usize) -> Result<TupleBatch> {
        read(bytes, fields).map_err(|wrong| {
            let what = format!("{} bytes are no batch of tuples: {wrong}", bytes.len());
            Error::new(ErrorCode::BadRecord, what)
                .hint("check that both sides run the same version of the topology")
        })
    }
}

/// What belongs to the tuples from `first` on: their ends, counted from there, and what lies between these.
fn unread<'a, T>(
    ends: &'a [u32],
    all: &'a [T],
    first: usize,
) -> (impl Iterator<Item = u32> + use<'a, T>, &'a [T]) {
    let before = first.checked_sub(1).and_then(|last| ends.get(last));
    let start = before.copied().unwrap_or(0);
    let ends = ends.iter().skip(first).map(move |end| end - start);
    (ends, all.get(start as usize..).unwrap_or_default())
}

fn write_numbers(to: &mut Vec<u8>, numbers: impl Iterator<Item = u32>) {
    to.extend(numbers.flat_map(u32::to_le_bytes));
}

fn read(bytes: &[u8], fields: usize) -> Result<TupleBatch, &'static str> {
    let mut rest = Reader(bytes);
    let [version, flags] = rest.array()?;
    if version != VERSION {
        return Err("the version is unknown");
    }
    if flags & !(ANCHORED | TARGETED) != 0 {
        return Err("a flag is unknown");
    }
    let [tuples, length, anchors] = [rest.number()?, rest.number()?, rest.number()?];
    let (tuples, length, anchors) = (tuples as usize, length as usize, anchors as usize);
    let mut batch = TupleBatch::default();
    batch.ends = rest.numbers(tuples)?;
    batch.bytes = rest.take(length)?.to_vec();
    check_ends(&batch.ends, length)?;
    if flags & ANCHORED != 0 {
        batch.anchor_ends = rest.numbers(tuples)?;
        check_ends(&batch.anchor_ends, anchors)?;
        let pairs = anchors.checked_mul(16).ok_or("the sizes are impossible")?;
        batch.anchors = rest.take(pairs)?.chunks_exact(16).map(anchor).collect();
    } else if anchors != 0 {
        return Err("there are anchors without their flag");
    }
    if flags & TARGETED != 0 {
        batch.targets = rest.numbers(tuples)?;
    }
    if !rest.0.is_empty() {
        return Err("there is something behind the end");
    }
    for index in 0..tuples {
        check_fields(batch.tuple(index), fields)?;
    }
    Ok(batch)
}

fn anchor(pair: &[u8]) -> Anchor {
    let half = |at: usize| {
        let half = pair.get(at..at + 8).and_then(|half| half.try_into().ok());
        u64::from_le_bytes(half.unwrap_or_default())
    };
    Anchor {
        root: Root::from_bits(half(0)),
        id: half(8),
    }
}

fn check_ends(ends: &[u32], length: usize) -> Result<(), &'static str> {
    if !ends.is_sorted() || ends.last().map_or(0, |end| *end as usize) != length {
        return Err("the ends of the tuples don't fit what there is");
    }
    Ok(())
}

fn check_fields(mut rest: &[u8], fields: usize) -> Result<(), &'static str> {
    for _ in 0..fields {
        let (field, after) = Field::first(rest).ok_or("a field is cut off or of no known kind")?;
        if !field.is_canonical() {
            return Err("a field is not encoded as it should be");
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err("a tuple has more fields than its stream declares")
    }
}

/// What has not been read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        self.take(N)?.try_into().map_err(|_| "it is cut off")
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u32>, &'static str> {
        let bytes = count.checked_mul(4).ok_or("the sizes are impossible")?;
        let numbers = self.take(bytes)?.chunks_exact(4);
        Ok(numbers
            .map(|number| u32::from_le_bytes(number.try_into().unwrap_or_default()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encode::{Encode, Items};

    /// A value that owns what it holds.
    #[derive(Clone, Debug)]
    enum Owned {
        Null,
        Bool(bool),
        Int(i64),
        Float(f64),
        Str(String),
        Bytes(Vec<u8>),
        List(Vec<Owned>),
    }

    impl Encode for Owned {
        fn encode(&self, to: &mut crate::FieldWriter<'_>) {
            match self {
                Owned::Null => to.null(),
                Owned::Bool(value) => value.encode(to),
                Owned::Int(value) => value.encode(to),
                Owned::Float(value) => value.encode(to),
                Owned::Str(value) => value.encode(to),
                Owned::Bytes(value) => value.encode(to),
                Owned::List(items) => Items(items).encode(to),
            }
        }
    }

    fn value() -> impl Strategy<Value = Owned> {
        let leaf = prop_oneof![
            Just(Owned::Null),
            any::<bool>().prop_map(Owned::Bool),
            any::<i64>().prop_map(Owned::Int),
            (-300i64..300).prop_map(Owned::Int),
            any::<f64>().prop_map(Owned::Float),
            ".{0,80}".prop_map(Owned::Str),
            prop::collection::vec(any::<u8>(), 0..80).prop_map(Owned::Bytes),
        ];
        leaf.prop_recursive(3, 20, 5, |item| {
            prop::collection::vec(item, 0..5).prop_map(Owned::List)
        })
    }

    fn batch(tuples: &[[Owned; 2]], anchored: bool, targeted: bool) -> TupleBatch {
        let mut batch = TupleBatch::default();
        for (n, tuple) in tuples.iter().enumerate() {
            batch
                .push(|to| tuple.iter().for_each(|value| value.encode(to)), 2)
                .unwrap();
            if anchored {
                let root = Root::new(n as u16, 7, 1);
                batch.anchor((0..n as u64 % 3).map(|id| Anchor { root, id }));
            }
            if targeted {
                batch.targets.push(n as u32);
            }
        }
        batch
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            tuples in prop::collection::vec([value(), value()], 0..20),
            anchored in any::<bool>(),
            targeted in any::<bool>(),
            read in 0usize..4,
        ) {
            let mut batch = batch(&tuples, anchored, targeted);
            let mut bytes = Vec::new();
            batch.write_to(&mut bytes);
            prop_assert_eq!(&TupleBatch::read_from(&bytes, 2).unwrap(), &batch);
            batch.discard_front(read);
            bytes.clear();
            batch.write_to(&mut bytes);
            let rest = TupleBatch::read_from(&bytes, 2).unwrap();
            prop_assert_eq!(rest.len(), batch.len());
            for index in 0..rest.len() {
                prop_assert_eq!(rest.tuple(index), batch.tuple(index));
                prop_assert_eq!(rest.anchors_of(index), batch.anchors_of(index));
                prop_assert_eq!(rest.target_of(index), batch.target_of(index));
            }
        }

        #[test]
        fn garbage_is_refused_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = TupleBatch::read_from(&bytes, 1);
        }

        #[test]
        fn a_damaged_batch_is_refused_or_is_another_sound_one(
            tuples in prop::collection::vec([value(), value()], 1..8),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            batch(&tuples, true, true).write_to(&mut bytes);
            prop_assert!(TupleBatch::read_from(&bytes[..cut.index(bytes.len())], 2).is_err());
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(sound) = TupleBatch::read_from(&bytes, 2) {
                let mut again = Vec::new();
                sound.write_to(&mut again);
                prop_assert_eq!(bytes, again);
            }
        }
    }

    #[test]
    fn a_batch_of_another_width_is_refused() {
        let mut bytes = Vec::new();
        batch(&[[Owned::Null, Owned::Int(1)]], false, false).write_to(&mut bytes);
        let error = TupleBatch::read_from(&bytes, 1).unwrap_err().to_string();
        assert!(error.contains("more fields"), "{error}");
        assert!(TupleBatch::read_from(&bytes, 3).is_err());
    }
}
