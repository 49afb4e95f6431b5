//! The inputs of a range: the micro-batches that its producers have ended.

use std::collections::VecDeque;

use ardea_core::MicroBatch;

use crate::message::BatchNotice;
use crate::stage_graph::{StageGraph, StageId, StageInput};

/// The most micro-batches by which one producer may be ahead of another.
const MAX_BATCHES_AHEAD: u64 = 1 << 20;

/// A micro-batch of a producer before those of the notice has not arrived.
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

    fn tracker(self, range: u32, after: MicroBatch) -> InputTracker {
        let (first, count) = self.producers_of(range);
        InputTracker {
            producer: self.input.from,
            first,
            last: vec![after; count as usize],
            complete: after,
            counts: VecDeque::new(),
        }
    }

    /// Creates the inputs of a range whose state contains the micro-batches up to `after`.
    pub(super) fn trackers(
        inputs: &[LocalInput],
        range: u32,
        after: MicroBatch,
    ) -> Vec<InputTracker> {
        let inputs = inputs.iter();
        inputs.map(|input| input.tracker(range, after)).collect()
    }
}

/// An input of a range. A notice costs a few instructions for each producer in it; a micro-batch
/// without notices costs nothing.
#[derive(Debug)]
pub(super) struct InputTracker {
    producer: StageId,
    /// The first producer for which the range waits.
    first: u32,
    /// The last ended micro-batch of each of these producers.
    last: Vec<MicroBatch>,
    /// The last micro-batch that all of them have ended.
    complete: MicroBatch,
    /// The number of producers that have ended the micro-batches after `complete`.
    counts: VecDeque<u32>,
}

impl InputTracker {
    pub(super) fn producer(&self) -> StageId {
        self.producer
    }

    /// Returns the last micro-batch that all producers have ended.
    pub(super) fn complete(&self) -> MicroBatch {
        self.complete
    }

    /// Records a notice; returns the number of duplicates in it.
    ///
    /// # Errors
    /// If micro-batches before those of the notice are missing. Nothing is recorded then.
    pub(super) fn record(&mut self, notice: &BatchNotice) -> Result<u64, NoticeGap> {
        let mut duplicates = 0;
        let end = self.first.saturating_add(self.last.len() as u32);
        let from = notice.first.max(self.first);
        let to = notice.first.saturating_add(notice.count).min(end);
        if from >= to {
            return Ok(0);
        }
        let concerned = (from - self.first) as usize..(to - self.first) as usize;
        let producers = &mut self.last[concerned];
        let most = self.complete.0.saturating_add(MAX_BATCHES_AHEAD);
        if notice.through.0 > most || producers.iter().any(|last| notice.from > last.next()) {
            return Err(NoticeGap);
        }
        for last in producers {
            let next = last.next();
            duplicates += next
                .0
                .min(notice.through.0 + 1)
                .saturating_sub(notice.from.0);
            for batch in next.0..=notice.through.0 {
                let position = (batch - self.complete.0 - 1) as usize;
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
            + self.last.capacity() * size_of::<MicroBatch>()
            + self.counts.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchStage, PlacementVersion, StageExchange};
    use ardea_coordination::control::Generation;

    fn notice(first: u32, count: u32, from: u64, through: u64) -> BatchNotice {
        BatchNotice {
            generation: Generation(1),
            version: PlacementVersion(1),
            producer: StageId(0),
            first,
            count,
            from: MicroBatch(from),
            through: MicroBatch(through),
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
        LocalInput::trackers(&inputs, range, MicroBatch(10)).remove(0)
    }

    #[test]
    fn a_micro_batch_is_complete_when_the_last_producer_has_ended_it() {
        let mut input = input(StageExchange::Shuffle, 4, 2, 0);
        assert_eq!(input.record(&notice(0, 2, 11, 11)), Ok(0));
        assert_eq!(input.record(&notice(3, 1, 11, 13)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(10));
        assert_eq!(input.record(&notice(2, 1, 11, 12)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(11));
        assert_eq!(input.record(&notice(0, 2, 12, 13)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(12));
    }

    #[test]
    fn duplicates_by_producer_and_micro_batch_are_counted_and_have_no_effect() {
        let mut input = input(StageExchange::Shuffle, 2, 2, 0);
        assert_eq!(input.record(&notice(0, 1, 11, 13)), Ok(0));
        assert_eq!(input.record(&notice(0, 1, 9, 10)), Ok(2));
        assert_eq!(input.record(&notice(0, 2, 12, 12)), Err(NoticeGap));
        assert_eq!(input.record(&notice(0, 2, 11, 14)), Ok(3));
        assert_eq!(input.complete(), MicroBatch(14));
    }

    #[test]
    fn a_refused_notice_records_nothing() {
        let mut input = input(StageExchange::Shuffle, 2, 2, 0);
        assert_eq!(input.record(&notice(0, 1, 11, 11)), Ok(0));
        // The second producer has not ended micro-batch 11 yet.
        assert_eq!(input.record(&notice(0, 2, 12, 12)), Err(NoticeGap));
        assert_eq!(input.record(&notice(1, 1, 11, 11)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(11));
        assert_eq!(input.record(&notice(0, 2, 12, 12)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(12));
    }

    #[test]
    fn a_notice_of_the_far_future_is_refused() {
        let mut input = input(StageExchange::Shuffle, 2, 2, 0);
        let far = notice(0, 2, 11, u64::MAX);
        assert_eq!(input.record(&far), Err(NoticeGap));
        assert_eq!(input.record(&notice(5, 7, 11, u64::MAX)), Ok(0));
    }

    #[test]
    fn a_tree_reducer_waits_for_its_two_inputs_and_ignores_others() {
        let mut input = input(StageExchange::Tree { arity: 2 }, 16, 8, 3);
        assert_eq!(input.record(&notice(0, 6, 11, 11)), Ok(0));
        assert_eq!(input.record(&notice(6, 1, 11, 11)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(10));
        assert_eq!(input.record(&notice(7, 1, 11, 11)), Ok(0));
        assert_eq!(input.complete(), MicroBatch(11));
    }
}
