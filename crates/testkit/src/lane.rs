//! One recorded output: its allowed size, and all output written to it.

use std::any::Any;

use ardea_core::{Epoch, Marker, Ordinal, Outbox, OutboxRuntime, Rows, Timestamp, Watermark};

use crate::expected::{Emitted, Expected};

/// The extra capacity of a lane's own batch. As long as that batch does not reallocate, its address
/// distinguishes an overfull lane from a chunk that was offered whole.
const SPARE: usize = 4096;

/// The records and room of an outbox lane before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) held: usize,
    pub(crate) room: usize,
    batch: usize,
}

/// The checks on the markers of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkRules {
    /// True if records must not follow a watermark that is later than their event time.
    pub(crate) forbid_late: bool,
}

/// An output with the record type erased: the plan that creates a lane for each variant.
pub(crate) trait OutputPlan {
    fn lane(&self, ordinal: usize) -> Box<dyn RecordedLane>;
}

/// The recorded output of one lane in one run.
pub(crate) trait RecordedLane {
    /// Returns the allowed size before a call.
    fn allow(&mut self, outbox: &mut Outbox, budget: usize) -> Result<Allowance, String>;

    /// Returns the number of records written by a call. Fails if the call wrote more than
    /// `allowed`.
    fn written(&mut self, outbox: &mut Outbox, allowed: Allowance) -> Result<usize, String>;

    /// Moves all output from the outbox to this record, as the runtime would send it on.
    fn move_on(&mut self, outbox: &mut Outbox, rules: MarkRules) -> Result<(), String>;

    /// Returns the current length of the recorded output.
    fn mark(&self) -> [usize; 3];

    /// Returns true if records were added after a mark.
    fn has_records_since(&self, mark: [usize; 3]) -> bool;

    /// Drops all output after a mark.
    fn truncate(&mut self, mark: [usize; 3]);

    /// Appends the recorded output of the same lane of another instance.
    fn merge(&mut self, other: Box<dyn RecordedLane>);

    /// Converts to `Any`, for a lane of the same type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    fn watermarks(&self) -> &[Watermark];

    fn epoch_ends(&self) -> &[Epoch];

    /// Compares the whole output with the expectation.
    fn finish(self: Box<Self>) -> Result<(), String>;

    /// Compares the records with the expectation, ignoring the order. Succeeds if the expectation
    /// has no such comparison.
    fn finish_unordered(self: Box<Self>) -> Result<(), String>;
}

impl<U: Send + 'static> OutputPlan for Expected<U> {
    fn lane(&self, ordinal: usize) -> Box<dyn RecordedLane> {
        Box::new(TypedLane {
            index: ordinal,
            ordinal: Ordinal(ordinal as u16),
            expected: self.clone(),
            emitted: Vec::new(),
            watermarks: Vec::new(),
            epoch_ends: Vec::new(),
            own_batch: None,
        })
    }
}

struct TypedLane<U> {
    index: usize,
    ordinal: Ordinal,
    expected: Expected<U>,
    emitted: Vec<Emitted<U>>,
    watermarks: Vec<Watermark>,
    epoch_ends: Vec<Epoch>,
    /// The address of the records of the batch that this lane gave to the outbox.
    own_batch: Option<usize>,
}

impl<U: Send + 'static> TypedLane<U> {
    fn rows<'a>(&self, outbox: &'a mut Outbox) -> Result<&'a mut Rows<U>, String> {
        let index = self.index;
        let chunk = outbox.chunk_mut(index);
        let names = format!(
            "output {index} carries {chunk:?} where the test expects {}",
            std::any::type_name::<U>()
        );
        chunk.rows::<U>().map_err(|_| names)
    }

    fn batch(&self, outbox: &mut Outbox) -> Result<usize, String> {
        Ok(self.rows(outbox)?.values().as_ptr() as usize)
    }

    fn put_own_batch(&mut self, outbox: &mut Outbox, budget: usize) {
        let rows = Rows::<U>::with_capacity(budget + SPARE);
        self.own_batch = Some(rows.values().as_ptr() as usize);
        *outbox.chunk_mut(self.index) = ardea_core::Chunk::new(rows);
    }

    fn record(&mut self, value: U, time: Timestamp, rules: MarkRules) -> Result<(), String> {
        if let (true, Some(&watermark)) = (rules.forbid_late, self.watermarks.last())
            && time < watermark.0
            && time != Timestamp::MIN
        {
            return Err(format!(
                "output {}: a record with time {time:?} came behind the watermark {:?}, which made it late",
                self.index, watermark.0
            ));
        }
        self.emitted.push(Emitted::Record(value, time));
        Ok(())
    }

    fn mark(&mut self, marker: Marker) -> Result<(), String> {
        match marker {
            Marker::Watermark(watermark) => {
                if let Some(last) = self.watermarks.last().filter(|last| **last > watermark) {
                    return Err(format!(
                        "output {}: the watermark ran backwards, from {:?} to {:?}",
                        self.index, last.0, watermark.0
                    ));
                }
                self.watermarks.push(watermark);
                self.emitted.push(Emitted::Watermark(watermark));
            }
            Marker::Idle => self.emitted.push(Emitted::Idle),
            Marker::Barrier(epoch) => {
                self.epoch_ends.push(epoch);
                self.emitted.push(Emitted::Barrier(epoch));
            }
            // Latency markers and micro-batches are those of the runtime.
            Marker::BatchEnd(_) | Marker::Latency(_) => {}
            Marker::Done => {
                return Err(format!(
                    "output {}: the processor wrote the end of the stream itself; the runtime does that after `complete`",
                    self.index
                ));
            }
        }
        Ok(())
    }
}

impl<U: Send + 'static> RecordedLane for TypedLane<U> {
    fn allow(&mut self, outbox: &mut Outbox, budget: usize) -> Result<Allowance, String> {
        let held = outbox.chunk_mut(self.index).len();
        if held == 0 && (self.own_batch.is_none() || self.batch(outbox).ok() != self.own_batch) {
            self.put_own_batch(outbox, budget);
        }
        // With endless room, only a marker closes a lane.
        outbox.set_budget(usize::MAX);
        let open = outbox.has_room(self.ordinal);
        outbox.set_budget(budget);
        let room = if open { budget.saturating_sub(held) } else { 0 };
        Ok(Allowance {
            held,
            room,
            batch: self.batch(outbox)?,
        })
    }

    fn written(&mut self, outbox: &mut Outbox, allowed: Allowance) -> Result<usize, String> {
        let holds = outbox.chunk_mut(self.index).len();
        let Some(written) = holds.checked_sub(allowed.held) else {
            return Err(format!(
                "output {} held {} records before the call and {holds} after it: written records are not the processor's any more",
                self.index, allowed.held
            ));
        };
        if written > allowed.room {
            // `Outbox::offer_chunk` accepts a chunk of any size on an empty lane with room. Records
            // of size zero all have the same address: such chunks cannot be distinguished and pass.
            let other_batch = size_of::<U>() == 0 || self.batch(outbox)? != allowed.batch;
            let offered = allowed.held == 0 && allowed.room > 0 && other_batch;
            if !offered {
                return Err(format!(
                    "output {}: {written} records were written where `room()` was {}",
                    self.index, allowed.room
                ));
            }
        }
        Ok(written)
    }

    fn move_on(&mut self, outbox: &mut Outbox, rules: MarkRules) -> Result<(), String> {
        if outbox.has_records(self.index) {
            let records: Vec<_> = self.rows(outbox)?.drain_front(usize::MAX).collect();
            for (value, time) in records {
                self.record(value, time, rules)?;
            }
        }
        while let Some(marker) = outbox.take_marker(self.index) {
            self.mark(marker)?;
        }
        Ok(())
    }

    fn mark(&self) -> [usize; 3] {
        [
            self.emitted.len(),
            self.watermarks.len(),
            self.epoch_ends.len(),
        ]
    }

    fn has_records_since(&self, [emitted, ..]: [usize; 3]) -> bool {
        let mut since = self.emitted.iter().skip(emitted);
        since.any(|emitted| matches!(emitted, Emitted::Record(..)))
    }

    fn truncate(&mut self, [emitted, watermarks, epoch_ends]: [usize; 3]) {
        self.emitted.truncate(emitted);
        self.watermarks.truncate(watermarks);
        self.epoch_ends.truncate(epoch_ends);
        // The outbox has been replaced too.
        self.own_batch = None;
    }

    fn merge(&mut self, other: Box<dyn RecordedLane>) {
        if let Ok(other) = other.into_any().downcast::<Self>() {
            self.emitted.extend(other.emitted);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn watermarks(&self) -> &[Watermark] {
        &self.watermarks
    }

    fn epoch_ends(&self) -> &[Epoch] {
        &self.epoch_ends
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let index = self.index;
        (self.expected.compare)(self.emitted)
            .map_err(|difference| format!("output {index}: {difference}"))
    }

    fn finish_unordered(self: Box<Self>) -> Result<(), String> {
        let index = self.index;
        let Some(compare) = &self.expected.compare_unordered else {
            return Ok(());
        };
        compare(self.emitted).map_err(|difference| format!("output {index}: {difference}"))
    }
}
