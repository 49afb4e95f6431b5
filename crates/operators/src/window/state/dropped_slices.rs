//! Dropped tables and parts that the snapshot in progress still needs.

use std::collections::VecDeque;

use ardea_core::{Key, Progress};

use super::frozen_slices::{FrozenSlices, Part};
use super::open_slices::{OpenSlices, SliceTable};
use ardea_state::ChangeStamps;

/// The maximum number of key slots freed per call. Each is a cache miss.
const FREED_PER_CALL: usize = 512;

/// Dropped tables and parts, the earliest first, with the generation in which they were dropped.
pub(super) struct DroppedSlices<K, A>(VecDeque<(u32, DroppedBody<K, A>)>);

/// A dropped table or part.
pub(super) enum DroppedBody<K, A> {
    Table(SliceTable<K, A>),
    Part(Part<A>),
}

/// By slot, the number of parts, including dropped ones, that contain its key.
#[derive(Default)]
pub(super) struct KeyReferences(Vec<u32>);

impl<K: Key, A> DroppedSlices<K, A> {
    pub(super) fn push(&mut self, gone_in: u32, body: DroppedBody<K, A>) {
        self.0.push_back((gone_in, body));
    }

    /// Returns the dropped items from index `place` on, with their index and generation.
    pub(super) fn from(
        &mut self,
        place: usize,
    ) -> impl Iterator<Item = (usize, (u32, &mut DroppedBody<K, A>))> {
        let gone = self.0.iter_mut().enumerate().skip(place);
        gone.map(|(at, (gone_in, body))| (at, (*gone_in, body)))
    }

    /// Drops the accumulators, which no snapshot needs any more.
    pub(super) fn drop_accs(&mut self) {
        self.0.iter_mut().for_each(|(_, body)| body.drop_accs());
    }

    /// Releases dropped items from the front, some per call, until `is_needed` returns true for the
    /// generation of one. Calls `let_go` for each slot of a released part. Also returns the number
    /// of released items.
    pub(super) fn release(
        &mut self,
        is_needed: impl Fn(u32) -> bool,
        (open, frozen): (&mut OpenSlices<K, A>, &mut FrozenSlices<A>),
        mut let_go: impl FnMut(u32),
    ) -> (usize, Progress) {
        let (mut left, mut went) = (FREED_PER_CALL, 0);
        while let Some((gone_in, body)) = self.0.front_mut() {
            if is_needed(*gone_in) {
                break;
            }
            if let DroppedBody::Part(part) = body {
                let keep = part.slots.len().saturating_sub(left);
                left -= part.slots.len() - keep;
                part.slots[keep..].iter().copied().for_each(&mut let_go);
                part.slots.truncate(keep);
                if keep > 0 {
                    return (went, Progress::MADE);
                }
            }
            match self.0.pop_front() {
                Some((_, DroppedBody::Part(part))) => frozen.recycle(part),
                Some((_, DroppedBody::Table(table))) => open.recycle(table),
                None => {}
            }
            went += 1;
        }
        (went, Progress::DONE)
    }
}

impl<K, A> Default for DroppedSlices<K, A> {
    fn default() -> Self {
        DroppedSlices(VecDeque::new())
    }
}

impl<K: Key, A> DroppedBody<K, A> {
    pub(super) fn stamps(&self) -> &ChangeStamps {
        match self {
            DroppedBody::Table(table) => &table.stamps,
            DroppedBody::Part(part) => &part.stamps,
        }
    }

    pub(super) fn drop_accs(&mut self) {
        match self {
            DroppedBody::Table(table) => drop(table.keys.drain_values()),
            DroppedBody::Part(part) => part.accs.clear(),
        }
    }
}

impl KeyReferences {
    /// Counts the keys of a part. `slots_in_use` is the number of slots.
    pub(super) fn hold(&mut self, slots: &[u32], slots_in_use: usize) {
        if self.0.len() < slots_in_use {
            self.0.resize(slots_in_use, 0);
        }
        for slot in slots {
            self.0[*slot as usize] += 1;
        }
    }

    /// Counts that a part no longer contains a key. Returns true if no part does.
    pub(super) fn release_key(&mut self, slot: u32) -> bool {
        let held = &mut self.0[slot as usize];
        *held -= 1;
        *held == 0
    }
}
