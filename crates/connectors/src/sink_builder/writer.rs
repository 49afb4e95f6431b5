//! Sinks that have several writes in flight.

use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Inbox, Instance, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RecordGuard, Result, Sink, Timestamp, supplier,
};

use super::SinkBuilder;
use crate::user_functions::isolation_of;

/// The writer of one instance of a sink whose system confirms writes later.
///
/// Functions wait at most about 100 ms, so that the job can stop; the sink must be
/// [`blocking`](SinkBuilder::blocking) if they wait at all. An error fails the job: a writer
/// retries by itself. A record that cannot be written is reported to
/// [`BadRecords`](ardea_core::BadRecords).
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use std::time::Duration;
/// use ardea_connectors::{SinkBuilder, SinkWriter};
/// use ardea_core::{Result, Sink, Timestamp};
///
/// struct ToChannel(Sender<u64>);
///
/// impl SinkWriter for ToChannel {
///     type Record = u64;
///
///     fn write(&mut self, record: &u64, _: Timestamp, _: u64) -> Result<bool> {
///         Ok(self.0.send(*record).is_ok())
///     }
///
///     fn poll(&mut self, _: Duration) -> Result<bool> {
///         Ok(true)
///     }
/// }
///
/// let (sender, _receiver) = channel();
/// let sink: Sink<u64> = SinkBuilder::new("channel").writer(move |_| ToChannel(sender.clone()));
/// ```
pub trait SinkWriter: Send + 'static {
    /// The type of the records.
    type Record: Send + 'static;

    /// The interval of calls of [`poll`](Self::poll) while writes are unconfirmed and no records
    /// arrive.
    const POLL_INTERVAL: Duration = Duration::from_millis(100);

    /// Opens the writer. Called once, before all other functions; must not wait.
    ///
    /// # Errors
    /// Invalid settings, or missing resources of this process.
    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Waits for room; returns true if records may be written. Called before the first record of
    /// each chunk.
    ///
    /// # Errors
    /// The failure of an earlier write.
    fn has_room(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Takes a record with its event time and its position in the instance's input. Returns false
    /// if there is no room: the record stays in the input.
    ///
    /// # Errors
    /// A record that fails the job.
    fn write(&mut self, record: &Self::Record, time: Timestamp, position: u64) -> Result<bool>;

    /// Sends the records taken since the last call. Called after the last record of a chunk.
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    fn send(&mut self) -> Result<()> {
        Ok(())
    }

    /// Handles confirmations, waiting for them up to `wait`; returns true if none is missing.
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    fn poll(&mut self, wait: Duration) -> Result<bool>;

    /// Returns true if the epoch may end: all its records are confirmed, or part of the
    /// [state](Self::state). Called again until it is true.
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    fn end_epoch(&mut self) -> Result<bool> {
        self.poll(Self::POLL_INTERVAL)
    }

    /// Returns true if the sink may end, after its last record. Called again until it is true.
    ///
    /// # Errors
    /// As [`has_room`](Self::has_room).
    fn finish(&mut self) -> Result<bool> {
        self.end_epoch()
    }

    /// Returns the state for checkpoints, with its commits; see
    /// [`Processor::checkpointed`](ardea_core::Processor::checkpointed).
    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        None
    }

    /// Releases the resources. The last call.
    fn close(&mut self) {}
}

impl SinkBuilder {
    /// Builds a sink of writers; `make` creates the writer of an instance. The writer retries by
    /// itself: [`retry_limit`](Self::retry_limit) and [`batch_records`](Self::batch_records) do not
    /// apply. [`Sink::with_delivery`] declares its guarantee.
    pub fn writer<W: SinkWriter>(
        self,
        make: impl Fn(Instance) -> W + Send + Sync + 'static,
    ) -> Sink<W::Record> {
        let supplier = supplier(move |instance: Instance| WriterP {
            writer: make(instance),
            context: InstanceContext::detached("sink"),
        });
        Sink::new(self.settings.name, supplier)
            .parallelism(self.settings.parallelism)
            .isolation(isolation_of(self.settings.is_blocking))
    }
}

/// Processor that passes records to a writer.
struct WriterP<W> {
    writer: W,
    context: InstanceContext,
}

impl<W: SinkWriter> WriterP<W> {
    /// Passes records to the writer; returns false if it had no room for all of them.
    fn write_all(&mut self, inbox: &mut Inbox) -> Result<bool> {
        let first = inbox.position();
        let rows = inbox.rows::<W::Record>()?;
        let mut taken = 0;
        let mut guard = RecordGuard::new();
        for ((record, time), position) in rows.iter().zip(first..) {
            if !self.writer.write(record, time, position)? {
                break;
            }
            taken += 1;
            guard.advance();
        }
        rows.discard_front(taken);
        self.writer.send()?;
        Ok(inbox.is_empty())
    }

    /// Handles confirmations, and requests the next call while some are missing.
    fn poll(&mut self, wait: Duration, outbox: &mut Outbox) -> Result<()> {
        if !self.writer.poll(wait)? {
            let now = self.context.clock.now();
            outbox.wake_at(now.saturating_add(W::POLL_INTERVAL));
        }
        Ok(())
    }
}

impl<W: SinkWriter> Processor for WriterP<W> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        self.writer.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.writer.has_room()? {
            // The runtime calls again soon, since records are waiting.
            return self.writer.poll(Duration::ZERO).map(drop);
        }
        match self.write_all(inbox)? {
            true => self.poll(Duration::ZERO, outbox),
            // This thread has no other work than to wait for room.
            false => self.writer.poll(W::POLL_INTERVAL).map(drop),
        }
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.poll(Duration::ZERO, outbox)
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.writer.end_epoch().map(Progress::done_if)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.writer.finish().map(Progress::done_if)
    }

    fn close(&mut self) {
        self.writer.close();
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.writer.state()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use ardea_core::{Error, ErrorCode, SnapshotRequest};

    use super::*;
    use crate::testing::Fed;

    /// A system that confirms writes when it is told to.
    #[derive(Clone, Default)]
    struct System {
        written: Arc<Mutex<Vec<u64>>>,
        confirmed: Arc<AtomicUsize>,
        calls: Arc<AtomicUsize>,
    }

    /// A writer with room for three unconfirmed records.
    struct Writer(System);

    impl Writer {
        fn missing(&self) -> usize {
            self.0.written.lock().unwrap().len() - self.0.confirmed.load(Relaxed)
        }
    }

    impl SinkWriter for Writer {
        type Record = u64;

        fn has_room(&mut self) -> Result<bool> {
            Ok(self.missing() < 3)
        }

        fn write(&mut self, record: &u64, _: Timestamp, position: u64) -> Result<bool> {
            if *record == 666 {
                let what = format!("record {position} is refused");
                return Err(Error::new(ErrorCode::WriteFailed, what));
            }
            let has_room = self.missing() < 3;
            if has_room {
                self.0.written.lock().unwrap().push(*record);
            }
            Ok(has_room)
        }

        fn poll(&mut self, _: Duration) -> Result<bool> {
            self.0.calls.fetch_add(1, Relaxed);
            Ok(self.missing() == 0)
        }
    }

    fn sink(system: &System) -> Fed<u64> {
        let system = system.clone();
        Fed::start(SinkBuilder::new("system").writer(move |_| Writer(system.clone())))
    }

    #[test]
    fn records_without_room_stay_in_the_input_and_are_written_in_order() {
        let system = System::default();
        let mut fed = sink(&system);
        assert!(!fed.offer(0..5).unwrap());
        assert!(!fed.again().unwrap());
        system.confirmed.store(3, Relaxed);
        assert!(fed.again().unwrap());
        assert_eq!(*system.written.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_epoch_ends_when_all_writes_are_confirmed() {
        let system = System::default();
        let mut fed = sink(&system);
        fed.feed(0..2).unwrap();
        assert!(!fed.end_epoch(Epoch(1)).unwrap());
        system.confirmed.store(2, Relaxed);
        assert!(fed.end_epoch(Epoch(1)).unwrap());
        fed.snapshot(SnapshotRequest::full(Epoch(2))).unwrap();
        fed.finish().unwrap();
    }

    #[test]
    fn confirmations_are_awaited_without_further_records() {
        let system = System::default();
        let mut fed = sink(&system);
        fed.feed([7]).unwrap();
        let calls = system.calls.load(Relaxed);
        assert!(fed.is_to_be_woken());
        fed.wake().unwrap();
        assert!(system.calls.load(Relaxed) > calls && fed.is_to_be_woken());
        system.confirmed.store(1, Relaxed);
        fed.wake().unwrap();
        assert!(!fed.is_to_be_woken());
    }

    #[test]
    fn a_record_that_fails_the_writer_fails_the_job() {
        let error = sink(&System::default()).feed([1, 666]).err().unwrap();
        assert!(error.to_string().contains("record 1 is refused"), "{error}");
    }
}
