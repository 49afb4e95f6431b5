//! What was dropped of slices, until the cut that is being written has what it needs of it.

use std::collections::VecDeque;

use ardea_core::{Key, Progress};

use super::frozen_slices::{FrozenSlices, Part};
use super::open_slices::{OpenSlices, SliceTable};
use crate::keyed::Stamps;

/// How many places of keys a call frees, at the most: each is somewhere else in memory.
const FREED_PER_CALL: usize = 512;

/// Tables and parts that were dropped, the earliest first, each with the generation in which.
pub(super) struct GoneSlices<K, A>(VecDeque<(u32, Body<K, A>)>);

/// A table or part that was dropped.
pub(super) enum Body<K, A> {
    Table(SliceTable<K, A>),
    Part(Part<A>),
}

/// How many parts, those that are gone among them, hold each key, by its slot.
#[derive(Default)]
pub(super) struct HeldKeys(Vec<u32>);

impl<K: Key, A> GoneSlices<K, A> {
    pub(super) fn push(&mut self, gone_in: u32, body: Body<K, A>) {
        self.0.push_back((gone_in, body));
    }

    /// What is gone, with the generation in which and where it is among them, from this place on.
    pub(super) fn from(
        &mut self,
        place: usize,
    ) -> impl Iterator<Item = (usize, (u32, &mut Body<K, A>))> {
        let gone = self.0.iter_mut().enumerate().skip(place);
        gone.map(|(at, (gone_in, body))| (at, (*gone_in, body)))
    }

    /// No cut needs what is in them any more.
    pub(super) fn drop_accs(&mut self) {
        self.0.iter_mut().for_each(|(_, body)| body.drop_accs());
    }

    /// Forgets the first ones, but for what is needed that was dropped in a generation, so much in a call; `let_go` hears of each slot that a part holds no more. Also says
    /// how many went.
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
            if let Body::Part(part) = body {
                let keep = part.slots.len().saturating_sub(left);
                left -= part.slots.len() - keep;
                part.slots[keep..].iter().copied().for_each(&mut let_go);
                part.slots.truncate(keep);
                if keep > 0 {
                    return (went, Progress::MADE);
                }
            }
            match self.0.pop_front() {
                Some((_, Body::Part(part))) => frozen.recycle(part),
                Some((_, Body::Table(table))) => open.recycle(table),
                None => {}
            }
            went += 1;
        }
        (went, Progress::DONE)
    }
}

impl<K, A> Default for GoneSlices<K, A> {
    fn default() -> Self {
        GoneSlices(VecDeque::new())
    }
}

impl<K: Key, A> Body<K, A> {
    pub(super) fn stamps(&self) -> &Stamps {
        match self {
            Body::Table(table) => &table.stamps,
            Body::Part(part) => &part.stamps,
        }
    }

    pub(super) fn drop_accs(&mut self) {
        match self {
            Body::Table(table) => drop(table.keys.drain_values()),
            Body::Part(part) => part.accs.clear(),
        }
    }
}

impl HeldKeys {
    /// A part holds these keys; so many slots are in use.
    pub(super) fn hold(&mut self, slots: &[u32], slots_in_use: usize) {
        if self.0.len() < slots_in_use {
            self.0.resize(slots_in_use, 0);
        }
        for slot in slots {
            self.0[*slot as usize] += 1;
        }
    }

    /// A part does not hold a key any more. Whether none does.
    pub(super) fn let_go(&mut self, slot: u32) -> bool {
        let held = &mut self.0[slot as usize];
        *held -= 1;
        *held == 0
    }
}
