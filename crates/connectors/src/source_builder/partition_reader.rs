//! The reader of a source made of functions.

use std::time::Duration;

use ardea_core::{
    Checkpointed, Error, ErrorCode, Instance, InstanceContext, Progress, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter, StateEntry, StateShape, Timestamp,
};

use super::batch::{PollStatus, SourceBatch};
use super::positions::{STATE, partition_of};
use super::reader::SourceReader;
use super::{SourcePoll, SourceSettings};
use crate::source_watermarks::{MAX_CALL_INTERVAL, SourceWatermarks, TimeOutput};
use crate::user_functions::UserRetry;

/// A partition of the instance.
struct Partition<R> {
    number: u32,
    /// The open reader.
    reader: Option<R>,
    /// The encoded position while there is no reader; empty if no position is known.
    position: Vec<u8>,
    is_at_end: bool,
    /// The time before which the partition is not polled; `None` if it is polled in each call.
    next_poll: Option<Duration>,
    retry: UserRetry,
}

/// Reader that polls the partitions of one instance in turn.
pub(super) struct PartitionReader<T, R, O> {
    settings: SourceSettings,
    functions: SourcePoll<T, R, O>,
    context: InstanceContext,
    partitions: Vec<Partition<R>>,
    /// The index of the partition to poll next.
    next: usize,
    watermarks: Option<SourceWatermarks>,
    snapshot: SmallSnapshot,
}

impl<T, R, O> PartitionReader<T, R, O>
where
    T: Send + 'static,
    R: Send + 'static,
{
    pub fn new(
        settings: SourceSettings,
        functions: SourcePoll<T, R, O>,
        instance: Instance,
    ) -> Self {
        let mut context = InstanceContext::detached(&settings.name);
        context.instance = instance;
        let mut source = PartitionReader {
            functions,
            partitions: Vec::new(),
            context,
            next: 0,
            watermarks: None,
            snapshot: SmallSnapshot::default(),
            settings,
        };
        source.assign_partitions();
        source
    }

    /// Creates the partitions of the instance.
    fn assign_partitions(&mut self) {
        let (context, limit) = (&self.context, self.settings.retry_limit);
        let all = 0..self.settings.partitions;
        let own = all.filter(|number| context.instance.owns(u64::from(*number)));
        let partition = |number| Partition {
            number,
            reader: None,
            position: Vec::new(),
            is_at_end: false,
            next_poll: None,
            retry: UserRetry::new(context, &format!(", partition {number}"), limit),
        };
        self.partitions = own.map(partition).collect();
        self.watermarks = self.settings.time.map(|policy| {
            let mut watermarks = SourceWatermarks::new(policy, context.clock.clone());
            for _ in &self.partitions {
                watermarks.add(Timestamp::MIN);
            }
            watermarks
        });
    }

    /// Opens the partition at an index unless it is open. Returns false if that must be retried.
    fn open(&mut self, index: usize, now: Duration) -> Result<bool> {
        let partition = &mut self.partitions[index];
        if partition.reader.is_some() {
            return Ok(true);
        }
        let number = partition.number;
        let offset = match &self.functions.offset {
            Some(codec) if !partition.position.is_empty() => {
                Some(codec.decode(number, &partition.position)?.offset)
            }
            _ => None,
        };
        let outcome = (self.functions.open)(number, offset);
        let action = || format!("cannot open partition {number}");
        partition.reader = partition.retry.judge(now, action, outcome)?;
        partition.next_poll = partition.retry.next_at();
        Ok(partition.reader.is_some())
    }

    /// Polls the partition at an index. Returns true if there may be more records.
    fn poll_one(
        &mut self,
        index: usize,
        now: Duration,
        all: &mut SourceBatch<'_, T>,
    ) -> Result<bool> {
        if !self.open(index, now)? {
            return Ok(false);
        }
        let partition = &mut self.partitions[index];
        let Some(reader) = &mut partition.reader else {
            return Ok(false);
        };
        let mut batch = SourceBatch {
            rows: &mut *all.rows,
            limit: all.limit,
            overflow: &mut *all.overflow,
            watermarks: self.watermarks.as_mut().map(|it| (it, index)),
            time: TimeOutput::default(),
            count: 0,
        };
        let outcome = (self.functions.poll)(reader, &mut batch);
        let count = batch.count;
        all.count += count;
        let number = partition.number;
        let action = || format!("cannot read partition {number}");
        let status = partition.retry.judge(now, action, outcome)?;
        partition.next_poll = match status {
            Some(PollStatus::IdleFor(pause)) => Some(now.saturating_add(pause)),
            Some(_) => None,
            None => partition.retry.next_at(),
        };
        match (status, &mut self.watermarks) {
            (Some(PollStatus::End), _) => self.end(index)?,
            (Some(PollStatus::Idle | PollStatus::IdleFor(_)), Some(watermarks)) => {
                watermarks.at_end(index, now);
            }
            _ => {}
        }
        let is_ready = matches!(status, Some(PollStatus::Ready | PollStatus::End));
        Ok(is_ready || count > 0)
    }

    /// Closes a partition that has ended.
    fn end(&mut self, index: usize) -> Result<()> {
        self.partitions[index].is_at_end = true;
        self.partitions[index].position = self.position(index)?;
        self.partitions[index].reader = None;
        if let Some(watermarks) = &mut self.watermarks {
            watermarks.finish(index);
        }
        Ok(())
    }

    /// Returns the encoded position of a partition; empty if none is known.
    fn position(&self, index: usize) -> Result<Vec<u8>> {
        let partition = &self.partitions[index];
        match (&self.functions.offset, &partition.reader) {
            (Some(codec), Some(reader)) => {
                let highest = self.watermarks.as_ref().map(|it| it.highest(index));
                let state = (partition.is_at_end, highest);
                codec.encode(partition.number, reader, state)
            }
            _ => Ok(partition.position.clone()),
        }
    }

    /// Returns the time of the next call when no partition is ready.
    fn next_call(&self, now: Duration) -> PollStatus {
        let left = self.partitions.iter().filter(|it| !it.is_at_end);
        let times: Option<Vec<Duration>> = left.map(|it| it.next_poll).collect();
        let Some(earliest) = times.and_then(|times| times.into_iter().min()) else {
            return PollStatus::Idle;
        };
        let pause = earliest.saturating_sub(now);
        // Idleness must be noticed as well, and requires regular calls.
        PollStatus::IdleFor(match self.watermarks {
            Some(_) => pause.min(MAX_CALL_INTERVAL / 2),
            None => pause,
        })
    }

    fn removed(&self, partition: u32) -> Error {
        let what = format!(
            "the checkpoint has an offset of partition {partition}, but the source has only {} partitions",
            self.settings.partitions
        );
        Error::new(ErrorCode::InvalidJob, what)
            .hint("restore the number of partitions, or start without the checkpoint")
    }
}

impl<T, R, O> SourceReader for PartitionReader<T, R, O>
where
    T: Send + 'static,
    R: Send + 'static,
    O: 'static,
{
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.assign_partitions();
        Ok(())
    }

    fn poll(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<PollStatus> {
        let now = self.context.clock.now();
        let mut is_ready = false;
        for _ in 0..self.partitions.len() {
            if !batch.has_room() || self.context.signals.is_cancelled() {
                break;
            }
            let index = self.next;
            self.next = (index + 1) % self.partitions.len();
            let partition = &self.partitions[index];
            if !partition.is_at_end && partition.next_poll.is_none_or(|at| at <= now) {
                is_ready |= self.poll_one(index, now, batch)?;
            }
        }
        // A watermark is emitted after all records of the last poll.
        if batch.overflow.is_empty()
            && let Some(watermarks) = &mut self.watermarks
        {
            batch.time = watermarks.time(now);
        }
        Ok(match is_ready {
            _ if self.is_at_end() => PollStatus::End,
            true => PollStatus::Ready,
            false => self.next_call(now),
        })
    }

    fn is_at_end(&self) -> bool {
        self.partitions.iter().all(|it| it.is_at_end)
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        match self.functions.offset {
            Some(_) => None,
            None => Some("the offsets of a source that was built without `offset`"),
        }
    }

    fn close(&mut self) {
        self.partitions.clear();
    }
}

impl<T, R, O> Checkpointed for PartitionReader<T, R, O>
where
    T: Send + 'static,
    R: Send + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let positions = (0..self.partitions.len()).map(|index| self.position(index));
        let positions: Vec<Vec<u8>> = positions.collect::<Result<_>>()?;
        let entries = self.snapshot.begin();
        for (partition, position) in self.partitions.iter().zip(&positions) {
            if !position.is_empty() {
                entries.push(StateEntry {
                    state: STATE,
                    partition: None,
                    key: &partition.number.to_be_bytes(),
                    value: Some(position),
                })?;
            }
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.snapshot.write(writer)
    }

    /// Restores the positions. Each instance receives those of all, and selects its own.
    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let number = partition_of(&entry)?;
            let Some(codec) = &self.functions.offset else {
                return Err(RestoredState::unknown(&entry));
            };
            let position = codec.decode(number, entry.value)?;
            if number >= self.settings.partitions && !position.is_at_end {
                return Err(self.removed(number));
            }
            let own = self.partitions.iter().position(|it| it.number == number);
            let Some(index) = own else {
                continue;
            };
            self.partitions[index].position = entry.value.to_vec();
            self.partitions[index].is_at_end = position.is_at_end;
            if let Some(watermarks) = &mut self.watermarks {
                watermarks.restore(index, position.highest.unwrap_or(Timestamp::MIN));
                if position.is_at_end {
                    watermarks.finish(index);
                }
            }
        }
        Ok(())
    }
}
