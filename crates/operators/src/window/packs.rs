//! What a cut holds of slices, in packs: few entries, each with what many keys of a partition have.
//!
//! How they are written: see [`pack_form`](super::pack_form).

use ardea_core::{Key, PARTITION_COUNT, PartitionId, Result, StateChunk};

use super::open_slices::SliceId;
use super::pack_form::{SMALL_BYTES, place, put_entry, put_small};
use crate::keyed::KeptAs;

/// About how many bytes a pack has at the most: so much of each partition is held while a cut is written.
const PACK_BYTES: usize = 16 * 1024;
/// How many bytes of each partition gather before they go to its pack. Keys come in no order of their partitions: packs themselves lie so that
/// a thousand ends of them have no room in the caches near a core, these do.
const NEAR_BYTES: usize = 200;
/// About how many bytes of entries are added together.
const TOGETHER_BYTES: usize = 1024;

/// The packs of the cut that is being written, by partition.
#[derive(Default)]
pub(crate) struct Packs {
    /// None until something is packed.
    buffers: Vec<Buffer>,
    /// The entry that is being added, or was last.
    entry: Vec<u8>,
    /// Where those go that are added together.
    partitions: Vec<u16>,
    /// The partitions that the cut has something of.
    used: Vec<u16>,
    /// Those whose buffers are full.
    full: Vec<u16>,
    /// How many entries of slices there are in all.
    entries: u64,
}

#[repr(align(64))]
struct Buffer {
    bytes: Vec<u8>,
    /// What the last group is of.
    group: Option<(SliceId, bool)>,
    /// How many packs have been written.
    written: u32,
    is_used: bool,
    /// How many of the bytes that follow belong behind the others.
    is_near: u8,
    near: [u8; NEAR_BYTES],
}

/// How many packs a cut has of partitions.
pub(crate) type PackCounts = Vec<(u16, u32)>;

impl Packs {
    /// How many entries are added together at the most: the places where they go are asked for all at a time, so that they are not waited
    /// for one after the other.
    pub(crate) const TOGETHER: usize = 32;

    /// What was packed is void; another cut begins.
    pub(crate) fn clear(&mut self) {
        for partition in self.used.drain(..) {
            let buffer = &mut self.buffers[usize::from(partition)];
            buffer.empty();
            (buffer.written, buffer.is_used) = (0, false);
        }
        self.full.clear();
        self.entries = 0;
    }

    /// How many entries have been packed.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether no buffer is full.
    pub(crate) fn has_room(&self) -> bool {
        self.full.is_empty()
    }

    /// How many entries of the size of the last are to be added together: of larger ones behind it, so many as well.
    pub(crate) fn together(&self) -> usize {
        match self.entry.len() {
            0 => 1,
            bytes => (TOGETHER_BYTES / bytes).clamp(1, Self::TOGETHER),
        }
    }

    /// Adds what the table, which may be pending, has of some keys; how many bytes that takes.
    ///
    /// # Errors
    /// The codec's. What comes behind the entry that it can't write has not been added then.
    pub(crate) fn add_all<'e, K: Key + 'e, A: 'e>(
        &mut self,
        kept: &KeptAs<K, A>,
        of: (SliceId, bool),
        entries: impl Iterator<Item = (&'e K, &'e A)> + Clone,
    ) -> Result<usize> {
        self.make_buffers();
        let mut partitions = std::mem::take(&mut self.partitions);
        partitions.clear();
        partitions.extend(entries.clone().map(|(key, _)| place_of_key(key)));
        let touched = partitions
            .iter()
            .map(|it| self.buffers[usize::from(*it)].touch());
        std::hint::black_box(touched.fold(0, |sum, byte| sum ^ byte));
        let mut added = partitions.iter().zip(entries);
        let bytes = added.try_fold(0, |bytes, (partition, (key, acc))| {
            Ok(bytes + self.add_to(*partition, kept, of, (key, acc))?)
        });
        self.partitions = partitions;
        bytes
    }

    /// Adds what the table, which may be pending, has of a key; how many bytes that takes.
    ///
    /// # Errors
    /// The codec's. Nothing has been added then.
    pub(crate) fn add<K: Key, A>(
        &mut self,
        kept: &KeptAs<K, A>,
        of: (SliceId, bool),
        key: &K,
        acc: &A,
    ) -> Result<usize> {
        self.make_buffers();
        self.add_to(place_of_key(key), kept, of, (key, acc))
    }

    fn make_buffers(&mut self) {
        if self.buffers.is_empty() {
            let buffers = std::iter::repeat_with(Buffer::new);
            self.buffers = buffers.take(PARTITION_COUNT as usize).collect();
        }
    }

    fn add_to<K: Key, A>(
        &mut self,
        partition: u16,
        kept: &KeptAs<K, A>,
        of: (SliceId, bool),
        (key, acc): (&K, &A),
    ) -> Result<usize> {
        let buffer = &mut self.buffers[usize::from(partition)];
        let before = buffer.len();
        if buffer.group == Some(of)
            && let (Some(key), Some(acc)) = (kept.integer_key(key), kept.integer_state(acc))
            && let Some(near) = buffer.room_for_small()
        {
            let bytes = put_small(near, key, acc);
            buffer.is_near += bytes as u8;
            return Ok(self.added(partition, before));
        }
        self.entry.clear();
        put_entry(
            &mut self.entry,
            (before == 0, buffer.group),
            kept,
            (of, key, acc),
        )?;
        buffer.append(&self.entry);
        buffer.group = Some(of);
        if !std::mem::replace(&mut buffer.is_used, true) {
            self.used.push(partition);
        }
        Ok(self.added(partition, before))
    }

    /// An entry has been added to the buffer of this partition, which had so many bytes; how many it has more.
    #[inline]
    fn added(&mut self, partition: u16, before: usize) -> usize {
        let after = self.buffers[usize::from(partition)].len();
        if before < PACK_BYTES && after >= PACK_BYTES {
            self.full.push(partition);
        }
        self.entries += 1;
        after - before
    }

    /// Writes a full buffer as a pack of the state of this name; whether there was one.
    pub(crate) fn write_full(&mut self, at: (&str, u64), chunk: &mut StateChunk) -> Result<bool> {
        let Some(partition) = self.full.pop() else {
            return Ok(false);
        };
        self.write(partition, at, chunk)?;
        Ok(true)
    }

    /// Writes the buffer of the partition at `place` of those that the cut has something of; whether there was one.
    pub(crate) fn write_at(
        &mut self,
        place: usize,
        at: (&str, u64),
        chunk: &mut StateChunk,
    ) -> Result<bool> {
        let Some(partition) = self.used.get(place).copied() else {
            return Ok(false);
        };
        self.write(partition, at, chunk)?;
        Ok(true)
    }

    /// Whether the cut has something of so many partitions and one more.
    pub(crate) fn has_at(&self, place: usize) -> bool {
        place < self.used.len()
    }

    fn write(
        &mut self,
        partition: u16,
        (name, sequence): (&str, u64),
        chunk: &mut StateChunk,
    ) -> Result<()> {
        let buffer = &mut self.buffers[usize::from(partition)];
        if buffer.len() == 0 {
            return Ok(());
        }
        buffer.bring_together();
        let key = place(sequence, buffer.written);
        chunk.write(
            name,
            PartitionId::from_index(partition.into()),
            |out| append(out, &key),
            |out| append(out, &buffer.bytes),
        )?;
        buffer.written += 1;
        buffer.empty();
        Ok(())
    }

    /// How many packs have been written of each partition.
    pub(crate) fn counts(&self) -> PackCounts {
        let written = |partition: &u16| self.buffers[usize::from(*partition)].written;
        let counts = self
            .used
            .iter()
            .map(|partition| (*partition, written(partition)));
        counts.filter(|(_, written)| *written > 0).collect()
    }
}

impl Buffer {
    fn new() -> Self {
        Buffer {
            bytes: Vec::new(),
            group: None,
            written: 0,
            is_used: false,
            is_near: 0,
            near: [0; NEAR_BYTES],
        }
    }

    fn len(&self) -> usize {
        self.bytes.len() + usize::from(self.is_near)
    }

    /// Where the next bytes go, if a small entry has room there.
    #[inline]
    fn room_for_small(&mut self) -> Option<&mut [u8; SMALL_BYTES]> {
        let near = self.near.get_mut(usize::from(self.is_near)..)?;
        near.first_chunk_mut()
    }

    /// Reads what is needed to append an entry, and so has its memory come.
    fn touch(&self) -> u8 {
        let end = self.near.get(usize::from(self.is_near));
        self.is_near ^ end.copied().unwrap_or_default()
    }

    fn append(&mut self, entry: &[u8]) {
        if usize::from(self.is_near) + entry.len() > NEAR_BYTES {
            self.bring_together();
        }
        let near = usize::from(self.is_near);
        match self.near.get_mut(near..near + entry.len()) {
            Some(place) => {
                place.copy_from_slice(entry);
                self.is_near += entry.len() as u8;
            }
            None => self.bytes.extend_from_slice(entry),
        }
    }

    fn bring_together(&mut self) {
        let near = usize::from(std::mem::take(&mut self.is_near));
        self.bytes.extend_from_slice(&self.near[..near]);
    }

    /// A pack is written, or void. Much memory is not kept for the next.
    fn empty(&mut self) {
        (self.is_near, self.group) = (0, None);
        match self.bytes.capacity() > 4 * PACK_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }
}

/// The partition of a key.
fn place_of_key(key: &impl Key) -> u16 {
    PartitionId::of(key).index() as u16
}

/// Says that a pack is gone.
pub(crate) fn write_gone(
    chunk: &mut StateChunk,
    (name, sequence): (&str, u64),
    (partition, number): (u16, u32),
) -> Result<()> {
    let key = place(sequence, number);
    let partition = PartitionId::from_index(partition.into());
    chunk.write_removed(name, partition, |out| append(out, &key))
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::cut_short;
    use crate::keyed::test_codecs::EvenIntegers;
    use crate::window::pack_form::{place_of, unpack};
    use ardea_core::{RestoredEntry, StateCodec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Bytes as they are; none that are too long.
    struct Plain;

    impl StateCodec<Vec<u8>> for Plain {
        fn put(&self, value: &Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
            out.extend_from_slice(value);
            match value.len() {
                40_000.. => Err(cut_short()),
                _ => Ok(()),
            }
        }

        fn get(&self, bytes: &[u8]) -> Result<Vec<u8>> {
            Ok(bytes.to_vec())
        }
    }

    impl StateCodec<String> for Plain {
        fn put(&self, value: &String, out: &mut Vec<u8>) -> Result<()> {
            out.extend_from_slice(value.as_bytes());
            Ok(())
        }

        fn get(&self, bytes: &[u8]) -> Result<String> {
            String::from_utf8(bytes.to_vec()).map_err(|_| cut_short())
        }
    }

    type Entry = ((SliceId, bool), String, Vec<u8>);

    fn kept() -> KeptAs<String, Vec<u8>> {
        KeptAs::new(Arc::new(Plain), Arc::new(Plain))
    }

    fn written(packs: &mut Packs) -> StateChunk {
        let mut chunk = StateChunk::default();
        while packs.write_full(("s", 5), &mut chunk).unwrap() {}
        let mut place = 0;
        while packs.write_at(place, ("s", 5), &mut chunk).unwrap() {
            place += 1;
        }
        chunk
    }

    fn entries(chunk: &StateChunk) -> (BTreeSet<Entry>, BTreeSet<(u16, u32)>) {
        let (mut entries, mut places) = (BTreeSet::new(), BTreeSet::new());
        for written in chunk {
            let entry = RestoredEntry {
                state: written.state,
                partition: written.partition,
                key: written.key,
                value: written.value.unwrap(),
            };
            let (sequence, number) = place_of(&entry).unwrap().unwrap();
            assert_eq!(sequence, 5);
            assert!(places.insert((entry.partition.unwrap().index() as u16, number)));
            let take = |of, key, acc| {
                assert!(entries.insert((of, key, acc)));
                Ok(())
            };
            unpack(&kept(), &entry, take).unwrap();
        }
        (entries, places)
    }

    proptest! {
        #[test]
        fn packs_hold_what_was_put_into_them(
            rounds in prop::collection::vec(
                (0i64..3, 0u32..2, any::<bool>(), 0usize..300, 0usize..20_000), 0..60
            ),
        ) {
            let (mut packs, mut put) = (Packs::default(), BTreeSet::new());
            let mut chunk = StateChunk::default();
            for (n, (slice, number, is_pending, key, acc)) in rounds.into_iter().enumerate() {
                let (key, acc) = (format!("{n:0>key$}"), vec![7; acc]);
                let of = ((slice, number), is_pending);
                packs.add(&kept(), of, &key, &acc).unwrap();
                // What can't be written leaves nothing behind.
                packs.add(&kept(), of, &key, &vec![7; 40_000]).unwrap_err();
                put.insert((of, key, acc));
                while packs.write_full(("s", 5), &mut chunk).unwrap() {}
            }
            prop_assert_eq!(packs.entries(), put.len() as u64);
            for entry in &written(&mut packs) {
                chunk.push(entry).unwrap();
            }
            let (entries, places) = entries(&chunk);
            prop_assert_eq!(entries, put);
            let counts = packs.counts().into_iter();
            let counted = counts.flat_map(|(of, count)| (0..count).map(move |n| (of, n)));
            prop_assert_eq!(places, counted.collect::<BTreeSet<_>>());
            packs.clear();
            prop_assert!(packs.counts().is_empty() && written(&mut packs).is_empty());
        }

    }

    #[test]
    fn small_entries_that_are_added_together_come_back_from_the_packs_of_their_partition() {
        let kept = KeptAs::<u64, u64>::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers));
        let of_one = |key: &u64| PartitionId::of(key).index() == 7;
        let keys: Vec<u64> = (0..).filter(of_one).take(9).collect();
        let (mut packs, mut chunk) = (Packs::default(), StateChunk::default());
        let mut put = BTreeSet::new();
        for slice in 0..1_000_i64 {
            let of = ((slice / 3, 0), slice % 3 == 0);
            let accs: Vec<u64> = (0..9).map(|n| (slice as u64 * 9 + n) << (n * 5)).collect();
            packs.add_all(&kept, of, keys.iter().zip(&accs)).unwrap();
            put.extend(keys.iter().zip(accs).map(|(key, acc)| (of, *key, acc)));
            while packs.write_full(("s", 5), &mut chunk).unwrap() {}
        }
        assert_eq!(packs.entries(), 9_000);
        assert!(packs.write_at(0, ("s", 5), &mut chunk).unwrap());
        assert!(chunk.len() > 2);
        let mut read = BTreeSet::new();
        for written in &chunk {
            let entry = RestoredEntry {
                state: written.state,
                partition: written.partition,
                key: written.key,
                value: written.value.unwrap(),
            };
            let take = |of, key, acc| {
                assert!(read.insert((of, key, acc)));
                Ok(())
            };
            unpack(&kept, &entry, take).unwrap();
        }
        assert!(read == put);
    }
}
