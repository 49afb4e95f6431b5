//! The measured job: sources of one record per micro-batch, and a sink that counts micro-batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_core::instance_state::{put, value, written_by};
use ardea_core::{
    Checkpointed, Clock, Delivery, Inbox, InstanceContext, Ordinal, Outbox, Parallelism, Processor,
    Progress, RestoredState, Result, Sink, SmallSnapshot, SnapshotRequest, SnapshotWriter, Source,
    Timestamp, Unbounded, Watermark, supplier,
};
use ardea_pipeline::Pipeline;
use serde::{Deserialize, Serialize};

use super::params::REDUCERS;
use crate::cluster::BenchJob;
use crate::long_running::accounts::as_many;
use crate::long_running::watch::ResultObserver;

/// Poll interval of a source that waits for the start signal or for the end of an epoch.
const WAIT: Duration = Duration::from_millis(1);

/// The name of the state: the number of the next record.
const STATE: &str = "next";

/// The parameters of a run, sent to each container.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BatchLoad {
    /// The number of instances of the source.
    pub(super) sources: u32,
    /// True if the records pass reducers before the sink.
    pub(super) has_reducers: bool,
    pub(super) pace: BatchRate,
}

/// The pace of micro-batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum BatchRate {
    /// As fast as possible, at most this number between two checkpoints.
    PerCheckpoint(u32),
    /// One in this time.
    Every(Duration),
}

impl BatchLoad {
    /// Returns the job, and the handle by which the bench controls a container of it.
    pub(crate) fn job(self) -> Result<BenchJob> {
        let watch = ResultObserver::new(false)?;
        Ok((Box::new(self.pipeline(&watch)), watch))
    }

    fn pipeline(self, watch: &Arc<ResultObserver>) -> Pipeline {
        let p = Pipeline::new("scheduling");
        let watched = Arc::clone(watch);
        let make = supplier(move || BatchSourceP::new(self.pace, Arc::clone(&watched)));
        let source = Source::<u64, Unbounded>::new("micro-batches", make);
        let records = p.read_from(source.parallelism(as_many(self.sources)));
        let records = records.with_source_time();
        let watched = Arc::clone(watch);
        let make = supplier(move || BatchSinkP::new(Arc::clone(&watched)));
        let sink = Sink::new("sink", make)
            .with_delivery(Delivery::Nothing)
            .parallelism(Parallelism::ONE);
        match self.has_reducers {
            true => {
                let reduced = records
                    .key_by(|number: &u64| number % u64::from(REDUCERS))
                    .rolling("reduce", count())
                    .parallelism(as_many(REDUCERS));
                reduced.map(|(key, _)| key).write_to(sink);
            }
            false => records.write_to(sink),
        }
        p
    }
}

/// A source of one record and one watermark per micro-batch. The time of both is that at which the
/// record was due.
struct BatchSourceP {
    pace: BatchRate,
    watch: Arc<ResultObserver>,
    clock: Clock,
    instance: u32,
    next: u64,
    /// The due time of the last record.
    last: Timestamp,
    /// The number of micro-batches until the next checkpoint.
    left: u64,
    draft: SmallSnapshot,
}

impl BatchSourceP {
    fn new(pace: BatchRate, watch: Arc<ResultObserver>) -> Self {
        let mut source = BatchSourceP {
            pace,
            watch,
            clock: Clock::system(),
            instance: 0,
            next: 0,
            last: Timestamp::UNIX_EPOCH,
            left: 0,
            draft: SmallSnapshot::default(),
        };
        source.begin_group();
        source
    }

    fn begin_group(&mut self) {
        self.left = match self.pace {
            BatchRate::PerCheckpoint(batches) => batches.into(),
            BatchRate::Every(_) => u64::MAX,
        };
    }

    /// Returns the due time of the next record, or the time to wait for it.
    fn due(&self, now: Timestamp) -> std::result::Result<Timestamp, Duration> {
        let start = self.watch.span.start();
        let start = start.filter(|start| *start <= now && self.left > 0);
        let start = start.ok_or(WAIT)?;
        match self.pace {
            // Each record has a later time than the one before.
            BatchRate::PerCheckpoint(_) => Ok(now.max(self.last + Duration::from_micros(1))),
            // Micro-batches count from 1970: the record is the first of its micro-batch.
            BatchRate::Every(length) => {
                let length = (length.as_micros() as i64).max(1);
                let number = start.as_micros().div_euclid(length) + 1 + self.next as i64;
                let due = Timestamp::from_micros(number.saturating_mul(length));
                match due > now {
                    true => Err(due.since(now)),
                    false => Ok(due),
                }
            }
        }
    }
}

impl Processor for BatchSourceP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.instance = context.instance.index;
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.watch.load.over.load(Ordering::Relaxed) {
            return Ok(Progress::DONE);
        }
        let now = self.clock.wall();
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        let before = self.next;
        let wait = loop {
            match self.due(now) {
                Ok(due) if !lane.is_full() => {
                    lane.push(self.next, due);
                    (self.last, self.next, self.left) = (due, self.next + 1, self.left - 1);
                }
                Ok(_) => break None,
                Err(wait) => break Some(wait),
            }
            // Overdue records are written together, as the engine ends missed micro-batches.
            if matches!(self.pace, BatchRate::PerCheckpoint(_)) {
                break None;
            }
        };
        let written = self.next - before;
        if written > 0 {
            outbox.watermark(Watermark(self.last));
            self.watch
                .load
                .emitted
                .fetch_add(written, Ordering::Relaxed);
        } else if let Some(wait) = wait {
            outbox.wake_at(self.clock.now() + wait);
        }
        Ok(match written > 0 {
            true => Progress::MADE,
            false => Progress::NONE,
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for BatchSourceP {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.begin_group();
        let key = (self.instance, &[][..]);
        put(self.draft.begin(), STATE, key, &self.next)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            let (instance, _) = written_by(&entry)?;
            if instance == self.instance {
                self.next = value(&entry)?;
            }
        }
        Ok(())
    }
}

/// A sink that counts micro-batches: the watermark rises at the end of each.
struct BatchSinkP {
    watch: Arc<ResultObserver>,
    clock: Clock,
}

impl BatchSinkP {
    fn new(watch: Arc<ResultObserver>) -> Self {
        BatchSinkP {
            watch,
            clock: Clock::system(),
        }
    }
}

impl Processor for BatchSinkP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<u64>()?;
        self.watch.count_repeated(rows.times());
        rows.clear();
        Ok(())
    }

    fn on_watermark(&mut self, Watermark(due): Watermark, _: &mut Outbox) -> Result<Progress> {
        if due.is_event_time() {
            let now = self.clock.wall();
            self.watch.record_results(now, std::iter::once(due));
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use ardea_engine::{ExecutionMode, MicroBatchConfig, Node, NodeConfig};

    use super::*;
    use crate::cluster::{ControlledLoad, Order};
    use crate::running::Running;

    #[test]
    fn a_source_at_full_pace_ends_a_group_of_micro_batches_and_waits_for_a_checkpoint() {
        let load = BatchLoad {
            sources: 2,
            has_reducers: true,
            pace: BatchRate::PerCheckpoint(50),
        };
        let watch = ResultObserver::new(false).unwrap();
        let start = Clock::system().wall().as_micros();
        watch.handle_order(Order::BeginAt {
            start,
            from: start,
            until: i64::MAX,
        });
        let config = NodeConfig {
            mode: ExecutionMode::MicroBatch,
            micro_batch: MicroBatchConfig {
                epoch: Duration::from_secs(60),
                records: NonZeroU64::new(1),
                ..MicroBatchConfig::default()
            },
            ..NodeConfig::with_threads(1)
        };
        let node = Arc::new(Node::start(config).unwrap());
        let running = Running::start(&node, load.pipeline(&watch), None).unwrap();
        while watch.numbers()["results"] < 50 {
            std::thread::yield_now();
        }
        watch.handle_order(Order::Over);
        running.join().unwrap();
        assert_eq!(watch.numbers()["emitted"], 100);
    }
}
