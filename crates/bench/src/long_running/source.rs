//! A source that fills the state first, waits for the start signal, and then emits each record when
//! it is due.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::instance_state::{put, value, written_by};
use ardea_core::{
    Checkpointed, Clock, Error, ErrorCode, Instance, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest, SnapshotWriter, Timestamp,
};
use ardea_nexmark::Schedule;

use super::watch::ResultObserver;
use crate::load::{LoadP, LoadRate};
use crate::rows::EventRows;

/// Poll interval of the wait for the start signal.
const BEGIN_WAIT: Duration = Duration::from_millis(1);

/// Sleep of a source that has stopped emitting.
const SILENT_WAIT: Duration = Duration::from_millis(50);

/// The name of the state: the number of filling records emitted, and the number of the next record
/// after them.
const STATE: &str = "next";

/// The work of all instances of a source together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// The number of records emitted first, as fast as possible, with a due time of zero.
    pub(crate) fill: u64,
    /// Records a second after that; with `is_max` only the pace of event time.
    pub(crate) rate: u64,
    /// True to emit them as fast as possible.
    pub(crate) is_max: bool,
    /// The number of records due after those that fill.
    pub(crate) count: u64,
    /// Event time between watermarks.
    pub(crate) stride: Duration,
}

impl Task {
    /// Returns a task of `rate` records a second for `long`.
    pub(crate) fn at_rate(rate: u64, long: Duration, stride: Duration) -> Self {
        Task {
            fill: 0,
            rate,
            is_max: false,
            count: (u128::from(rate) * long.as_micros() / 1_000_000) as u64,
            stride,
        }
    }

    /// Returns the share of an instance. The numbers of filling records are distributed
    /// round-robin.
    pub(crate) fn of_instance(&self, instance: Instance) -> Self {
        let all = u64::from(instance.parallelism);
        let before = u64::from(instance.index).min(self.fill);
        Task {
            fill: (self.fill - before).div_ceil(all),
            rate: self.rate / all,
            count: self.count / all,
            ..*self
        }
    }
}

/// One instance of such a source. After its last record it is idle, and ends when the run is over.
pub(crate) struct SignalledSourceP<R> {
    rows: R,
    task: Task,
    watch: Arc<ResultObserver>,
    filled: u64,
    /// The number of the next record, at the start or after a restore.
    next: u64,
    load: Option<LoadP<R>>,
    instance: Instance,
    clock: Clock,
    draft: SmallSnapshot,
}

impl<R: EventRows> SignalledSourceP<R> {
    /// Returns an instance of the source. `task` is that of all instances, `rows` those of a source
    /// with one.
    pub(crate) fn new(rows: R, task: Task, watch: Arc<ResultObserver>) -> Self {
        SignalledSourceP {
            rows,
            task,
            watch,
            filled: 0,
            next: 0,
            load: None,
            instance: Instance::ONLY,
            clock: Clock::system(),
            draft: SmallSnapshot::default(),
        }
    }

    fn fill(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<R::Row>(Ordinal::FIRST)?;
        let count = (self.task.fill - self.filled).min(lane.room() as u64);
        if count == 0 {
            return Ok(Progress::NONE);
        }
        let (rows, first) = (&self.rows, self.filled);
        lane.rows().extend_columns(|values, times| {
            let time = |_: u64| Timestamp::UNIX_EPOCH;
            rows.fill(first..first + count, 0, time, values, times);
        });
        self.filled += count;
        Ok(Progress::MADE)
    }

    /// Starts the generator if the start signal has arrived; returns true if it has started.
    fn begin(&mut self) -> Result<bool> {
        if self.load.is_some() {
            return Ok(true);
        }
        let Some(start) = self.watch.span.start() else {
            return Ok(false);
        };
        let Task {
            rate,
            is_max,
            count,
            stride,
            ..
        } = self.task;
        let (pace, first) = match is_max {
            true => (LoadRate::Max, Timestamp::UNIX_EPOCH),
            false => (LoadRate::AtRate { start, rate, count }, start),
        };
        let schedule = Schedule::new(first.as_millis(), rate).map_err(|error| {
            Error::new(ErrorCode::InvalidConfig, "the source can't be scheduled").because(error)
        })?;
        let shared = Arc::clone(&self.watch.load);
        let load = LoadP::new(self.rows.clone(), pace, schedule, stride, shared);
        let mut load = load.by(self.clock.clone());
        load.go_on_from(self.next);
        self.load = Some(load);
        Ok(true)
    }

    fn is_over(&self) -> bool {
        self.watch
            .load
            .over
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    fn rest(&self, long: Duration, outbox: &mut Outbox) -> Progress {
        outbox.wake_at(self.clock.now() + long);
        Progress::NONE
    }
}

impl<R: EventRows> Processor for SignalledSourceP<R> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.instance = context.instance;
        self.rows = self.rows.of_instance(context.instance);
        self.task = self.task.of_instance(context.instance);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.filled < self.task.fill {
            return self.fill(outbox);
        }
        if !self.begin()? {
            return Ok(match self.is_over() {
                true => Progress::DONE,
                false => self.rest(BEGIN_WAIT, outbox),
            });
        }
        let Some(load) = &mut self.load else {
            return Ok(Progress::NONE);
        };
        let progress = load.complete(outbox)?;
        if progress.done && !self.is_over() {
            return Ok(self.rest(SILENT_WAIT, outbox));
        }
        Ok(progress)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<R: EventRows> Checkpointed for SignalledSourceP<R> {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let next = self.load.as_ref().map_or(self.next, LoadP::next_index);
        let key = (self.instance.index, &[][..]);
        put(self.draft.begin(), STATE, key, &(self.filled, next))
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
            if instance == self.instance.index {
                (self.filled, self.next) = value(&entry)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_the_task_and_fill_each_number_once() {
        let task = Task {
            fill: 10,
            ..Task::at_rate(900, Duration::from_secs(2), Duration::from_millis(1))
        };
        for parallelism in [1, 3, 4, 20] {
            let shares =
                (0..parallelism).map(|index| task.of_instance(Instance { index, parallelism }));
            let shares: Vec<Task> = shares.collect();
            assert_eq!(shares.iter().map(|share| share.fill).sum::<u64>(), 10);
            for share in shares {
                let all = u64::from(parallelism);
                assert_eq!((share.rate, share.count), (900 / all, 1_800 / all));
            }
        }
    }
}
