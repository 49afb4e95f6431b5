//! Calls with many operations, a bounded number of which are outstanding at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::protocol::{Answer, Operation, Outcome, SequenceSlab};
use ardea_core::{Error, PartitionId, Result};

use crate::node::client::GridClient;
use crate::node::command_queue::{DriverCommand, OperationRequest, Stopped};
use crate::node::request_handle::{Answers, Group, Outcomes, Requester};
use crate::node::send_queue::weight_of_request;

/// Maximum number of outstanding operations of a call, and approximate maximum of their bytes.
const UNDER_WAY: usize = 4096;
const UNDER_WAY_BYTES: usize = 16 << 20;

/// Number of outstanding operations, and of their bytes, from which on answers take longer than a
/// short sleep.
const MANY: usize = 256;
const MANY_BYTES: usize = 256 << 10;

/// Maximum number of operations in one command, and approximate maximum of their bytes. Bounds the
/// delay of other callers.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: usize = 2 << 20;

/// One operation of a call.
struct BatchRequest {
    /// Index within the call.
    which: usize,
    partition: PartitionId,
    operation: Operation,
    bytes: usize,
}

/// Returns the next operations, as many as fit into one command, and their approximate size in
/// bytes.
fn next_few(
    operations: &mut impl Iterator<Item = (usize, Result<(PartitionId, Operation)>)>,
) -> Result<(Vec<BatchRequest>, usize)> {
    let (mut some, mut sum) = (Vec::new(), 0);
    while some.len() < TOGETHER && sum < TOGETHER_BYTES {
        let Some((which, operation)) = operations.next() else {
            break;
        };
        let (partition, operation) = operation?;
        let bytes = weight_of_request(&operation);
        sum += bytes;
        some.push(BatchRequest {
            which,
            partition,
            operation,
            bytes,
        });
    }
    // Sorted by partition for memory locality; the sort is stable, so the order within a partition
    // is kept.
    some.sort_by_cached_key(|wanted| wanted.partition.index());
    Ok((some, sum))
}

/// The outstanding operations of a call, including those that wait for their partition.
#[derive(Default)]
struct Outstanding {
    /// Operations passed to the driver that have not ended.
    ordered: SequenceSlab<OutstandingOperation>,
    count: usize,
    bytes: usize,
    /// True if a write has been among the operations.
    writes: bool,
}

struct OutstandingOperation {
    which: usize,
    partition: PartitionId,
    bytes: usize,
}

impl Outstanding {
    /// Counts operations as outstanding.
    fn begin(&mut self, some: &[BatchRequest]) {
        self.writes = self.writes || some.iter().any(|wanted| wanted.operation.writes());
        self.count += some.len();
        self.bytes += some.iter().map(|wanted| wanted.bytes).sum::<usize>();
    }

    /// Assigns a number to an operation that is about to be passed to the driver.
    fn ordered(&mut self, wanted: &BatchRequest) -> u64 {
        self.ordered.enter(OutstandingOperation {
            which: wanted.which,
            partition: wanted.partition,
            bytes: wanted.bytes,
        })
    }

    /// Removes an operation that has ended.
    fn ended(&mut self, number: u64) -> Option<OutstandingOperation> {
        let ordered = self.ordered.remove(number)?;
        self.count -= 1;
        self.bytes -= ordered.bytes;
        Some(ordered)
    }

    /// Returns true if `count` more operations with `bytes` bytes exceed the limits, so that others
    /// have to end first.
    fn is_too_much_with(&self, count: usize, bytes: usize) -> bool {
        self.count > 0 && (self.count + count > UNDER_WAY || self.bytes + bytes > UNDER_WAY_BYTES)
    }

    /// Returns true if the caller should sleep rather than poll.
    fn is_much(&self) -> bool {
        self.count >= MANY || self.bytes >= MANY_BYTES
    }
}

/// Operations waiting for an earlier one of the same partition. At most one per partition is
/// outstanding, since a refused operation is retried later and could otherwise be overtaken.
#[derive(Default)]
struct PerPartitionQueue(BTreeMap<PartitionId, VecDeque<BatchRequest>>);

impl PerPartitionQueue {
    /// Returns the operation if none of its partition is outstanding, and queues it otherwise.
    fn now(&mut self, wanted: BatchRequest) -> Option<BatchRequest> {
        if let Some(waiting) = self.0.get_mut(&wanted.partition) {
            waiting.push_back(wanted);
            return None;
        }
        self.0.insert(wanted.partition, VecDeque::new());
        Some(wanted)
    }

    /// Returns the next operation of a partition after one has ended.
    fn after_one_of(&mut self, partition: PartitionId) -> Option<BatchRequest> {
        let next = self.0.get_mut(&partition)?.pop_front();
        if next.is_none() {
            self.0.remove(&partition);
        }
        next
    }
}

/// A call with many operations. It does not end before all writes passed to the driver have ended,
/// so none is carried out after the call has returned.
struct Call<'a> {
    asking: &'a GridClient,
    answers: Arc<Answers>,
    /// Received outcomes that have not been processed.
    outcomes: Outcomes,
    under_way: Outstanding,
    /// Present if the order within each partition matters.
    turns: Option<PerPartitionQueue>,
}

impl GridClient {
    /// Runs all operations, many at a time and in no particular order. Passes each answer with the
    /// index of its operation to `take`, as answers arrive.
    ///
    /// # Errors
    /// The first error. If it is unknown whether another operation was carried out,
    /// [`ErrorCode::OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown) with that error as its
    /// cause.
    pub fn run_all(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        self.check_outside()?;
        Call::of(self, None).run(operations, take)
    }

    /// Runs all operations, many at a time, but those of one partition one after the other.
    ///
    /// # Errors
    /// As [`run_all`](Self::run_all).
    pub fn run_in_partition_order(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
    ) -> Result<()> {
        self.check_outside()?;
        Call::of(self, Some(PerPartitionQueue::default())).run(operations, |_, _| Ok(()))
    }
}

impl<'a> Call<'a> {
    fn of(asking: &'a GridClient, turns: Option<PerPartitionQueue>) -> Self {
        Call {
            asking,
            answers: Arc::default(),
            outcomes: Outcomes::new(),
            under_way: Outstanding::default(),
            turns,
        }
    }

    fn run(
        mut self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let Err(error) = self.work(operations, take) else {
            return Ok(());
        };
        let unknown = self.settle();
        Err(match unknown {
            Some(unknown) if error.code() != unknown.code() => unknown.because(error),
            _ => error,
        })
    }

    fn work(
        &mut self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        mut take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let asking = self.asking;
        let helm = &asking.inner.driver;
        let mut operations = operations.enumerate();
        loop {
            let (some, bytes) = next_few(&mut operations)?;
            if some.is_empty() {
                break;
            }
            while self.under_way.is_too_much_with(some.len(), bytes) {
                helm.wait_at_rest(&self.answers, &mut self.outcomes);
                self.process_outcomes(&mut take)?;
            }
            self.begin(some)?;
            if self.answers.take(&mut self.outcomes) {
                self.process_outcomes(&mut take)?;
            }
        }
        while self.under_way.count > 0 {
            self.wait();
            self.process_outcomes(&mut take)?;
        }
        Ok(())
    }

    fn wait(&mut self) {
        let asking = self.asking;
        let helm = &asking.inner.driver;
        match self.under_way.is_much() {
            true => helm.wait_at_rest(&self.answers, &mut self.outcomes),
            false => helm.wait(&self.answers, &mut self.outcomes),
        }
    }

    fn process_outcomes(
        &mut self,
        take: &mut impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let mut next = Vec::new();
        // One by one, so that the outcomes left after an error are still accounted for.
        while let Some((number, outcome)) = self.outcomes.pop() {
            let Some(ended) = self.under_way.ended(number) else {
                continue;
            };
            let turns = self.turns.as_mut();
            next.extend(turns.and_then(|turns| turns.after_one_of(ended.partition)));
            take(ended.which, self.asking.outcome_to_result(outcome)?)?;
        }
        self.order(next)
    }

    /// Waits until all writes passed to the driver have ended. Returns an error if the outcome of
    /// one is unknown.
    fn settle(&mut self) -> Option<Error> {
        let mut unknown = None;
        while self.under_way.writes {
            for (number, outcome) in self.outcomes.drain(..) {
                let is_unknown = outcome == Outcome::Unknown && unknown.is_none();
                if self.under_way.ended(number).is_some() && is_unknown {
                    unknown = self.asking.outcome_to_result(outcome).err();
                }
            }
            if self.under_way.ordered.is_empty() {
                break;
            }
            self.wait();
        }
        unknown
    }

    fn begin(&mut self, some: Vec<BatchRequest>) -> Result<()> {
        self.under_way.begin(&some);
        let now = match &mut self.turns {
            Some(turns) => some
                .into_iter()
                .filter_map(|wanted| turns.now(wanted))
                .collect(),
            None => some,
        };
        self.order(now)
    }

    fn order(&mut self, some: Vec<BatchRequest>) -> Result<()> {
        if some.is_empty() {
            return Ok(());
        }
        let asking = self.asking;
        let inner = &asking.inner;
        let room = inner.room.take(some.iter().map(|it| it.bytes).sum());
        let group = Arc::new(Group::new(&self.answers, room));
        let ask = |wanted: BatchRequest| OperationRequest {
            asker: Requester::new(self.under_way.ordered(&wanted), &group),
            partition: wanted.partition,
            operation: wanted.operation,
        };
        let order = DriverCommand::AskAll(some.into_iter().map(ask).collect());
        let ordered = inner.driver.ask(order);
        ordered.map_err(|Stopped| asking.is_stopped())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Has an effect only after a panic.
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::MapId;

    use super::*;

    fn wanted(which: usize, bytes: usize) -> BatchRequest {
        BatchRequest {
            which,
            partition: PartitionId::of_canonical(b"key"),
            operation: Operation::Clear(MapId(1)),
            bytes,
        }
    }

    #[test]
    fn so_many_are_under_way_at_a_time_and_so_many_bytes_of_them() {
        let mut under_way = Outstanding::default();
        let begin = |under_way: &mut Outstanding, wanted: BatchRequest| {
            under_way.begin(std::slice::from_ref(&wanted));
            under_way.ordered(&wanted)
        };
        assert!(!under_way.is_too_much_with(1, 2 * UNDER_WAY_BYTES), "alone");
        let first = begin(&mut under_way, wanted(7, UNDER_WAY_BYTES));
        assert!(under_way.is_too_much_with(1, 1) && under_way.is_much());
        let second = begin(&mut under_way, wanted(8, 0));
        assert_eq!(under_way.ended(first).map(|it| it.which), Some(7));
        assert!(under_way.ended(first).is_none());
        assert!(!under_way.is_too_much_with(1, UNDER_WAY_BYTES) && !under_way.is_much());
        assert!(under_way.is_too_much_with(UNDER_WAY, 0));
        assert_eq!(under_way.ended(second).map(|it| it.which), Some(8));
        assert_eq!((under_way.count, under_way.bytes), (0, 0));
    }

    #[test]
    fn of_one_partition_one_is_under_way_and_the_others_follow_in_order() {
        let mut turns = PerPartitionQueue::default();
        let elsewhere = BatchRequest {
            partition: PartitionId::of_canonical(b"another"),
            ..wanted(9, 1)
        };
        let partition = wanted(0, 1).partition;
        assert_ne!(elsewhere.partition, partition);
        let now = [wanted(1, 1), wanted(2, 1), elsewhere, wanted(3, 1)].map(|it| turns.now(it));
        let now: Vec<usize> = now.into_iter().flatten().map(|it| it.which).collect();
        assert_eq!(now, [1, 9]);
        let mut after = || turns.after_one_of(partition).map(|it| it.which);
        assert_eq!([after(), after(), after()], [Some(2), Some(3), None]);
        assert_eq!(turns.now(wanted(4, 1)).map(|it| it.which), Some(4));
    }
}
