//! The ranges of a worker, by stage.

use ardea_core::MicroBatch;

use super::inputs::{InputTracker, LocalInput};
use crate::figures::RangeFigures;
use crate::message::BatchNotice;
use crate::placement::{PlacementVersion, RangeId, RangePlacement};
use crate::stage_graph::{StageExchange, StageGraph, StageId};
use ardea_coordination::packing::ContainerId;

/// The state of a range on its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeState {
    /// Its state has not arrived yet.
    Arriving,
    /// No task of the range runs.
    Idle,
    /// The task of the micro-batch `next` runs.
    Running,
}

/// A range of this worker. Its inactive tasks are those of the micro-batches from `next` to the
/// last planned one: they need no memory of their own.
#[derive(Debug)]
pub(super) struct LocalRange {
    pub(super) range: u32,
    pub(super) next: MicroBatch,
    pub(super) state: RangeState,
    /// The version of the placement since which the range is here.
    pub(super) since: PlacementVersion,
    /// The last micro-batch that was not run here: kept outputs begin with the next.
    pub(super) began: MicroBatch,
    /// The last micro-batch that may have been run elsewhere before.
    pub(super) rerun_through: MicroBatch,
    pub(super) figures: RangeFigures,
    pub(super) inputs: Vec<InputTracker>,
    /// Notices that wait for earlier micro-batches, which another worker sends again.
    pub(super) held: Vec<BatchNotice>,
}

/// The most notices of a range that wait for others.
const MAX_HELD: usize = 1 << 16;

impl LocalRange {
    /// Creates a range whose state contains the micro-batches up to `after`.
    pub(super) fn new(
        inputs: &[LocalInput],
        at: RangeId,
        after: MicroBatch,
        since: PlacementVersion,
    ) -> Self {
        LocalRange {
            range: at.range,
            next: after.next(),
            state: RangeState::Arriving,
            since,
            began: after,
            rerun_through: after,
            figures: RangeFigures::zero(at),
            inputs: LocalInput::trackers(inputs, at.range, after),
            held: Vec::new(),
        }
    }

    /// Returns the last micro-batch that was run.
    pub(super) fn ended(&self) -> MicroBatch {
        MicroBatch(self.next.0.saturating_sub(1))
    }

    /// Returns true if a notice is about data of this range.
    pub(super) fn is_concerned(&self, notice: &BatchNotice) -> bool {
        match notice.only {
            Some(only) => only == self.range,
            None => notice.version >= self.since,
        }
    }

    /// Records a notice; returns the number of duplicates in it, and false if too many notices wait
    /// for one that is missing.
    pub(super) fn record(&mut self, notice: &BatchNotice) -> (u64, bool) {
        let mut duplicates = 0;
        let is_recorded = self.record_one(notice, &mut duplicates);
        if !is_recorded {
            let has_room = self.held.len() < MAX_HELD;
            if has_room {
                self.held.push(*notice);
            }
            return (duplicates, has_room);
        }
        // Each recorded notice may be the one that others wait for.
        let mut has_recorded = !self.held.is_empty();
        while has_recorded {
            let held = std::mem::take(&mut self.held);
            let before = held.len();
            for notice in held {
                if !self.record_one(&notice, &mut duplicates) {
                    self.held.push(notice);
                }
            }
            has_recorded = !self.held.is_empty() && self.held.len() < before;
        }
        (duplicates, true)
    }

    fn record_one(&mut self, notice: &BatchNotice, duplicates: &mut u64) -> bool {
        let mut inputs = self.inputs.iter_mut();
        let input = inputs.find(|input| input.producer() == notice.producer);
        match input.map(|input| input.record(notice)) {
            Some(Ok(count)) => *duplicates += count,
            Some(Err(_)) => return false,
            None => {}
        }
        true
    }

    /// Returns true if the task of the next micro-batch has all its inputs.
    pub(super) fn is_ready(&self, planned: MicroBatch) -> bool {
        self.state == RangeState::Idle
            && self.next <= planned
            && self
                .inputs
                .iter()
                .all(|input| input.complete() >= self.next)
    }
}

/// A stage that consumes the output of another.
#[derive(Debug)]
pub(super) struct ConsumerEdge {
    pub(super) stage: StageId,
    pub(super) exchange: StageExchange,
    /// The workers that have ranges of the consuming stage.
    pub(super) workers: Vec<ContainerId>,
}

/// The part of a stage that runs on this worker.
#[derive(Debug)]
pub(super) struct LocalStage {
    pub(super) id: StageId,
    pub(super) inputs: Vec<LocalInput>,
    /// The last planned micro-batch.
    pub(super) planned: MicroBatch,
    /// The last micro-batch of which all own ranges together were reported to the consumers of a
    /// shuffle.
    pub(super) notified: MicroBatch,
    /// The own ranges, in ascending order.
    pub(super) own: Vec<LocalRange>,
    /// The own ranges as runs of adjacent ones: first and number.
    pub(super) runs: Vec<(u32, u32)>,
    pub(super) consumers: Vec<ConsumerEdge>,
}

impl LocalStage {
    pub(super) fn new(graph: &StageGraph, id: StageId, after: MicroBatch) -> Self {
        let edge = |(stage, exchange)| ConsumerEdge {
            stage,
            exchange,
            workers: Vec::new(),
        };
        LocalStage {
            id,
            inputs: LocalInput::all_of(graph, id),
            planned: after,
            notified: after,
            own: Vec::new(),
            runs: Vec::new(),
            consumers: graph.consumers(id).map(edge).collect(),
        }
    }

    pub(super) fn position(&self, range: u32) -> Option<usize> {
        self.own.binary_search_by_key(&range, |own| own.range).ok()
    }

    /// Returns the last micro-batch that all own ranges have ended; `None` without ranges.
    pub(super) fn ended(&self) -> Option<MicroBatch> {
        self.own.iter().map(LocalRange::ended).min()
    }

    /// Adds a range, in place of an earlier one with the same number.
    pub(super) fn add(&mut self, range: LocalRange) {
        if self.own.is_empty() {
            self.notified = range.began;
        }
        match self.own.binary_search_by_key(&range.range, |own| own.range) {
            Ok(position) => self.own[position] = range,
            Err(position) => self.own.insert(position, range),
        }
    }

    /// Updates what follows from the placement.
    pub(super) fn refresh(&mut self, placement: &RangePlacement) {
        self.runs.clear();
        for own in &self.own {
            match self.runs.last_mut() {
                Some((first, count)) if *first + *count == own.range => *count += 1,
                _ => self.runs.push((own.range, 1)),
            }
        }
        for edge in &mut self.consumers {
            edge.workers = placement.stage(edge.stage).to_vec();
            edge.workers.sort_unstable();
            edge.workers.dedup();
        }
    }
}

/// A range that was handed over. Its kept outputs stay at the worker which has made them.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerRange {
    pub(super) at: RangeId,
    /// The last micro-batch that was not run here.
    pub(super) began: MicroBatch,
    /// The last micro-batch that was run here.
    pub(super) through: MicroBatch,
}
