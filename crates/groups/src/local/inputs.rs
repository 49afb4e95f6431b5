//! The inputs of a range: the epochs that its producers have ended.

use std::collections::VecDeque;

use ardea_core::Epoch;

use crate::message::EpochNotice;
use crate::stage_graph::{StageGraph, StageId, StageInput};

/// The most epochs by which one producer may be ahead of another.
const MAX_EPOCHS_AHEAD: u64 = 1 << 20;

/// An epoch of a producer before those of the notice has not arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoticeGap;

/// An input of a stage, and the number of its producers.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalInput {
    pub(super) input: StageInput,
    pub(super) producers: u32,
}

impl LocalInput {
    /// Returns the inputs of a stage.
    pub(super) fn all_of(graph: &StageGraph, stage: StageId) -> Vec<LocalInput> {
        let inputs = graph.stage(stage).map_or(&[][..], |stage| &stage.inputs);
        let local = |input: &StageInput| LocalInput {
            input: *input,
            producers: graph.stage(input.from).map_or(0, |from| from.ranges),
        };
        inputs.iter().map(local).collect()
    }

    /// Returns the producers for which a range waits: the first, and their number.
    pub(super) fn producers_of(self, range: u32) -> (u32, u32) {
        self.input.exchange.producers_of(range, self.producers)
    }

    fn tracker(self, range: u32, after: Epoch) -> InputTracker {
        let (first, count) = self.producers_of(range);
        InputTracker {
            producer: self.input.from,
            first,
            last: vec![after; count as usize],
            complete: after,
            counts: VecDeque::new(),
        }
    }

    /// Creates the inputs of a range whose state contains the epochs up to `after`.
    pub(super) fn trackers(inputs: &[LocalInput], range: u32, after: Epoch) -> Vec<InputTracker> {
        let inputs = inputs.iter();
        inputs.map(|input| input.tracker(range, after)).collect()
    }
}

/// An input of a range. A notice costs a few instructions for each producer in it; an epoch without
/// notices costs nothing.
#[derive(Debug)]
pub(super) struct InputTracker {
    producer: StageId,
    /// The first producer for which the range waits.
    first: u32,
    /// The last ended epoch of each of these producers.
    last: Vec<Epoch>,
    /// The last epoch that all of them have ended.
    complete: Epoch,
    /// The number of producers that have ended the epochs after `complete`.
    counts: VecDeque<u32>,
}

impl InputTracker {
    pub(super) fn producer(&self) -> StageId {
        self.producer
    }

    /// Returns the last epoch that all producers have ended.
    pub(super) fn complete(&self) -> Epoch {
        self.complete
    }

    /// Records a notice; returns the number of duplicates in it.
    ///
    /// # Errors
    /// If epochs before those of the notice are missing.
    pub(super) fn record(&mut self, notice: &EpochNotice) -> Result<u64, NoticeGap> {
        let mut duplicates = 0;
        let end = self.first.saturating_add(self.last.len() as u32);
        let from = notice.first.max(self.first);
        let to = notice.first.saturating_add(notice.count).min(end);
        for producer in from..to {
            let last = &mut self.last[(producer - self.first) as usize];
            let next = last.next();
            if notice.from > next || notice.through.0 > self.complete.0 + MAX_EPOCHS_AHEAD {
                return Err(NoticeGap);
            }
            duplicates += next
                .0
                .min(notice.through.0 + 1)
                .saturating_sub(notice.from.0);
            for epoch in next.0..=notice.through.0 {
                let position = (epoch - self.complete.0 - 1) as usize;
                if position >= self.counts.len() {
                    self.counts.resize(position + 1, 0);
                }
                self.counts[position] += 1;
            }
            *last = (*last).max(notice.through);
        }
        while self
            .counts
            .front()
            .is_some_and(|count| *count as usize == self.last.len())
        {
            self.counts.pop_front();
            self.complete = self.complete.next();
        }
        Ok(duplicates)
    }

    /// Returns the size of the tracker in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.last.capacity() * size_of::<Epoch>()
            + self.counts.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchStage, PlacementVersion, StageExchange};
    use ardea_coordination::control::Generation;

    fn notice(first: u32, count: u32, from: u64, through: u64) -> EpochNotice {
        EpochNotice {
            generation: Generation(1),
            version: PlacementVersion(1),
            producer: StageId(0),
            first,
            count,
            from: Epoch(from),
            through: Epoch(through),
            consumer: StageId(1),
            only: None,
        }
    }

    fn input(exchange: StageExchange, producers: u32, consumers: u32, range: u32) -> InputTracker {
        let stages = vec![
            BatchStage::source(producers),
            BatchStage::after(StageId(0), exchange, consumers),
        ];
        let graph = StageGraph::new(stages).unwrap();
        let inputs = LocalInput::all_of(&graph, StageId(1));
        LocalInput::trackers(&inputs, range, Epoch(10)).remove(0)
    }

    #[test]
    fn an_epoch_is_complete_when_the_last_producer_has_ended_it() {
        let mut input = input(StageExchange::Shuffle, 4, 2, 0);
        assert_eq!(input.record(&notice(0, 2, 11, 11)), Ok(0));
        assert_eq!(input.record(&notice(3, 1, 11, 13)), Ok(0));
        assert_eq!(input.complete(), Epoch(10));
        assert_eq!(input.record(&notice(2, 1, 11, 12)), Ok(0));
        assert_eq!(input.complete(), Epoch(11));
        assert_eq!(input.record(&notice(0, 2, 12, 13)), Ok(0));
        assert_eq!(input.complete(), Epoch(12));
    }

    #[test]
    fn duplicates_by_producer_and_epoch_are_counted_and_have_no_effect() {
        let mut input = input(StageExchange::Shuffle, 2, 2, 0);
        assert_eq!(input.record(&notice(0, 1, 11, 13)), Ok(0));
        assert_eq!(input.record(&notice(0, 1, 9, 10)), Ok(2));
        assert_eq!(input.record(&notice(0, 2, 12, 12)), Err(NoticeGap));
        assert_eq!(input.record(&notice(0, 2, 11, 14)), Ok(3));
        assert_eq!(input.complete(), Epoch(14));
    }

    #[test]
    fn a_tree_reducer_waits_for_its_two_inputs_and_ignores_others() {
        let mut input = input(StageExchange::Tree { arity: 2 }, 16, 8, 3);
        assert_eq!(input.record(&notice(0, 6, 11, 11)), Ok(0));
        assert_eq!(input.record(&notice(6, 1, 11, 11)), Ok(0));
        assert_eq!(input.complete(), Epoch(10));
        assert_eq!(input.record(&notice(7, 1, 11, 11)), Ok(0));
        assert_eq!(input.complete(), Epoch(11));
    }
}
