//! What an instance may know of where it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::{Clock, DeadLetters, Epoch, Guarantee, InstanceMetrics, LocalStore, Origins, Waker};

/// How many records a chunk holds unless a node is told otherwise: enough to make a dynamic call a chunk cost next to nothing, and
/// few enough for two columns of them to stay in the first cache.
pub const DEFAULT_CHUNK_RECORDS: usize = 1024;

/// One parallel copy of a vertex, among its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instance {
    /// From zero, over the whole job.
    pub index: u32,
    /// How many instances the vertex has.
    pub parallelism: u32,
}

impl Instance {
    /// The only instance of a vertex.
    pub const ONLY: Instance = Instance {
        index: 0,
        parallelism: 1,
    };

    /// Whether piece `number` of some work (a file, a source partition) falls to this instance.
    pub const fn owns(self, number: u64) -> bool {
        number % self.parallelism as u64 == self.index as u64
    }
}

/// What the job is being asked to do, as an instance sees it.
///
/// A source learns of draining by [`on_drain`](crate::Processor::on_drain) and by nothing else: whatever it does in `complete`, it
/// does not know of it yet. Were it to look by itself, it could stop in a call that the runtime takes for the end of its input.
#[derive(Debug, Default)]
pub struct JobSignals {
    asked: Arc<Asked>,
    sight: Sight,
}

/// What all instances of a job are asked.
#[derive(Debug, Default)]
struct Asked {
    state: AtomicU8,
    epochs: AtomicU64,
    /// Epochs up to that one are ended no more.
    skipped: AtomicU64,
    was_drained: AtomicBool,
    is_paused: AtomicBool,
}

/// From when on draining is seen.
#[derive(Debug, Default)]
enum Sight {
    /// At once.
    #[default]
    AtOnce,
    /// Once the runtime has told it.
    OnceTold(AtomicBool),
}

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const CANCELLED: u8 = 2;

impl JobSignals {
    /// For the runtime: the same job's signals as a source sees them, which does not see that it drains until it is
    /// [told](Self::tell_draining).
    pub fn for_source(&self) -> JobSignals {
        JobSignals {
            asked: Arc::clone(&self.asked),
            sight: Sight::OnceTold(AtomicBool::new(false)),
        }
    }

    /// For the runtime: lets a source see it if the job drains; says whether it does.
    pub fn tell_draining(&self) -> bool {
        let drains = self.asked.state.load(Ordering::Acquire) >= DRAINING;
        if let Sight::OnceTold(told) = &self.sight
            && drains
        {
            told.store(true, Ordering::Release);
        }
        drains
    }

    /// Asks the sources to end as if their input had ended: results in flight come out.
    pub fn drain(&self) {
        let _ = self.asked.state.compare_exchange(
            RUNNING,
            DRAINING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Asks everything to stop at once.
    pub fn cancel(&self) {
        self.asked.state.store(CANCELLED, Ordering::Release);
    }

    /// Whether sources are to end. For a source itself false until [`on_drain`](crate::Processor::on_drain) is called, or the job
    /// is cancelled.
    pub fn is_draining(&self) -> bool {
        match (self.asked.state.load(Ordering::Acquire), &self.sight) {
            (RUNNING, _) => false,
            (DRAINING, Sight::OnceTold(told)) => told.load(Ordering::Acquire),
            _ => true,
        }
    }

    /// Whether everything is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.asked.state.load(Ordering::Acquire) == CANCELLED
    }

    /// For the runtime: a source has ended because it was asked to, and before its input had.
    pub fn note_drained(&self) {
        self.asked.was_drained.store(true, Ordering::Release);
    }

    /// Whether a source has ended because it was asked to, and before its input had.
    pub fn was_drained(&self) -> bool {
        self.asked.was_drained.load(Ordering::Acquire)
    }

    /// Asks the sources to read nothing until they are [resumed](Self::resume); what was read flows on.
    pub fn pause(&self) {
        self.asked.is_paused.store(true, Ordering::Release);
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.asked.is_paused.store(false, Ordering::Release);
    }

    /// Whether sources are to read nothing at the moment. The runtime does not call those that leave it to the runtime; see
    /// [`Processor::pauses_itself`](crate::Processor::pauses_itself).
    pub fn is_paused(&self) -> bool {
        self.asked.is_paused.load(Ordering::Acquire)
    }

    /// Asks the sources to end all epochs up to this one; without effect if that has been asked for. Epochs count from 1, or from the
    /// one that a job was restored from. Says whether it was news.
    pub fn ask_epoch_ends(&self, until: Epoch) -> bool {
        self.asked.epochs.fetch_max(until.0, Ordering::AcqRel) < until.0
    }

    /// The number of the latest epoch whose end has been asked for.
    pub fn epochs_asked(&self) -> u64 {
        self.asked.epochs.load(Ordering::Acquire)
    }

    /// Whoever has not ended these epochs yet needs not do so any more: nobody has asked for them, or nobody waits for them.
    pub fn skip_epochs(&self, until: Epoch) {
        self.asked.skipped.fetch_max(until.0, Ordering::AcqRel);
    }

    /// For the runtime: which epoch a source ends next that has ended `ended` last, if it is to end one.
    pub fn next_epoch(&self, ended: u64) -> Option<Epoch> {
        let asked = self.epochs_asked();
        // What is skipped may be known before what is asked for behind it.
        let behind = self.asked.skipped.load(Ordering::Acquire).saturating_add(1);
        (ended < asked).then(|| Epoch((ended + 1).max(behind.min(asked))))
    }
}

/// What an instance may know of where it runs; given to [`Processor::init`](crate::Processor::init).
#[derive(Clone, Debug)]
pub struct InstanceContext {
    /// The job's name.
    pub job: Arc<str>,
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// Which copy of the vertex this is.
    pub instance: Instance,
    /// The names of the vertices that feed it, by input.
    pub inputs: Arc<[Arc<str>]>,
    /// The time, or a test's idea of it.
    pub clock: Clock,
    /// What the job is asked to do; code that takes longer than a call should, looks now and then whether it is cancelled.
    pub signals: Arc<JobSignals>,
    /// Wakes this instance from another thread.
    pub waker: Waker,
    /// This instance's counters.
    pub metrics: Arc<InstanceMetrics>,
    /// Where records that could not be dealt with go.
    pub dead_letters: Arc<DeadLetters>,
    /// Where the records of the job's sources came from.
    pub origins: Arc<Origins>,
    /// How many records a chunk holds.
    pub chunk_records: usize,
    /// What the job promises: whether cuts will be asked for.
    pub guarantee: Guarantee,
    /// Where state goes that memory has no room for, if the job's state may lie on disk.
    pub local: Option<Arc<dyn LocalStore>>,
}

impl InstanceContext {
    /// A context outside of any job, for tests of a single processor.
    pub fn detached(vertex: &str) -> Self {
        InstanceContext {
            job: Arc::from("test"),
            vertex: Arc::from(vertex),
            instance: Instance::ONLY,
            inputs: Arc::from([]),
            clock: Clock::system(),
            signals: Arc::default(),
            waker: Waker::none(),
            metrics: Arc::default(),
            dead_letters: Arc::default(),
            origins: Arc::default(),
            chunk_records: DEFAULT_CHUNK_RECORDS,
            guarantee: Guarantee::None,
            local: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_sees_that_its_job_drains_when_it_is_told_and_not_before() {
        let job = JobSignals::default();
        let (told, untold) = (job.for_source(), job.for_source());
        assert!(!told.tell_draining() && !told.is_draining());
        job.drain();
        assert!(job.is_draining());
        assert!(!told.is_draining());
        assert!(told.tell_draining() && told.is_draining());
        assert!(!untold.is_draining());
        job.cancel();
        assert!(untold.is_draining() && untold.is_cancelled());
    }

    #[test]
    fn epochs_are_ended_one_by_one_but_for_those_that_are_skipped() {
        let job = JobSignals::default();
        assert_eq!(job.next_epoch(0), None);
        job.ask_epoch_ends(Epoch(2));
        assert_eq!(job.next_epoch(0), Some(Epoch(1)));
        assert_eq!(job.next_epoch(1), Some(Epoch(2)));
        // Known before what is asked for behind it.
        job.skip_epochs(Epoch(64));
        assert_eq!(job.next_epoch(2), None);
        assert_eq!(job.next_epoch(1), Some(Epoch(2)));
        job.ask_epoch_ends(Epoch(65));
        assert_eq!(job.next_epoch(2), Some(Epoch(65)));
        assert_eq!(job.next_epoch(65), None);
    }
}
