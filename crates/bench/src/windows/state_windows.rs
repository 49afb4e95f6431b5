//! Windows whose counts are in the state backend: one accumulator for each key and slice.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ardea::state::AggregatingState;
use ardea_aggregate::{Count, count};
use ardea_core::{
    Checkpointed, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Timestamp,
    Watermark,
};
use ardea_operators::{Firing, WindowResult};
use foldhash::fast::FixedState;

use super::{SLIDE, SLIDES_PER_WINDOW};

/// The length of a slice in microseconds.
const SLICE_MICROS: i64 = SLIDE.as_micros() as i64;

/// Processor that counts keys in sliding windows. Running totals are not part of its state, as in
/// the window operator.
pub(super) struct StateWindowsP {
    /// The count of each key and slice.
    counts: AggregatingState<(u64, i64), u64, Count>,
    /// The keys of each slice.
    slices: BTreeMap<i64, Vec<u64>>,
    /// The first slice that is not closed.
    next: i64,
    /// The counts of the last window.
    totals: HashMap<u64, u64, FixedState>,
    results: VecDeque<WindowResult<u64, u64>>,
}

impl StateWindowsP {
    pub(super) fn new() -> Self {
        StateWindowsP {
            counts: AggregatingState::checkpointed("slices", count()),
            slices: BTreeMap::new(),
            next: 0,
            totals: HashMap::default(),
            results: VecDeque::new(),
        }
    }

    /// Adds a closed slice to the totals, emits them, and removes the first slice of the window.
    fn slide(&mut self, slice: i64) {
        for key in self.slices.get(&slice).into_iter().flatten() {
            let count = self.counts.result(&(*key, slice)).unwrap_or(0);
            *self.totals.entry(*key).or_default() += count;
        }
        let end = Timestamp::from_micros((slice + 1) * SLICE_MICROS);
        let start =
            Timestamp::from_micros(end.as_micros() - SLICE_MICROS * i64::from(SLIDES_PER_WINDOW));
        let results = self.totals.iter().map(|(&key, &value)| WindowResult {
            start,
            end,
            key,
            value,
            firing: Firing::OnTime,
        });
        self.results.extend(results);
        let first = slice + 1 - i64::from(SLIDES_PER_WINDOW);
        for key in self.slices.remove(&first).into_iter().flatten() {
            let counts = self.counts.accumulators();
            let count = counts
                .find(&(key, first))
                .and_then(|slot| counts.remove(slot));
            if let Some(total) = self.totals.get_mut(&key) {
                *total -= count.unwrap_or(0);
                if *total == 0 {
                    self.totals.remove(&key);
                }
            }
        }
    }
}

impl Processor for StateWindowsP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.counts.accumulators().open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        for (key, time) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            let slice = time.as_micros().div_euclid(SLICE_MICROS);
            let before = self.counts.accumulators().len();
            self.counts.add(&(key, slice), &key)?;
            if self.counts.accumulators().len() > before {
                self.slices.entry(slice).or_default().push(key);
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<WindowResult<u64, u64>>(Ordinal::FIRST)?;
        if self.results.is_empty() && (self.next + 1) * SLICE_MICROS <= watermark.0.as_micros() {
            let slice = self.next;
            self.next += 1;
            self.slide(slice);
        }
        let count = lane.room().min(self.results.len());
        for result in self.results.drain(..count) {
            let time = result.end;
            lane.push(result, time);
        }
        Ok(Progress {
            made: true,
            done: self.results.is_empty()
                && (self.next + 1) * SLICE_MICROS > watermark.0.as_micros(),
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self.counts.accumulators())
    }
}
