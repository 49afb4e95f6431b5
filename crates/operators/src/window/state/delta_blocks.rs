//! Snapshots of slices in packs (delta blocks): few entries, each with the accumulators of many
//! keys of a partition.
//!
//! The format is described in [`delta_format`](super::delta_format).

use ardea_core::{Key, PARTITION_COUNT, PartitionId, Result, StateChunk};

use super::delta_buffer::{Buffer, PACK_BYTES};
use super::delta_format::{Group, place, put_before, put_entry, put_reference};
use super::delta_keys::{PackKeys, PackSerial};
use ardea_state::StateCodecs;

/// The approximate number of bytes of entries that are added as a group.
const TOGETHER_BYTES: usize = 1024;

/// The packs of the snapshot in progress, by partition.
#[derive(Default)]
pub(crate) struct DeltaBlocks {
    /// Empty until the first entry is packed.
    buffers: Vec<Buffer>,
    /// The serial number of the latest pack.
    serial: PackSerial,
    keys: PackKeys,
    /// A buffer for the entry being added.
    entry: Vec<u8>,
    /// The size of the last entry in bytes.
    last: usize,
    /// The partitions and slots of entries that are added as a group.
    near: Vec<(u16, Option<u32>)>,
    /// The partitions with entries in the snapshot.
    used: Vec<u16>,
    /// The partitions with full buffers.
    full: Vec<u16>,
    /// The total number of entries.
    entries: u64,
}

/// The number of packs of a snapshot, by partition.
pub(crate) type PackCounts = Vec<(u16, u32)>;

impl DeltaBlocks {
    /// The maximum number of entries added as a group. Their target buffers are touched first, so
    /// that cache misses overlap.
    pub(crate) const TOGETHER: usize = 32;

    /// Discards all packed entries for a new snapshot.
    pub(crate) fn clear(&mut self) {
        for partition in self.used.drain(..) {
            let buffer = &mut self.buffers[usize::from(partition)];
            buffer.empty(self.serial.next());
            (buffer.written, buffer.is_used) = (0, false);
        }
        self.full.clear();
        self.entries = 0;
    }

    /// Returns the number of packed entries.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns true if no buffer is full.
    pub(crate) fn has_room(&self) -> bool {
        self.full.is_empty()
    }

    /// Returns the number of entries to add as a group, given the size of the last one.
    pub(crate) fn together(&self) -> usize {
        match self.last {
            0 => 1,
            bytes => (TOGETHER_BYTES / bytes).clamp(1, Self::TOGETHER),
        }
    }

    /// Sets the number of slots in use.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.keys.grow(slots);
    }

    /// Removes the notes about the key at a slot, which is about to be reused.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.keys.forget(slot);
    }

    /// Adds entries of a table, which may be pending: `accs` with the `key` of each index, and its
    /// slot if a closed slice contains the key. Returns the number of bytes added.
    ///
    /// # Errors
    /// Those of the codec. Entries after the failed one have not been added.
    pub(crate) fn add_all<'e, K: Key + 'e, A>(
        &mut self,
        kept: &StateCodecs<K, A>,
        of: Group,
        accs: &[A],
        (key, slots): (impl Fn(usize) -> &'e K, impl Iterator<Item = Option<u32>>),
    ) -> Result<usize> {
        self.make_buffers();
        self.near.clear();
        for (at, slot) in slots.enumerate() {
            let of_key = || place_of_key(key(at));
            let partition = match slot {
                Some(slot) => self.keys.partition(slot, of_key),
                None => of_key(),
            };
            self.near.push((partition, slot));
        }
        self.touch();
        accs.iter().enumerate().try_fold(0, |bytes, (at, acc)| {
            Ok(bytes + self.add_to(self.near[at], kept, of, (|| key(at), acc))?)
        })
    }

    /// Adds the entry of a key of a table, which may be pending. Returns the number of bytes added.
    ///
    /// # Errors
    /// Those of the codec. Nothing has been added.
    pub(crate) fn add<K: Key, A>(
        &mut self,
        kept: &StateCodecs<K, A>,
        of: Group,
        key: &K,
        acc: &A,
    ) -> Result<usize> {
        self.make_buffers();
        self.add_new((place_of_key(key), None), kept, of, (key, acc))
    }

    fn make_buffers(&mut self) {
        if self.buffers.is_empty() {
            let buffers = std::iter::repeat_with(|| Buffer::new(self.serial.next()));
            self.buffers = buffers.take(PARTITION_COUNT as usize).collect();
        }
    }

    /// Loads the memory of the next entries into the cache.
    fn touch(&self) {
        let touched = self.near.iter();
        let touched = touched.map(|(it, _)| self.buffers[usize::from(*it)].touch());
        std::hint::black_box(touched.fold(0, |sum, byte| sum ^ byte));
    }

    /// Adds the entry of a key of a table. The key may have a slot in closed slices.
    #[inline]
    fn add_to<'e, K: Key + 'e, A>(
        &mut self,
        (partition, slot): (u16, Option<u32>),
        kept: &StateCodecs<K, A>,
        of: Group,
        (key, acc): (impl Fn() -> &'e K, &A),
    ) -> Result<usize> {
        let buffer = &mut self.buffers[usize::from(partition)];
        let before = buffer.len();
        let noted = slot.and_then(|slot| self.keys.at(slot));
        if let Some(noted) = noted.filter(|it| it.pack == buffer.serial) {
            match kept.integer_state(acc) {
                Some(integer) if integer.of() as u8 == noted.kind => {
                    if buffer.group != Some(of) {
                        self.entry.clear();
                        put_before(&mut self.entry, (false, buffer.group), of);
                        buffer.append(&self.entry);
                        buffer.group = Some(of);
                    }
                    let magnitudes = (noted.magnitude, integer.magnitude());
                    if buffer.add_small(noted.number, magnitudes) {
                        noted.magnitude = integer.magnitude();
                        return Ok(self.added(partition, before));
                    }
                }
                None if noted.kind == 0 => {
                    self.entry.clear();
                    let again = (of, noted.number, acc);
                    put_reference(&mut self.entry, buffer.group, kept, again)?;
                    buffer.append(&self.entry);
                    buffer.group = Some(of);
                    return Ok(self.added(partition, before));
                }
                _ => {}
            }
        }
        self.add_new((partition, slot), kept, of, (key(), acc))
    }

    /// Works like [`add_to`](Self::add_to) for a key that is not in the pack, or with an
    /// accumulator of another kind.
    fn add_new<K: Key, A>(
        &mut self,
        (partition, slot): (u16, Option<u32>),
        kept: &StateCodecs<K, A>,
        of: Group,
        (key, acc): (&K, &A),
    ) -> Result<usize> {
        let buffer = &mut self.buffers[usize::from(partition)];
        let before = buffer.len();
        let behind = (before == 0, buffer.group);
        self.entry.clear();
        let (kind, integer) = put_entry(&mut self.entry, behind, kept, (of, key, acc))?;
        buffer.append(&self.entry);
        buffer.group = Some(of);
        if let Some(noted) = slot.and_then(|slot| self.keys.at(slot)) {
            noted.record_entry((buffer.serial, buffer.keys), kind, integer);
        }
        buffer.keys += 1;
        if !std::mem::replace(&mut buffer.is_used, true) {
            self.used.push(partition);
        }
        Ok(self.added(partition, before))
    }

    /// Updates the counters after an entry was added to the buffer of a partition, which had
    /// `before` bytes. Returns the number of bytes added.
    #[inline]
    fn added(&mut self, partition: u16, before: usize) -> usize {
        let after = self.buffers[usize::from(partition)].len();
        if before < PACK_BYTES && after >= PACK_BYTES {
            self.full.push(partition);
        }
        self.entries += 1;
        self.last = after - before;
        self.last
    }

    /// Writes a full buffer as a pack of the state with this name. Returns false if no buffer is
    /// full.
    pub(crate) fn write_full(&mut self, at: (&str, u64), chunk: &mut StateChunk) -> Result<bool> {
        let Some(partition) = self.full.pop() else {
            return Ok(false);
        };
        self.write(partition, at, chunk)?;
        Ok(true)
    }

    /// Writes the buffer of the partition at index `place` of the partitions in the snapshot.
    /// Returns false if there is no such partition.
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

    /// Returns true if the snapshot has a partition at index `place`.
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
        buffer.empty(self.serial.next());
        Ok(())
    }

    /// Returns the number of packs written per partition.
    pub(crate) fn counts(&self) -> PackCounts {
        let written = |partition: &u16| self.buffers[usize::from(*partition)].written;
        let counts = self
            .used
            .iter()
            .map(|partition| (*partition, written(partition)));
        counts.filter(|(_, written)| *written > 0).collect()
    }
}

/// Returns the partition of a key.
fn place_of_key(key: &impl Key) -> u16 {
    PartitionId::of(key).index() as u16
}

/// Appends the removal of a pack.
pub(crate) fn write_pack_removed(
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
    use crate::KeyIndex;
    use crate::window::state::delta_format::{place_of, unpack};
    use ardea_core::{RestoredEntry, StateCodec};
    use ardea_state::testing::EvenIntegers;
    use ardea_state::truncated_entry;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// A codec of bytes that refuses long values.
    struct Plain;

    impl StateCodec<Vec<u8>> for Plain {
        fn put(&self, value: &Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
            out.extend_from_slice(value);
            match value.len() {
                40_000.. => Err(truncated_entry()),
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
            String::from_utf8(bytes.to_vec()).map_err(|_| truncated_entry())
        }
    }

    type Entry = (Group, String, Vec<u8>);

    fn kept() -> StateCodecs<String, Vec<u8>> {
        StateCodecs::new(Arc::new(Plain), Arc::new(Plain))
    }

    fn written(packs: &mut DeltaBlocks) -> StateChunk {
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
            let (mut packs, mut put) = (DeltaBlocks::default(), BTreeSet::new());
            let mut chunk = StateChunk::default();
            for (n, (slice, number, is_pending, key, acc)) in rounds.into_iter().enumerate() {
                let (key, acc) = (format!("{n:0>key$}"), vec![7; acc]);
                let of = ((slice, number), is_pending);
                packs.add(&kept(), of, &key, &acc).unwrap();
                // A failed entry leaves nothing behind.
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
        let kept = StateCodecs::<u64, u64>::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers));
        let of_one = |key: &u64| PartitionId::of(key).index() == 7;
        let keys: Vec<u64> = (0..).filter(of_one).take(9).collect();
        let (mut packs, mut chunk) = (DeltaBlocks::default(), StateChunk::default());
        let mut put = BTreeSet::new();
        for slice in 0..1_000_i64 {
            let of = ((slice / 3, 0), slice % 3 == 0);
            let accs: Vec<u64> = (0..9).map(|n| (slice as u64 * 9 + n) << (n * 5)).collect();
            let slots = keys.iter().map(|_| None);
            packs
                .add_all(&kept, of, &accs, (|at| &keys[at], slots))
                .unwrap();
            put.extend(keys.iter().zip(accs).map(|(key, acc)| (of, *key, acc)));
            while packs.write_full(("s", 5), &mut chunk).unwrap() {}
        }
        assert_eq!(packs.entries(), 9_000);
        assert!(packs.write_at(0, ("s", 5), &mut chunk).unwrap());
        assert!(chunk.len() > 2);
        assert!(integers(&mut packs, chunk) == put);
    }

    /// Returns the integers in the packs and the chunk. Even and odd ones are written in two ways.
    fn integers(packs: &mut DeltaBlocks, mut chunk: StateChunk) -> BTreeSet<(Group, u64, u64)> {
        for written in &written(packs) {
            chunk.push(written).unwrap();
        }
        let kept = StateCodecs::<u64, u64>::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers));
        let mut read = BTreeSet::new();
        for written in &chunk {
            let entry = RestoredEntry {
                state: written.state,
                partition: written.partition,
                key: written.key,
                value: written.value.unwrap(),
            };
            let take = |of, key, acc| {
                assert!(read.insert((of, key, acc)), "{of:?} {key} {acc}");
                Ok(())
            };
            unpack(&kept, &entry, take).unwrap();
        }
        read
    }

    proptest! {
        #[test]
        fn reused_slots_restore_the_right_keys(
            rounds in prop::collection::vec(
                (0i64..5, prop::collection::vec((0u32..9, any::<u64>(), any::<bool>()), 1..30), 0u32..40, (any::<bool>(), any::<bool>())), 0..40
            ),
        ) {
            let kept = StateCodecs::<u64, u64>::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers));
            // Few partitions, so that each pack has many keys.
            let mut fresh = (0u64..).filter(|key| PartitionId::of(key).index() < 2);
            let mut index = KeyIndex::default();
            for _ in 0..9 {
                index.insert(fresh.next().unwrap());
            }
            let (mut packs, mut chunk, mut put) = (DeltaBlocks::default(), StateChunk::default(), BTreeSet::new());
            packs.grow(index.slots());
            for (n, (slice, entries, replaced, (is_open, ends))) in (0u32..).zip(rounds) {
                // Each table has a key once.
                let of = ((slice, n), false);
                let mut slots = BTreeSet::new();
                let entries = entries.into_iter().filter(|(slot, ..)| slots.insert(*slot));
                let (slots, accs): (Vec<u32>, Vec<u64>) = entries.map(|(slot, acc, is_small)| (slot, if is_small { acc % 300 } else { acc })).unzip();
                // Some keys of an open slice are in no closed one.
                let known = slots.iter().map(|slot| Some(*slot).filter(|slot| !is_open || slot % 3 > 0));
                packs.add_all(&kept, of, &accs, (|at| index.key(slots[at]), known)).unwrap();
                put.extend(slots.iter().zip(accs).map(|(slot, acc)| (of, *index.key(*slot), acc)));
                if replaced < 9 {
                    index.remove(replaced);
                    packs.forget(replaced);
                    let key = fresh.next().unwrap();
                    prop_assert_eq!(index.insert(key), replaced);
                    let beside = ((slice, n), true);
                    packs.add(&kept, beside, &key, &7).unwrap();
                    put.insert((beside, key, 7));
                }
                if ends {
                    let mut place = 0;
                    while packs.write_at(place, ("s", 5), &mut chunk).unwrap() {
                        place += 1;
                    }
                }
            }
            prop_assert_eq!(packs.entries(), put.len() as u64);
            prop_assert_eq!(integers(&mut packs, chunk), put);
            packs.clear();
            let again = (|_| index.key(3), [Some(3)].into_iter());
            packs.add_all(&kept, ((1, 1), false), &[8], again).unwrap();
            let all = integers(&mut packs, StateChunk::default());
            prop_assert_eq!(all, BTreeSet::from([(((1, 1), false), *index.key(3), 8)]));
        }
    }

    #[test]
    fn keys_that_stand_in_a_pack_take_few_bytes_there() {
        let kept = StateCodecs::<u64, u64>::new(Arc::new(EvenIntegers), Arc::new(EvenIntegers));
        let (mut packs, mut index) = (DeltaBlocks::default(), KeyIndex::default());
        let slots: Vec<u32> = (0..2_000u64).map(|key| index.insert(key << 33)).collect();
        packs.grow(index.slots());
        let mut bytes = 0;
        for slice in 0..10 {
            let accs = vec![10_000 + 20 * slice as u64; slots.len()];
            let of = ((slice, 0), false);
            let all = (|at| index.key(slots[at]), slots.iter().copied().map(Some));
            bytes = packs.add_all(&kept, of, &accs, all).unwrap();
        }
        // Groups have three bytes for about two keys.
        assert!(bytes < 2_000 * 4, "{bytes}");
    }
}
