//! A scan of open tables and frozen parts that packs the entries of a snapshot.

use std::ops::Range;

use ardea_core::{Key, Result};
use ardea_state::{ChangeStamps, SnapshotPoint, StampScan, StateCodecs};

use super::delta_blocks::DeltaBlocks;
use super::frozen_slices::Part;
use super::is_pending;
use super::open_slices::SliceTable;
use crate::KeyIndex;

/// The approximate limits of bytes and entries packed per call, which take about ten microseconds.
const BYTES_PER_CALL: usize = 4 * 1024;
const ENTRIES_PER_CALL: usize = 1024;

/// Packs entries of a snapshot within the limits of a call.
pub(super) struct PackCall<'a, K, A> {
    kept: &'a StateCodecs<K, A>,
    packs: &'a mut DeltaBlocks,
    sweep: &'a mut StampScan,
    /// The bytes packed in this call.
    bytes: usize,
    entries: usize,
}

impl<'a, K: Key, A> PackCall<'a, K, A> {
    pub(super) fn new(
        kept: &'a StateCodecs<K, A>,
        packs: &'a mut DeltaBlocks,
        sweep: &'a mut StampScan,
    ) -> Self {
        PackCall {
            kept,
            packs,
            sweep,
            bytes: 0,
            entries: 0,
        }
    }

    /// Returns the snapshot in progress.
    pub(super) fn snapshot(&self) -> SnapshotPoint {
        self.sweep.snapshot
    }

    /// Packs the snapshot's entries of a table in groups. `add` adds the entries at a range of
    /// positions and returns the number of bytes. Returns true if all are packed.
    fn pack(
        &mut self,
        stamps: &mut ChangeStamps,
        add: impl Fn(&mut DeltaBlocks, Range<usize>) -> Result<usize>,
    ) -> Result<bool> {
        let (packs, bytes) = (&mut *self.packs, &mut self.bytes);
        let entries = &mut self.entries;
        stamps.sweep(self.sweep, DeltaBlocks::TOGETHER, |places| {
            let together = places.len().min(packs.together());
            *bytes += add(packs, places.start..places.start + together)?;
            *entries += together;
            let goes_on = *bytes < BYTES_PER_CALL && *entries < ENTRIES_PER_CALL;
            Ok((together, goes_on && packs.has_room()))
        })
    }
}

impl<K: Key, A> SliceTable<K, A> {
    pub(super) fn pack(
        &mut self,
        index: &KeyIndex<K>,
        call: &mut PackCall<'_, K, A>,
    ) -> Result<bool> {
        let of = (self.id(), is_pending(self.id()));
        let (kept, keys, accs) = (call.kept, self.keys.keys(), self.keys.values());
        call.pack(&mut self.stamps, |packs, places| {
            let keys = &keys[places.clone()];
            let slots = keys.iter().map(|key| index.find(key));
            packs.add_all(kept, of, &accs[places], (|at| &keys[at], slots))
        })
    }
}

impl<A> Part<A> {
    pub(super) fn pack<K: Key>(
        &mut self,
        index: &KeyIndex<K>,
        call: &mut PackCall<'_, K, A>,
    ) -> Result<bool> {
        let of = (self.id(), false);
        let (kept, slots, accs) = (call.kept, &self.slots, &self.accs);
        call.pack(&mut self.stamps, |packs, places| {
            let slots = &slots[places.clone()];
            let key = |at: usize| index.key(slots[at]);
            let all = slots.iter().map(|slot| Some(*slot));
            packs.add_all(kept, of, &accs[places], (key, all))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Epoch, SnapshotRequest};
    use ardea_state::SnapshotLog;
    use ardea_state::testing::EightBytes;
    use std::borrow::Cow;
    use std::sync::Arc;

    #[test]
    fn a_call_packs_no_more_of_many_small_tables_than_of_one_large_one() {
        let kept = StateCodecs::new(Arc::new(EightBytes), Arc::new(EightBytes));
        let mut log = SnapshotLog::default();
        let table = |slice| {
            let mut table = SliceTable::new((slice, 0));
            table.keys.get_or_insert(Cow::Owned(7), || 1);
            table.stamps.push(&log);
            table
        };
        let mut tables: Vec<SliceTable<u64, u64>> = (0..2_000).map(table).collect();
        log.take_snapshot(SnapshotRequest::full(Epoch(1)));
        let (mut packs, index) = (DeltaBlocks::default(), KeyIndex::default());
        let mut sweep = StampScan {
            snapshot: log.writing().unwrap(),
            left: usize::MAX,
            renews_to: 0,
            renews: 0,
            oldest: u32::MAX,
        };
        let (mut calls, mut at) = (0, 0);
        while at < tables.len() {
            calls += 1;
            let mut call = PackCall::new(&kept, &mut packs, &mut sweep);
            while at < tables.len() && tables[at].pack(&index, &mut call).unwrap() {
                at += 1;
            }
        }
        assert_eq!(packs.entries(), 2_000);
        assert!(calls > 5, "{calls}");
    }
}
