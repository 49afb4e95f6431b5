//! One end of a job that talks to something real, driven by hand: waited for with a deadline, killed, and made anew from a cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, Cut, CutWriter, DeadLetters, Epoch, Guarantee, Inbox, Instance, InstanceContext,
    Ordinal, Outbox, Processor, ProcessorSupplier, RestoredState, Result, Rows, StateChunk,
    Timestamp,
};

use crate::kept::KeptState;

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is kept of one or several instances at the end of an epoch.
#[derive(Clone, Debug, Default)]
pub struct KeptEpoch {
    state: KeptState,
    /// Which epoch that is.
    pub epoch: Epoch,
}

impl KeptEpoch {
    /// What several instances have kept at the end of the same epoch.
    pub fn together(all: impl IntoIterator<Item = KeptEpoch>) -> KeptEpoch {
        let mut together = KeptEpoch::default();
        for KeptEpoch { state, epoch } in all {
            together.state.add(state);
            together.epoch = epoch;
        }
        together
    }
}

/// One instance of a source or a sink that talks to a real system, as a runtime drives it that keeps its state.
///
/// Unlike [`ProcessorTest`](crate::ProcessorTest) it waits for threads and servers: every call is made again until it is done, and fails the
/// test after a minute and a half. Dropping it closes the processor without anything more, as its death would.
///
/// # Panics
/// All calls but those that return a `Result`, if the processor fails or nothing comes of it in time.
pub struct Driven {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    outbox: Outbox,
    inbox: Inbox,
    told: Option<Epoch>,
    before: KeptEpoch,
}

impl Driven {
    /// An instance of a supplier's vertex in an `exactly-once` job of this name, which goes on from what was kept, if anything.
    pub fn begin(
        supplier: &Arc<dyn ProcessorSupplier>,
        job: &str,
        instance: Instance,
        kept: Option<&KeptEpoch>,
    ) -> Driven {
        Self::try_begin(supplier, job, instance, kept).expect("it begins")
    }

    /// The same, where that may fail.
    ///
    /// # Errors
    /// The processor's.
    pub fn try_begin(
        supplier: &Arc<dyn ProcessorSupplier>,
        job: &str,
        instance: Instance,
        kept: Option<&KeptEpoch>,
    ) -> Result<Driven> {
        let context = InstanceContext {
            job: job.into(),
            instance,
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("driven")
        };
        let mut driven = Driven {
            processor: supplier.supply(instance)?,
            context,
            outbox: Outbox::new(1, 256),
            inbox: Inbox::default(),
            told: kept.map(|kept| kept.epoch),
            before: kept.cloned().unwrap_or_default(),
        };
        driven.processor.init(&driven.context)?;
        if let Some(kept) = kept {
            let chunk = kept.state.chunk()?;
            let mut position = 0;
            while position < chunk.byte_len() {
                let mut state = RestoredState::new(&chunk, &mut position, instance, 3);
                driven.processor.restore(&mut state)?;
            }
            driven.until(|processor, _| Ok(processor.on_restored(kept.epoch)?.done))?;
        }
        Ok(driven)
    }

    /// Calls until it says true.
    fn until(
        &mut self,
        mut call: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !call(&mut *self.processor, &mut self.outbox)? {
            assert!(Instant::now() < deadline, "it is never done");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Gives a sink records, until it has taken all.
    pub fn write<T: Send + 'static>(&mut self, records: impl IntoIterator<Item = T>) {
        self.try_write(records).expect("it takes records");
    }

    /// The same, where that may fail.
    ///
    /// # Errors
    /// The processor's.
    pub fn try_write<T: Send + 'static>(
        &mut self,
        records: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let rows: Rows<T> = records
            .into_iter()
            .map(|record| (record, Timestamp::MIN))
            .collect();
        self.inbox.fill(Chunk::new(rows));
        let deadline = Instant::now() + PATIENCE;
        while !self.inbox.is_empty() {
            assert!(Instant::now() < deadline, "it takes no records");
            let (inbox, outbox) = (&mut self.inbox, &mut self.outbox);
            self.processor.process(Ordinal::FIRST, inbox, outbox)?;
        }
        Ok(())
    }

    /// Calls a source once, with room for so many records; says whether it is at its end.
    ///
    /// # Errors
    /// The processor's.
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

    /// Has a source emit until it has given so many records, a few at a time, or is at its end; says whether it is.
    pub fn read<T: Send + 'static>(&mut self, count: usize, into: &mut Vec<T>) -> bool {
        let enough = into.len() + count;
        let deadline = Instant::now() + PATIENCE;
        while into.len() < enough {
            assert!(Instant::now() < deadline, "it emits nothing");
            let room = (enough - into.len()).min(100);
            if self.try_read(room, into).expect("it emits") {
                return true;
            }
        }
        false
    }

    /// Ends an epoch: what is kept of it if it is committed. `full` asks for a full cut; else it is an increment upon the last epoch that the
    /// instance was told is committed.
    pub fn end_epoch(&mut self, epoch: Epoch, full: bool) -> KeptEpoch {
        self.until(|processor, outbox| Ok(processor.on_epoch(epoch, outbox)?.done))
            .expect("the epoch ends");
        let cut = Cut {
            since: self.told.filter(|_| !full),
            ..Cut::full(epoch)
        };
        self.processor.take_cut(cut).expect("a cut is taken");
        let mut chunk = StateChunk::default();
        self.until(|processor, _| {
            let limit = chunk.byte_len() + 1;
            let mut writer = CutWriter::new(&mut chunk, limit);
            Ok(processor.write_cut(&mut writer)?.done)
        })
        .expect("the cut is written");
        let state = self.before.state.after(cut, &chunk).expect("a whole cut");
        KeptEpoch { state, epoch }
    }

    /// Tells the instance that an epoch is committed, until it has done what follows.
    pub fn commit(&mut self, kept: &KeptEpoch) {
        self.try_commit(kept).expect("it does what it has to");
    }

    /// The same, where that may fail.
    ///
    /// # Errors
    /// The processor's.
    pub fn try_commit(&mut self, kept: &KeptEpoch) -> Result<()> {
        self.until(|processor, _| Ok(processor.on_epoch_committed(kept.epoch)?.done))?;
        self.told = Some(kept.epoch);
        self.before = kept.clone();
        Ok(())
    }

    /// Tells the instance once that an epoch is committed, and does not wait for what follows.
    pub fn begin_commit(&mut self, epoch: Epoch) {
        let heard = self.processor.on_epoch_committed(epoch);
        heard.map(drop).expect("it hears of the commit");
    }

    /// Tells the instance that an epoch was given up.
    pub fn give_up(&mut self, epoch: Epoch) {
        self.until(|processor, _| Ok(processor.on_epoch_given_up(epoch)?.done))
            .expect("it hears of it");
    }

    /// All input has ended.
    pub fn complete(&mut self) {
        self.until(|processor, outbox| Ok(processor.complete(outbox)?.done))
            .expect("it completes");
    }

    /// Whether it has to live on until its last epoch is committed.
    pub fn awaits_commit(&self) -> bool {
        self.processor.awaits_commit()
    }

    /// What it has set aside.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.context.dead_letters
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// Numbers by lot, the same each time: when something dies, and what is committed.
#[derive(Clone, Debug)]
pub struct Lot(crate::random::SplitMix64);

impl Lot {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Lot(crate::random::SplitMix64::new(seed))
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }
}
