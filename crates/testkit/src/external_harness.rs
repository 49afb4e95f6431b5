//! A harness for a source or sink that talks to a real system: waits with a deadline, can be
//! dropped at any time and restored from a snapshot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, DeadLetters, Epoch, Guarantee, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    OutboxRuntime, Processor, ProcessorSupplier, RestoredState, Result, Rows, SnapshotRequest,
    SnapshotWriter, StateChunk, Timestamp,
};

use crate::captured_state::CapturedState;

/// The longest wait for any operation.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The state of one or several instances at the end of an epoch.
#[derive(Clone, Debug, Default)]
pub struct CapturedEpoch {
    state: CapturedState,
    /// The epoch.
    pub epoch: Epoch,
}

impl CapturedEpoch {
    /// Merges the states of several instances at the end of the same epoch.
    pub fn merge(all: impl IntoIterator<Item = CapturedEpoch>) -> CapturedEpoch {
        let mut together = CapturedEpoch::default();
        for CapturedEpoch { state, epoch } in all {
            together.state.add(state);
            together.epoch = epoch;
        }
        together
    }
}

/// One instance of a source or sink that talks to a real system, driven as by a runtime with
/// checkpoints.
///
/// Unlike [`ProcessorTest`](crate::ProcessorTest), it waits for threads and servers: every call is
/// repeated until it is done, and fails the test after 90 seconds. Dropping the harness closes the
/// processor without further calls, like a crash.
///
/// # Panics
/// All calls except those that return a `Result`, if the processor fails or does not finish in
/// time.
pub struct ExternalHarness {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    outbox: Outbox,
    inbox: Inbox,
    committed: Option<Epoch>,
    before: CapturedEpoch,
}

impl ExternalHarness {
    /// Starts an instance of the supplier's vertex in an `exactly-once` job named `job`, restored
    /// from `kept`, if any.
    pub fn begin(
        supplier: &Arc<dyn ProcessorSupplier>,
        job: &str,
        instance: Instance,
        kept: Option<&CapturedEpoch>,
    ) -> ExternalHarness {
        Self::try_begin(supplier, job, instance, kept).expect("it begins")
    }

    /// Starts an instance like [`begin`](Self::begin), and returns an error if that fails.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub fn try_begin(
        supplier: &Arc<dyn ProcessorSupplier>,
        job: &str,
        instance: Instance,
        kept: Option<&CapturedEpoch>,
    ) -> Result<ExternalHarness> {
        let context = InstanceContext {
            job: job.into(),
            instance,
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("driven")
        };
        let mut driven = ExternalHarness {
            processor: supplier.supply(instance)?,
            context,
            outbox: Outbox::new(1, 256),
            inbox: Inbox::default(),
            committed: kept.map(|kept| kept.epoch),
            before: kept.cloned().unwrap_or_default(),
        };
        driven.processor.init(&driven.context)?;
        driven
            .context
            .state_registry
            .check(&mut *driven.processor)?;
        if let Some(kept) = kept {
            let chunk = kept.state.chunk()?;
            let mut position = 0;
            while position < chunk.byte_len() {
                let mut state = RestoredState::new(&chunk, &mut position, instance, 3);
                driven.processor.state().restore(&mut state)?;
            }
            driven.until(|processor, _| Ok(processor.state().on_restored(kept.epoch)?.done))?;
        }
        Ok(driven)
    }

    /// Repeats `call` until it returns true.
    fn until(
        &mut self,
        mut call: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !call(&mut *self.processor, &mut self.outbox)? {
            assert!(Instant::now() < deadline, "it is never done");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Passes records to a sink until all are processed.
    pub fn write<T: Send + 'static>(&mut self, records: impl IntoIterator<Item = T>) {
        self.try_write(records).expect("it takes records");
    }

    /// Passes records to a sink like [`write`](Self::write), and returns an error if that fails.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub fn try_write<T: Send + 'static>(
        &mut self,
        records: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let rows: Rows<T> = records
            .into_iter()
            .map(|record| (record, Timestamp::MIN))
            .collect();
        self.inbox.fill(Chunk::new(rows));
        let deadline = Instant::now() + TIMEOUT;
        while !self.inbox.is_empty() {
            assert!(Instant::now() < deadline, "it takes no records");
            let (inbox, outbox) = (&mut self.inbox, &mut self.outbox);
            self.processor.process(Ordinal::FIRST, inbox, outbox)?;
        }
        Ok(())
    }

    /// Calls a source once, with room for `room` records. Returns true if the source is done.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub fn try_read<T: Send + 'static>(&mut self, room: usize, into: &mut Vec<T>) -> Result<bool> {
        self.outbox.set_budget(room);
        let progress = self.processor.complete(&mut self.outbox)?;
        if let Some(mut chunk) = self.outbox.take_chunk(0, Chunk::default) {
            let rows = chunk.rows::<T>()?;
            into.extend(rows.drain_front(usize::MAX).map(|(record, _)| record));
        }
        while self.outbox.take_marker(0).is_some() {}
        Ok(progress.done)
    }

    /// Reads `count` records from a source, at most 100 per call. Returns true if the source ended
    /// first.
    pub fn read<T: Send + 'static>(&mut self, count: usize, into: &mut Vec<T>) -> bool {
        let enough = into.len() + count;
        let deadline = Instant::now() + TIMEOUT;
        while into.len() < enough {
            assert!(Instant::now() < deadline, "it emits nothing");
            let room = (enough - into.len()).min(100);
            if self.try_read(room, into).expect("it emits") {
                return true;
            }
        }
        false
    }

    /// Ends an epoch and returns its state, to be committed or dropped. Takes a full snapshot if
    /// `full`, else an increment since the last epoch committed to the instance.
    pub fn end_epoch(&mut self, epoch: Epoch, full: bool) -> CapturedEpoch {
        self.until(|processor, outbox| Ok(processor.on_epoch(epoch, outbox)?.done))
            .expect("the epoch ends");
        let snapshot = SnapshotRequest {
            since: self.committed.filter(|_| !full),
            ..SnapshotRequest::full(epoch)
        };
        self.processor
            .state()
            .take_snapshot(snapshot)
            .expect("a snapshot is taken");
        let mut chunk = StateChunk::default();
        self.until(|processor, _| {
            let limit = chunk.byte_len() + 1;
            let mut writer = SnapshotWriter::new(&mut chunk, limit);
            Ok(processor.state().write_snapshot(&mut writer)?.done)
        })
        .expect("the snapshot is written");
        let state = self
            .before
            .state
            .updated_with(snapshot, &chunk)
            .expect("a whole snapshot");
        CapturedEpoch { state, epoch }
    }

    /// Reports to the instance that an epoch is committed, and waits until it has finished its
    /// commit work.
    pub fn commit(&mut self, kept: &CapturedEpoch) {
        self.try_commit(kept).expect("the commit succeeds");
    }

    /// Commits like [`commit`](Self::commit), and returns an error if that fails.
    ///
    /// # Errors
    /// The error returned by the processor.
    pub fn try_commit(&mut self, kept: &CapturedEpoch) -> Result<()> {
        self.until(|processor, _| Ok(processor.state().on_checkpoint_committed(kept.epoch)?.done))?;
        self.committed = Some(kept.epoch);
        self.before = kept.clone();
        Ok(())
    }

    /// Reports once to the instance that an epoch is committed, without waiting for its commit
    /// work.
    pub fn begin_commit(&mut self, epoch: Epoch) {
        let heard = self.processor.state().on_checkpoint_committed(epoch);
        heard.map(drop).expect("the commit begins");
    }

    /// Reports to the instance that an epoch was aborted.
    pub fn abort(&mut self, epoch: Epoch) {
        self.until(|processor, _| Ok(processor.state().on_checkpoint_aborted(epoch)?.done))
            .expect("it hears of it");
    }

    /// Completes the processor after the end of all input.
    pub fn complete(&mut self) {
        self.until(|processor, outbox| Ok(processor.complete(outbox)?.done))
            .expect("it completes");
    }

    /// Returns true if the instance must stay until its last epoch is committed.
    pub fn awaits_commit(&mut self) -> bool {
        self.processor.state().awaits_commit()
    }

    /// The dead letters of the instance.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.context.dead_letters
    }
}

impl Drop for ExternalHarness {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// Reproducible random numbers, for the times of failures and the choice of committed epochs.
#[derive(Clone, Debug)]
pub struct TestRandom(crate::random::SplitMix64);

impl TestRandom {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        TestRandom(crate::random::SplitMix64::new(seed))
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }
}
