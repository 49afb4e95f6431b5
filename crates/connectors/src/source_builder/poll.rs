//! The processor of a source made of functions.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, InstanceContext, Marker, Ordinal, Outbox,
    Processor, Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest, SnapshotWriter,
    SourceControl, StateEntry, StateShape, Timestamp,
};

use super::batch::{PollStatus, SourceBatch};
use super::positions::{STATE, partition_of};
use super::{SourcePoll, SourceSettings};
use crate::source_watermarks::{MAX_CALL_INTERVAL, SourceWatermarks};
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

/// Processor that polls the partitions of one instance in turn.
pub(super) struct PollP<T, R, O> {
    settings: SourceSettings,
    functions: SourcePoll<T, R, O>,
    context: InstanceContext,
    partitions: Vec<Partition<R>>,
    /// The index of the partition to poll next.
    next: usize,
    /// Records that had no room in the outbox. No partition is polled while there are some.
    overflow: VecDeque<(T, Timestamp)>,
    watermarks: Option<SourceWatermarks>,
    snapshot: SmallSnapshot,
}

impl<T, R, O> PollP<T, R, O>
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
        let mut source = PollP {
            functions,
            partitions: Vec::new(),
            context,
            next: 0,
            overflow: VecDeque::new(),
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

    /// Emits buffered records while there is room. Returns true if none is left.
    fn emit_overflow(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.overflow.is_empty() {
            let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
            let count = lane.room().min(self.overflow.len());
            for (record, time) in self.overflow.drain(..count) {
                lane.push(record, time);
            }
        }
        Ok(self.overflow.is_empty())
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
    fn poll(&mut self, index: usize, now: Duration, outbox: &mut Outbox) -> Result<bool> {
        if !self.open(index, now)? {
            return Ok(false);
        }
        let partition = &mut self.partitions[index];
        let Some(reader) = &mut partition.reader else {
            return Ok(false);
        };
        let mut batch = SourceBatch {
            lane: outbox.lane::<T>(Ordinal::FIRST)?,
            overflow: &mut self.overflow,
            time: self.watermarks.as_mut().map(|it| (it, index)),
            count: 0,
        };
        let outcome = (self.functions.poll)(reader, &mut batch);
        let has_records = batch.count > 0;
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
        Ok(is_ready || has_records)
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

    /// Emits the watermark and idleness.
    fn emit_time(&mut self, now: Duration, outbox: &mut Outbox) {
        let Some(watermarks) = &mut self.watermarks else {
            return;
        };
        let output = watermarks.time(now);
        if let Some(watermark) = output.watermark {
            outbox.watermark(watermark);
        }
        if output.is_idle {
            outbox.marker(Marker::Idle);
        }
    }

    /// Requests the next call if all partitions wait for a time.
    fn wait(&self, now: Duration, outbox: &mut Outbox) {
        let left = self.partitions.iter().filter(|it| !it.is_at_end);
        let times: Option<Vec<Duration>> = left.map(|it| it.next_poll).collect();
        if let Some(earliest) = times.and_then(|times| times.into_iter().min()) {
            // Idleness must be noticed as well, and requires regular calls.
            let latest = match self.watermarks {
                Some(_) => now.saturating_add(MAX_CALL_INTERVAL / 2),
                None => Duration::MAX,
            };
            outbox.wake_at(earliest.min(latest));
        }
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

impl<T, R, O> Processor for PollP<T, R, O>
where
    T: Send + 'static,
    R: Send + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.assign_partitions();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.context.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let before = self.overflow.len();
        if !self.emit_overflow(outbox)? {
            let made = self.overflow.len() < before;
            return Ok(Progress { made, done: false });
        }
        if self.is_at_end() {
            return Ok(Progress::DONE);
        }
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let now = self.context.clock.now();
        let mut made = before > 0;
        for _ in 0..self.partitions.len() {
            let is_full = !outbox.has_room(Ordinal::FIRST) || !self.overflow.is_empty();
            if is_full || self.context.signals.is_cancelled() {
                break;
            }
            let index = self.next;
            self.next = (index + 1) % self.partitions.len();
            let partition = &self.partitions[index];
            if !partition.is_at_end && partition.next_poll.is_none_or(|at| at <= now) {
                made |= self.poll(index, now, outbox)?;
            }
        }
        if self.overflow.is_empty() {
            self.emit_time(now, outbox);
        }
        if self.is_at_end() {
            return Ok(Progress::DONE);
        }
        if !made {
            self.wait(now, outbox);
        }
        Ok(Progress { made, done: false })
    }

    /// Emits the records of the last poll, which are before the offsets of the readers.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let before = self.overflow.len();
        Ok(Progress {
            done: self.emit_overflow(outbox)?,
            made: self.overflow.len() < before,
        })
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

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T, R, O> Checkpointed for PollP<T, R, O>
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

impl<T, R, O> SourceControl for PollP<T, R, O>
where
    T: Send + 'static,
    R: Send + 'static,
{
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.on_epoch(Epoch(0), outbox)
    }

    fn is_at_end(&self) -> bool {
        self.overflow.is_empty() && self.partitions.iter().all(|it| it.is_at_end)
    }
}
