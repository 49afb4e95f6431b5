//! Batches of encoded tuples of one stream, which are the records on an edge of a topology.

use std::any::Any;

use ardea_core::{Chunk, Error, ErrorCode, Records, Result};

use crate::anchor::Anchor;
use crate::value::FieldWriter;

/// The value that marks a tuple without a target instance.
pub(crate) const NO_TARGET: u32 = u32::MAX;

/// The maximum size of all fields of a batch, in bytes.
pub(crate) const MOST_BYTES: usize = u32::MAX as usize;

/// Many tuples of one stream: all fields in one byte buffer, and the end of each tuple.
///
/// A tuple is encoded once, when it is emitted, directly into the batch; the receiver reads it in
/// place. [`write_to`](TupleBatch::write_to) and [`read_from`](TupleBatch::read_from) transfer a
/// batch between processes.
///
/// **Invariant:** `ends` ascends; `anchor_ends` is empty or as long as `ends`, and so is `targets`;
/// `first` is at most the number of tuples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TupleBatch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<u32>,
    /// The number of tuples already read, which count as removed.
    first: usize,
    /// The anchors of all tuples, if they are tracked.
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) anchor_ends: Vec<u32>,
    /// The target instance of each tuple on a direct stream; [`NO_TARGET`] after delivery.
    pub(crate) targets: Vec<u32>,
}

impl TupleBatch {
    /// Returns the number of tuples.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len() - self.first
    }

    /// Returns true if there is no tuple.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == self.ends.len()
    }

    /// Removes all tuples and retains the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.first = 0;
        self.anchors.clear();
        self.anchor_ends.clear();
        self.targets.clear();
    }

    /// Removes up to `count` tuples from the front in constant time. Their bytes are removed with
    /// the last tuple.
    pub fn discard_front(&mut self, count: usize) {
        self.first = (self.first + count).min(self.ends.len());
        if self.is_empty() {
            self.clear();
        }
    }

    /// Returns the number of tuples in the buffers that were already read.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Reclaims the memory of read tuples when they are the majority; for a long-lived batch.
    pub(crate) fn compact(&mut self) {
        const LEAST: usize = 1024;
        if self.first < LEAST || self.first * 2 < self.ends.len() {
            return;
        }
        let start = self.ends[self.first - 1];
        self.bytes.drain(..start as usize);
        self.ends.drain(..self.first);
        self.ends.iter_mut().for_each(|end| *end -= start);
        if let Some(last) = self
            .first
            .checked_sub(1)
            .and_then(|at| self.anchor_ends.get(at))
        {
            let start = *last;
            self.anchors.drain(..start as usize);
            self.anchor_ends.drain(..self.first);
            self.anchor_ends.iter_mut().for_each(|end| *end -= start);
        }
        self.targets.drain(..self.first.min(self.targets.len()));
        self.first = 0;
    }

    /// Returns the size of the fields in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a tuple, whose fields `write` writes. The tuple is refused if it is too large, or if
    /// the number of its fields is not `fields`.
    #[inline]
    pub(crate) fn push(
        &mut self,
        write: impl FnOnce(&mut FieldWriter<'_>),
        fields: usize,
    ) -> Result<(), Refused> {
        let start = self.bytes.len();
        let mut writer = FieldWriter::new(&mut self.bytes);
        write(&mut writer);
        let written = writer.written();
        if written != fields {
            self.bytes.truncate(start);
            return Err(Refused::Fields(written));
        }
        let end = self.bytes.len();
        if end > MOST_BYTES {
            self.bytes.truncate(start);
            return Err(Refused::Bytes(end - start));
        }
        self.ends.push(end as u32);
        Ok(())
    }

    /// Sets the anchors of the last pushed tuple.
    #[inline]
    pub(crate) fn anchor(&mut self, anchors: impl IntoIterator<Item = Anchor>) {
        self.anchors.extend(anchors);
        self.anchor_ends.push(self.anchors.len() as u32);
    }

    /// Returns the encoded fields of the tuple at `index`, counted from the first unread one.
    #[inline]
    pub(crate) fn tuple(&self, index: usize) -> &[u8] {
        range(&self.ends, self.first + index)
            .and_then(|range| self.bytes.get(range))
            .unwrap_or_default()
    }

    /// Returns the anchors of the tuple at `index`.
    #[inline]
    pub(crate) fn anchors_of(&self, index: usize) -> &[Anchor] {
        if self.anchor_ends.is_empty() {
            return &[];
        }
        range(&self.anchor_ends, self.first + index)
            .and_then(|range| self.anchors.get(range))
            .unwrap_or_default()
    }

    /// Returns the target instance of the tuple at `index`.
    pub(crate) fn target_of(&self, index: usize) -> Option<u32> {
        let target = self.targets.get(self.first + index).copied();
        target.filter(|target| *target != NO_TARGET)
    }

    /// Appends a copy of one tuple of `other`.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the batch would grow past 4 GiB.
    #[inline]
    pub(crate) fn push_copy(&mut self, other: &TupleBatch, index: usize) -> Result<()> {
        let tuple = other.tuple(index);
        if self.bytes.len() + tuple.len() > MOST_BYTES {
            return Err(too_large(tuple.len()));
        }
        self.bytes.extend_from_slice(tuple);
        self.ends.push(self.bytes.len() as u32);
        if !other.anchor_ends.is_empty() {
            self.anchor(other.anchors_of(index).iter().copied());
        }
        Ok(())
    }

    /// Appends a copy of all tuples of `other`.
    ///
    /// # Errors
    /// Those of [`push_copy`](TupleBatch::push_copy).
    pub(crate) fn append_copy(&mut self, other: &TupleBatch) -> Result<()> {
        if self.is_empty() && other.first == 0 {
            self.clone_from_whole(other);
            return Ok(());
        }
        (0..other.len()).try_for_each(|index| self.push_copy(other, index))
    }

    fn clone_from_whole(&mut self, other: &TupleBatch) {
        self.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend_from_slice(&other.ends);
        self.anchors.extend_from_slice(&other.anchors);
        self.anchor_ends.extend_from_slice(&other.anchor_ends);
        self.targets.extend_from_slice(&other.targets);
    }
}

#[cold]
fn too_large(bytes: usize) -> Error {
    Error::new(
        ErrorCode::LimitReached,
        format!("a tuple of {bytes} bytes has no place in a batch, which holds 4 GiB"),
    )
    .hint("emit smaller tuples, or set fewer records a chunk")
}

/// The reason why a tuple could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The tuple's number of fields, which differs from the declared one.
    Fields(usize),
    /// The size of the tuple in bytes. The batch would grow past 4 GiB.
    Bytes(usize),
}

/// Returns the range from the previous end to the end at `index`.
#[inline]
fn range(ends: &[u32], index: usize) -> Option<std::ops::Range<usize>> {
    let start = match index.checked_sub(1) {
        Some(before) => *ends.get(before)? as usize,
        None => 0,
    };
    Some(start..*ends.get(index)? as usize)
}

impl Records for TupleBatch {
    fn len(&self) -> usize {
        TupleBatch::len(self)
    }

    fn clear(&mut self) {
        TupleBatch::clear(self);
    }

    fn type_name(&self) -> &'static str {
        "tuples"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Returns the batch in a chunk; an empty chunk of another type becomes an empty batch.
pub(crate) fn batch_of(chunk: &mut Chunk) -> Result<&mut TupleBatch> {
    if chunk.is_empty() && chunk.batch::<TupleBatch>().is_err() {
        *chunk = Chunk::new(TupleBatch::default());
    }
    chunk.batch::<TupleBatch>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchor::{Root, Task};

    fn batch(words: &[&str]) -> TupleBatch {
        let mut batch = TupleBatch::default();
        for (n, word) in words.iter().enumerate() {
            batch.push(|w| w.str(word), 1).unwrap();
            let root = Root::new(Task::new(0, 1).unwrap(), n as u32, 0);
            batch.anchor((0..n).map(|id| Anchor {
                root,
                id: id as u64,
            }));
        }
        batch
    }

    #[test]
    fn reading_part_leaves_the_rest_with_its_anchors() {
        let mut batch = batch(&["a", "b", "c"]);
        batch.discard_front(1);
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.tuple(0), [0x41, b'b']);
        assert_eq!(batch.anchors_of(0).len(), 1);
        assert_eq!(batch.anchors_of(1).len(), 2);
        batch.discard_front(9);
        assert!(batch.is_empty());
        assert_eq!(batch, TupleBatch::default());
    }

    #[test]
    fn a_tuple_of_the_wrong_width_leaves_no_trace() {
        let mut batch = batch(&["a"]);
        let before = batch.clone();
        let outcome = batch.push(|w| w.str("b"), 2);
        assert_eq!(outcome, Err(Refused::Fields(1)));
        assert_eq!(batch, before);
    }

    #[test]
    fn compacting_changes_nothing_but_the_memory() {
        let words: Vec<String> = (0..3000).map(|n| format!("w{}", n % 7)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut whole = batch(&words[..60]);
        (60..3000).for_each(|n| whole.push(|w| w.str(words[n]), 1).unwrap());
        whole.anchor_ends.resize(3000, whole.anchors.len() as u32);
        whole.discard_front(2000);
        let mut compact = whole.clone();
        compact.compact();
        assert!(compact.byte_len() < whole.byte_len());
        let mut copies = [TupleBatch::default(), TupleBatch::default()];
        copies[0].append_copy(&whole).unwrap();
        copies[1].append_copy(&compact).unwrap();
        assert_eq!(copies[0], copies[1]);
    }

    #[test]
    fn copies_of_what_is_left_are_equal_however_they_are_made() {
        let mut from = batch(&["a", "bb", "ccc"]);
        from.discard_front(1);
        let (mut one, mut all) = (TupleBatch::default(), TupleBatch::default());
        all.append_copy(&from).unwrap();
        one.push_copy(&from, 0).unwrap();
        one.push_copy(&from, 1).unwrap();
        assert_eq!(one, all);
    }
}
