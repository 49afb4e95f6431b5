//! Sources that divide their input among their instances by themselves.

use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Clock, Epoch, Instance, InstanceContext, JobSignals, Marker, Ordinal, Outbox,
    Processor, Progress, Result, Source, SourceControl, Timestamp, supplier,
};

use super::SourceBuilder;
use super::batch::{PollStatus, SourceBatch};
use crate::source_watermarks::TimeOutput;
use crate::user_functions::isolation_of;

/// The reader of one instance of a source, for input whose parts are not known beforehand, or that
/// is confirmed when an epoch is committed.
///
/// The functions return within about 100 µs, or within a second if the source is
/// [`blocking`](SourceBuilder::blocking). An error fails the job: a reader retries by itself.
///
/// ```
/// use ardea_connectors::{PollStatus, SourceBatch, SourceBuilder, SourceReader};
/// use ardea_core::{Bounded, Result, Source};
///
/// struct Countdown(u64);
///
/// impl SourceReader for Countdown {
///     type Record = u64;
///
///     fn poll(&mut self, batch: &mut SourceBatch<'_, u64>) -> Result<PollStatus> {
///         while self.0 > 0 && batch.has_room() {
///             self.0 -= 1;
///             batch.push(self.0);
///         }
///         Ok(PollStatus::end_if(self.0 == 0))
///     }
/// }
///
/// let source: Source<u64, Bounded> = SourceBuilder::batch("countdown").reader(|_| Countdown(10));
/// ```
pub trait SourceReader: Send + 'static {
    /// The type of the records.
    type Record: Send + 'static;

    /// Opens the reader. Called once, before all other functions except
    /// [`is_at_end`](Self::is_at_end); must not wait.
    ///
    /// # Errors
    /// Invalid settings, or missing resources of this process.
    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Adds the next records, if there are any, and returns the time of the next call. A call may
    /// be earlier, for instance if another thread wakes the instance. Not called while records of
    /// the last call wait for room.
    ///
    /// # Errors
    /// Input that fails the job.
    fn poll(&mut self, batch: &mut SourceBatch<'_, Self::Record>) -> Result<PollStatus>;

    /// Returns true if the end was reached. The source ends without another call of
    /// [`poll`](Self::poll).
    fn is_at_end(&self) -> bool {
        false
    }

    /// Returns the state for checkpoints: the position after the records of the last
    /// [`poll`](Self::poll). It is also told which epochs are committed.
    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        None
    }

    /// Returns a description of state that checkpoints cannot contain; a job with a guarantee
    /// refuses such a source.
    fn unsaved_state(&self) -> Option<&'static str> {
        None
    }

    /// Releases the resources. The last call.
    fn close(&mut self) {}
}

impl<B: 'static> SourceBuilder<B> {
    /// Builds a source of readers; `make` creates the reader of an instance. The settings of
    /// partitions do not apply: [`partitions`](Self::partitions), [`event_time`](Self::event_time)
    /// and [`retry_limit`](Self::retry_limit).
    pub fn reader<R: SourceReader>(
        self,
        make: impl Fn(Instance) -> R + Send + Sync + 'static,
    ) -> Source<R::Record, B> {
        let supplier = supplier(move |instance: Instance| ReaderP::new(make(instance)));
        Source::new(self.settings.name, supplier)
            .parallelism(self.settings.parallelism)
            .isolation(isolation_of(self.settings.is_blocking))
    }
}

/// Processor that emits the records of a reader.
pub(super) struct ReaderP<R: SourceReader> {
    reader: R,
    signals: Arc<JobSignals>,
    clock: Clock,
    /// Records that had no room in the outbox. The reader is not polled while there are some.
    overflow: VecDeque<(R::Record, Timestamp)>,
    /// True if the reader has returned [`PollStatus::End`].
    has_ended: bool,
}

impl<R: SourceReader> ReaderP<R> {
    pub fn new(reader: R) -> Self {
        ReaderP {
            reader,
            signals: Arc::default(),
            clock: Clock::system(),
            overflow: VecDeque::new(),
            has_ended: false,
        }
    }

    fn has_read_all(&self) -> bool {
        self.has_ended || self.reader.is_at_end()
    }

    /// Emits buffered records while there is room. Returns done if none is left.
    fn emit_overflow(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let before = self.overflow.len();
        if before > 0 {
            let mut lane = outbox.lane::<R::Record>(Ordinal::FIRST)?;
            let count = lane.room().min(before);
            for (record, time) in self.overflow.drain(..count) {
                lane.push(record, time);
            }
        }
        Ok(Progress {
            made: self.overflow.len() < before,
            done: self.overflow.is_empty(),
        })
    }

    fn poll(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<R::Record>(Ordinal::FIRST)?;
        let room = lane.room();
        let rows = lane.rows();
        let mut batch = SourceBatch {
            limit: rows.len() + room,
            rows,
            overflow: &mut self.overflow,
            watermarks: None,
            time: TimeOutput::default(),
            count: 0,
        };
        let status = self.reader.poll(&mut batch)?;
        let (count, time) = (batch.count, batch.time);
        self.has_ended = status == PollStatus::End;
        if let Some(watermark) = time.watermark {
            outbox.watermark(watermark);
        }
        if time.is_idle {
            outbox.marker(Marker::Idle);
        }
        if let PollStatus::IdleFor(pause) = status {
            outbox.wake_at(self.clock.now().saturating_add(pause));
        }
        Ok(Progress {
            made: count > 0 || matches!(status, PollStatus::Ready | PollStatus::End),
            done: self.has_ended && self.overflow.is_empty(),
        })
    }
}

impl<R: SourceReader> Processor for ReaderP<R> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.signals = Arc::clone(&context.signals);
        self.clock = context.clock.clone();
        self.reader.open(context)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let emitted = self.emit_overflow(outbox)?;
        if !emitted.done {
            return Ok(emitted);
        }
        if self.has_read_all() {
            return Ok(Progress::DONE);
        }
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress {
                done: false,
                ..emitted
            });
        }
        Ok(emitted | self.poll(outbox)?)
    }

    /// Emits the records of the last poll, which are before the reader's position.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_overflow(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.reader.unsaved_state()
    }

    fn close(&mut self) {
        self.reader.close();
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.reader.state()
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<R: SourceReader> SourceControl for ReaderP<R> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_overflow(outbox)
    }

    fn is_at_end(&self) -> bool {
        self.overflow.is_empty() && self.has_read_all()
    }
}
