//! The encoding of tuple batches for transfer between processes.
//!
//! All numbers are little-endian. The fields are transferred as they are in the batch, see
//! [`value`](crate::Value). The layout:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | the version of this layout, 1 |
//! | 1 | flags: 1 the tuples have anchors, 2 they have targets |
//! | 4 | the number n of tuples |
//! | 4 | the number b of bytes of all fields |
//! | 4 | the number a of anchors; zero without flag 1 |
//! | 4 n | the end of each tuple in the bytes |
//! | b | the fields |
//! | 4 n | flag 1: the end of each tuple's anchors |
//! | 16 a | flag 1: each anchor: the tree, the tuple's id in it |
//! | 4 n | flag 2: the target instance of each tuple |

use ardea_core::{Error, ErrorCode, Result};

use crate::anchor::{Anchor, Root};
use crate::batch::{MOST_BYTES, NO_TARGET, TupleBatch};
use crate::value::Field;

const VERSION: u8 = 1;
const ANCHORED: u8 = 1;
const TARGETED: u8 = 2;
/// The size of the header before the tuples, in bytes.
const HEADER: usize = 14;
/// The size of an anchor in bytes.
const ANCHOR: usize = 16;

impl TupleBatch {
    /// Appends the unread part of the batch to `to`.
    pub fn write_to(&self, to: &mut Vec<u8>) {
        self.write_front(self.len(), to);
    }

    /// Appends the first `count` unread tuples to `to`, as a batch; all if there are fewer.
    pub(crate) fn write_front(&self, count: usize, to: &mut Vec<u8>) {
        let count = count.min(self.len());
        let tuples = Run::of(&self.ends, &self.bytes, self.first(), count);
        let anchors = Run::of(&self.anchor_ends, &self.anchors, self.first(), count);
        let targets = self.targets.get(self.first()..self.first() + count);
        let flags = [
            (ANCHORED, !self.anchor_ends.is_empty()),
            (TARGETED, !self.targets.is_empty()),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        to.reserve(self.wire_len(count));
        to.extend([VERSION, flags.fold(0, |flags, (flag, _)| flags | flag)]);
        let sizes = [count, tuples.items.len(), anchors.items.len()];
        write_numbers(to, sizes.into_iter().map(|size| size as u32));
        tuples.write_ends(to);
        to.extend_from_slice(tuples.items);
        anchors.write_ends(to);
        for anchor in anchors.items {
            let mut pair = [0; ANCHOR];
            pair[..8].copy_from_slice(&anchor.root.bits().to_le_bytes());
            pair[8..].copy_from_slice(&anchor.id.to_le_bytes());
            to.extend_from_slice(&pair);
        }
        write_numbers(to, targets.unwrap_or_default().iter().copied());
    }

    /// Returns the encoded size of the first `count` unread tuples.
    fn wire_len(&self, count: usize) -> usize {
        let numbers = 1 + usize::from(!self.anchor_ends.is_empty());
        let numbers = numbers + usize::from(!self.targets.is_empty());
        let tuples = Run::of(&self.ends, &self.bytes, self.first(), count);
        let anchors = Run::of(&self.anchor_ends, &self.anchors, self.first(), count);
        HEADER + 4 * numbers * count + tuples.items.len() + ANCHOR * anchors.items.len()
    }

    /// Returns the number of tuples, at most `most`, whose encoded size is within `limit` bytes. At
    /// least one, if there are any, even if it is larger than `limit`.
    pub(crate) fn fitting(&self, most: usize, limit: usize) -> usize {
        let most = most.min(self.len());
        if self.wire_len(most) <= limit {
            return most;
        }
        // The size grows with the count.
        let (mut fits, mut too_many) = (0, most);
        while fits + 1 < too_many {
            let middle = fits + (too_many - fits) / 2;
            if self.wire_len(middle) <= limit {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits.max(1).min(most)
    }

    /// Reads a batch of tuples with `fields` fields each. Everything is validated here.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] for bytes that [`write_to`](TupleBatch::write_to) does not write,
    /// with the reason.
    pub fn read_from(bytes: &[u8], fields: usize) -> Result<TupleBatch> {
        let mut batch = TupleBatch::default();
        batch.append_from(bytes, fields)?;
        Ok(batch)
    }

    /// Like [`read_from`](TupleBatch::read_from), but appends to this batch and reuses its memory;
    /// returns the number of tuples.
    ///
    /// # Errors
    /// Those of [`read_from`](TupleBatch::read_from), and if the batch would grow past 4 GiB; the
    /// batch is unchanged then.
    pub fn append_from(&mut self, bytes: &[u8], fields: usize) -> Result<usize> {
        let appended = Layout::read(bytes, fields).and_then(|layout| self.append(&layout));
        appended.map_err(|wrong| {
            let what = format!("{} bytes are no batch of tuples: {wrong}", bytes.len());
            Error::new(ErrorCode::BadRecord, what)
                .hint("check that both sides run the same version of the topology")
        })
    }

    /// Returns the number of tuples in the header of an encoded batch; `None` if the header is
    /// incomplete.
    pub(crate) fn count_in(bytes: &[u8]) -> Option<usize> {
        let count = bytes.get(2..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*count) as usize)
    }

    fn append(&mut self, layout: &Layout<'_>) -> Result<usize, &'static str> {
        if self.is_empty() {
            self.clear();
        }
        let (before, start) = (self.ends.len(), self.bytes.len());
        let anchors_before = self.anchors.len();
        if start + layout.fields.len() > MOST_BYTES
            || anchors_before + layout.anchors.len() / ANCHOR > MOST_BYTES
        {
            return Err("the batch at hand has no place for it");
        }
        self.bytes.extend_from_slice(layout.fields);
        let ends = numbers(layout.ends).map(|end| end + start as u32);
        self.ends.extend(ends);
        let tuples = self.ends.len() - before;
        // If only one of both batches has anchors or targets, the other's are filled in.
        if layout.anchor_ends.is_some() || !self.anchor_ends.is_empty() {
            self.anchor_ends.resize(before, 0);
            let ends = numbers(layout.anchor_ends.unwrap_or_default());
            self.anchor_ends
                .extend(ends.map(|end| end + anchors_before as u32));
            self.anchors
                .extend(layout.anchors.chunks_exact(ANCHOR).map(anchor));
            let all = self.anchors.len() as u32;
            self.anchor_ends.resize(before + tuples, all);
        }
        if layout.targets.is_some() || !self.targets.is_empty() {
            self.targets.resize(before, NO_TARGET);
            self.targets
                .extend(numbers(layout.targets.unwrap_or_default()));
            self.targets.resize(before + tuples, NO_TARGET);
        }
        Ok(tuples)
    }
}

/// A run of tuples: their ends, and the items between the ends.
struct Run<'a, T> {
    /// The end of the tuple before the first.
    start: u32,
    ends: &'a [u32],
    items: &'a [T],
}

impl<'a, T> Run<'a, T> {
    /// Returns the `count` tuples from `first` on, with ends `ends` in `all`; empty if there are no
    /// ends.
    fn of(ends: &'a [u32], all: &'a [T], first: usize, count: usize) -> Self {
        let before = first.checked_sub(1).and_then(|last| ends.get(last));
        let start = before.copied().unwrap_or(0);
        let ends = ends.get(first..first + count).unwrap_or_default();
        let end = ends.last().copied().unwrap_or(start);
        Run {
            start,
            ends,
            items: all.get(start as usize..end as usize).unwrap_or_default(),
        }
    }

    /// Appends the ends, relative to the first tuple's start.
    fn write_ends(&self, to: &mut Vec<u8>) {
        write_numbers(to, self.ends.iter().map(|end| end - self.start));
    }
}

fn write_numbers(to: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u32>) {
    let start = to.len();
    to.resize(start + 4 * numbers.len(), 0);
    for (place, number) in to[start..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn numbers(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> + '_ {
    let numbers = bytes.chunks_exact(4);
    numbers.map(|number| u32::from_le_bytes(number.try_into().unwrap_or_default()))
}

/// The parts of an encoded batch, validated.
struct Layout<'a> {
    ends: &'a [u8],
    fields: &'a [u8],
    anchor_ends: Option<&'a [u8]>,
    anchors: &'a [u8],
    targets: Option<&'a [u8]>,
}

impl<'a> Layout<'a> {
    /// Parses a batch of tuples with this number of fields each.
    fn read(bytes: &'a [u8], fields: usize) -> Result<Layout<'a>, &'static str> {
        let mut rest = Reader(bytes);
        let [version, flags] = rest.array()?;
        if version != VERSION {
            return Err("the version is unknown");
        }
        if flags & !(ANCHORED | TARGETED) != 0 {
            return Err("a flag is unknown");
        }
        let [tuples, length, anchors] = [rest.number()?, rest.number()?, rest.number()?];
        let mut layout = Layout {
            ends: rest.times(tuples, 4)?,
            fields: rest.times(length, 1)?,
            anchor_ends: None,
            anchors: &[],
            targets: None,
        };
        if flags & ANCHORED != 0 {
            layout.anchor_ends = Some(rest.times(tuples, 4)?);
            layout.anchors = rest.times(anchors, ANCHOR)?;
        } else if anchors != 0 {
            return Err("there are anchors without their flag");
        }
        if flags & TARGETED != 0 {
            layout.targets = Some(rest.times(tuples, 4)?);
        }
        if !rest.0.is_empty() {
            return Err("there is something behind the end");
        }
        layout.check(fields, anchors)?;
        Ok(layout)
    }

    fn check(&self, fields: usize, anchors: u32) -> Result<(), &'static str> {
        const UNFIT: &str = "the ends of the tuples don't fit what there is";
        let mut start = 0;
        for end in numbers(self.ends) {
            let tuple = self.fields.get(start..end as usize).ok_or(UNFIT)?;
            check_fields(tuple, fields)?;
            start = end as usize;
        }
        let mut last = 0;
        for end in numbers(self.anchor_ends.unwrap_or_default()) {
            if end < last {
                return Err(UNFIT);
            }
            last = end;
        }
        if start != self.fields.len() || last != anchors {
            return Err(UNFIT);
        }
        Ok(())
    }
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

/// Checks that bytes are this number of encoded fields.
pub(crate) fn check_fields(mut rest: &[u8], fields: usize) -> Result<(), &'static str> {
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

/// The unread bytes.
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

    /// Takes `count` items of `bytes` bytes each.
    fn times(&mut self, count: u32, bytes: usize) -> Result<&'a [u8], &'static str> {
        let bytes = (count as usize).checked_mul(bytes);
        self.take(bytes.ok_or("the sizes are impossible")?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::anchor::Task;
    use crate::encode::{Encode, Items};

    /// An owned value.
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
                let root = Root::new(Task::new(0, n as u32).unwrap(), 7, 1);
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
        fn a_batch_that_travels_in_parts_arrives_as_it_was(
            tuples in prop::collection::vec([value(), value()], 0..40),
            flags in any::<[bool; 4]>(),
            read in 0usize..4,
            limit in 0usize..600,
        ) {
            let [anchored, targeted, arrived_anchored, arrived_targeted] = flags;
            let mut left = batch(&tuples, anchored, targeted);
            left.discard_front(read);
            let whole = left.clone();
            // Appended to an earlier batch that is partly read.
            let mut arrived = batch(&[[Owned::Null, Owned::Null], [Owned::Null, Owned::Null]], arrived_anchored, arrived_targeted);
            arrived.discard_front(1);
            while !left.is_empty() {
                let count = left.fitting(7, limit);
                prop_assert!((1..=7).contains(&count));
                let mut bytes = Vec::new();
                left.write_front(count, &mut bytes);
                prop_assert!(bytes.len() <= limit || count == 1);
                prop_assert_eq!(left.wire_len(count), bytes.len());
                let next = count + 1;
                prop_assert!(next > left.len().min(7) || left.wire_len(next) > limit);
                prop_assert_eq!(arrived.append_from(&bytes, 2).unwrap(), count);
                left.discard_front(count);
            }
            prop_assert_eq!(arrived.len(), whole.len() + 1);
            for index in 0..whole.len() {
                prop_assert_eq!(arrived.tuple(index + 1), whole.tuple(index));
                prop_assert_eq!(arrived.anchors_of(index + 1), whole.anchors_of(index));
                prop_assert_eq!(arrived.target_of(index + 1), whole.target_of(index));
            }
        }

        #[test]
        fn what_is_refused_changes_nothing(
            tuples in prop::collection::vec([value(), value()], 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut arrived = batch(&tuples, true, false);
            let before = arrived.clone();
            let mut bytes = Vec::new();
            batch(&tuples, true, true).write_to(&mut bytes);
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(arrived.append_from(&bytes, 2).is_err());
            prop_assert_eq!(arrived, before);
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
