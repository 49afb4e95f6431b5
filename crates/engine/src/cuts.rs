//! Where the cuts of a job's instances go, and where the state comes from that they begin with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, Epoch, Error, Instance, MetricsSnapshot, PartitionId, Result, StateChunk, Waker,
};

use crate::Keepsakes;

/// An instance, as those who keep its state know it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InstanceName {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// Which of how many.
    pub instance: Instance,
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.vertex, self.instance.index)
    }
}

/// What a cut came to that was handed over whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutReport {
    /// Which.
    pub cut: Cut,
    /// How many entries it has.
    pub entries: u64,
    /// How many bytes they take in their chunks.
    pub bytes: u64,
    /// How long after it was taken.
    pub took: Duration,
    /// What the instance had counted when it was taken.
    pub counted: Counted,
}

/// Records that an instance has counted since its job was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Late records.
    pub late: u64,
    /// Records that are missing in some of their windows.
    pub late_in_part: u64,
    /// Bad records.
    pub bad: u64,
}

impl Counted {
    /// The sums of both.
    pub fn plus(self, other: Counted) -> Counted {
        Counted {
            records_in: self.records_in.saturating_add(other.records_in),
            records_out: self.records_out.saturating_add(other.records_out),
            late: self.late.saturating_add(other.late),
            late_in_part: self.late_in_part.saturating_add(other.late_in_part),
            bad: self.bad.saturating_add(other.bad),
        }
    }
}

impl From<&MetricsSnapshot> for Counted {
    fn from(metrics: &MetricsSnapshot) -> Self {
        Counted {
            records_in: metrics.records_in,
            records_out: metrics.records_out,
            late: metrics.late,
            late_in_part: metrics.late_in_part,
            bad: metrics.bad,
        }
    }
}

/// Why a cut was not handed over whole.
#[derive(Clone, Debug)]
pub enum CutEnd {
    /// Its epoch had been given up, or the next one ended, before it was written.
    Superseded,
    /// The instance failed to take it, or to write it.
    Failed(Error),
}

/// Takes the cuts of the instances of a job.
///
/// Called on the threads that records flow on, a handful of times a cut: nothing here may block. The calls for one instance come one
/// after the other: [`buffer`](Self::buffer) and [`take`](Self::take) in turn, then [`finish`](Self::finish) or
/// [`give_up`](Self::give_up). Of each instance there is at most one cut under way. An instance that remembers nothing hands over cuts
/// without entries of its own, and so says that it has come to the end of the epoch.
///
/// A cut that [is the last](Cut::is_last) holds for its epoch and all later ones: its instance has ended. It is handed over also if its
/// own epoch is given up meanwhile. An instance that is about to run elsewhere hands over no last cut.
pub trait CutSink: Send + Sync {
    /// Whether the cut of this epoch is to hold all state of the instance, and not only what has changed. One that has never been told
    /// of a commit hands over all of it anyway.
    fn wants_all(&self, of: &InstanceName, epoch: Epoch) -> bool {
        let _ = (of, epoch);
        false
    }

    /// An empty chunk to write the next entries to; none if there is no room at the moment. Then `waker` is woken when there is, and
    /// records go on until then.
    fn buffer(&self, of: &InstanceName, waker: &Waker) -> Option<StateChunk>;

    /// The next entries of a cut, in a chunk that came from [`buffer`](Self::buffer).
    fn take(&self, of: &InstanceName, cut: Cut, entries: StateChunk);

    /// The last entries of a cut, if there are any; it is whole.
    fn finish(&self, of: &InstanceName, report: CutReport, entries: StateChunk);

    /// The rest of a cut will not come. What has come of it is void.
    fn give_up(&self, of: &InstanceName, cut: Cut, why: CutEnd);

    /// The instance has been told that this epoch is committed, and all before it, and has done what it does then.
    fn heard(&self, of: &InstanceName, epoch: Epoch) {
        let _ = (of, epoch);
    }

    /// The instance has ended, its last cut has been handed over, or given up, and it waits for no commit: nobody has to wait
    /// for it any more.
    fn left(&self, of: &InstanceName) {
        let _ = of;
    }
}

/// Hands out the state that the instances of a job begin with: all of it from one committed epoch.
pub trait CutSource: Send + Sync {
    /// Which epoch. The first that ends now is the next one.
    fn epoch(&self) -> Epoch;

    /// Opens the state for an instance: at least the entries of its vertex with the partitions that it owns, and those with none. Of each
    /// key there is one entry, the newest; keys that were removed have none.
    ///
    /// # Errors
    /// Whatever keeps it from being read; the job then does not start.
    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>>;
}

/// Reads the state of one instance.
pub trait CutReader: Send {
    /// Puts the next entries into `into`, which is empty. Does not block: if there are none yet, `waker` is woken when there are.
    ///
    /// # Errors
    /// Whatever keeps them from being read; fails the job.
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead>;

    /// Asked before anything is read: about how many entries there are, if they can be read partition by partition.
    fn entries_by_partition(&self) -> Option<u64> {
        None
    }

    /// Before anything is read: from here on what has no partition comes first, and then [that it is there](CutRead::Base); behind
    /// that whole partitions, each followed by [that it is](CutRead::Partition), all that the instance owns.
    fn go_by_partition(&mut self) {}

    /// These come before any others that are not on their way yet, in this order.
    fn hurry(&mut self, partitions: &[PartitionId]) {
        let _ = partitions;
    }
}

/// What came of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutRead {
    /// There are entries.
    Entries,
    /// None yet.
    NotYet,
    /// All that has no partition has been read.
    Base,
    /// All entries of this partition have been read.
    Partition(PartitionId),
    /// There is nothing more.
    End,
}

/// Where the cuts of a job go, and where its state comes from. By default cuts are not taken, and a job begins with nothing.
#[derive(Clone, Default)]
pub struct Cuts {
    /// Takes the cuts.
    pub sink: Option<Arc<dyn CutSink>>,
    /// Gives the instances their state when the job starts.
    pub source: Option<Arc<dyn CutSource>>,
    /// No epoch up to this one ends here, though the state be from an earlier one: for those whose numbers others have used.
    pub after: Epoch,
    /// Where instances leave what they remember when the job is ended, for another life of it in this process.
    pub leaves: Option<Arc<Keepsakes>>,
    /// What those of the life before have left. Taken by those that it fits if the job begins from the epoch that they had come to the end of;
    /// their state is not opened then.
    pub left: Option<Arc<Keepsakes>>,
}

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuts")
            .field("are_taken", &self.sink.is_some())
            .field("restored", &self.source.as_ref().map(|from| from.epoch()))
            .finish()
    }
}

/// What came of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Committed(Epoch),
    GivenUp(Epoch),
}
