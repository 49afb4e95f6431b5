//! Where the cluster keeps what: paths, not contents.
//!
//! ```text
//! /cluster                     the name of the cluster whose state this is
//! /jobs/NAME/definition        the job: as it was submitted, and what its masters decide; the job is there while this is
//! /jobs/NAME/packing-plan      containers and the instances in each, for readers; written after the definition
//! /jobs/NAME/scheduler         the name of its scheduler, and how it is reached; for readers
//! /jobs/NAME/chronicle         what its masters have seen: restarts, problems, notes; for people, and the next master to go on from
//! /jobs/NAME/master-SUBMISSION the leading job master's lease: where it is, and the number of its mastership
//! /jobs/NAME/epochs-SUBMISSION which life a job with a guarantee is in, and which epoch is committed
//! /jobs/NAME/containers/ID     host and port of a container's worker; for readers
//! /jobs/NAME/snapshots/EPOCH   what a complete snapshot consists of, and where it is
//! /history/NAME/SUBMISSION     what is remembered of a job that is gone
//! /drains/ID                   a host of that name is drained; stays when the host goes
//! /grid/record                 which grid keeps the snapshots of jobs in the memory of hosts, and who founded it; there once a job has wanted it
//! /grid/members/ID             a member of it, tied to the session of its host
//! /workers/ID                  a worker of a session cluster, before it has a job; tied to its session
//! ```
//!
//! A lease has the submission in its path, because it is written on its own: one that is written late, for a job that is gone, can't
//! be taken for that of a later job of the same name. So has the record of epochs.
//!
//! Names of jobs may be any text; numbers are written so that they sort as text as they do as numbers.

use crate::StatePath;
use ardea_core::{Epoch, Result};

/// Whose state it is: the name of the cluster.
pub fn cluster() -> Result<StatePath> {
    StatePath::root().child("cluster")
}

/// Above all jobs; its children are jobs.
pub fn jobs() -> Result<StatePath> {
    StatePath::root().child("jobs")
}

/// Above all workers of a session cluster.
pub fn workers() -> Result<StatePath> {
    StatePath::root().child("workers")
}

/// One worker of a session cluster; its node goes with its session.
pub fn worker(id: &str) -> Result<StatePath> {
    workers()?.child_of_any_name(id)
}

/// Above the hosts that are drained; its children are their names.
pub fn drains() -> Result<StatePath> {
    StatePath::root().child("drains")
}

/// A host is drained while this node is there.
pub fn drain(host: &str) -> Result<StatePath> {
    drains()?.child_of_any_name(host)
}

/// Which grid keeps the snapshots of jobs in the memory of hosts.
pub fn grid_record() -> Result<StatePath> {
    StatePath::root().child("grid")?.child("record")
}

/// Above all members of that grid.
pub fn grid_members() -> Result<StatePath> {
    StatePath::root().child("grid")?.child("members")
}

/// A member of that grid; its node goes with the session of its host.
pub fn grid_member(id: u64) -> Result<StatePath> {
    grid_members()?.child(&format!("{id:016x}"))
}

/// Which member a node below [`grid_members`] is of, by its name.
pub fn member_of(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(id)
}

/// Above what is remembered of jobs that are gone; its children are their names.
pub fn history() -> Result<StatePath> {
    StatePath::root().child("history")
}

/// Above what is remembered of the jobs of this name that are gone; its children are their submissions.
pub fn past_jobs(name: &str) -> Result<StatePath> {
    history()?.child_of_any_name(name)
}

/// What is remembered of one submission of that name.
pub fn past_job(name: &str, submission: u64) -> Result<StatePath> {
    past_jobs(name)?.child(&format!("{submission:016x}"))
}

/// What the names of leases begin with.
const MASTER: &str = "master-";

/// What the names of records of epochs begin with.
const EPOCHS: &str = "epochs-";

/// The nodes of one job.
///
/// ```
/// use ardea_metastore::layout::JobLayout;
///
/// let job = JobLayout::of("word count")?;
/// assert_eq!(job.master(42)?.as_str(), "/jobs/word%20count/master-000000000000002a");
/// assert_eq!(job.container(7)?.as_str(), "/jobs/word%20count/containers/0000000007");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobLayout {
    base: StatePath,
    definition: StatePath,
    packing_plan: StatePath,
    scheduler: StatePath,
    chronicle: StatePath,
    containers: StatePath,
    snapshots: StatePath,
}

impl JobLayout {
    /// The nodes of the job of this name.
    ///
    /// Fails if the name is empty or too long for a path (200 bytes, other characters than letters and digits count
    /// three).
    pub fn of(name: &str) -> Result<Self> {
        let base = jobs()?.child_of_any_name(name)?;
        Ok(JobLayout {
            definition: base.child("definition")?,
            packing_plan: base.child("packing-plan")?,
            scheduler: base.child("scheduler")?,
            chronicle: base.child("chronicle")?,
            containers: base.child("containers")?,
            snapshots: base.child("snapshots")?,
            base,
        })
    }

    /// Above all nodes of the job; itself without a value.
    pub fn base(&self) -> &StatePath {
        &self.base
    }

    /// The job as it was submitted.
    pub fn definition(&self) -> &StatePath {
        &self.definition
    }

    /// The containers, and the instances in each.
    pub fn packing_plan(&self) -> &StatePath {
        &self.packing_plan
    }

    /// How the job's scheduler is reached.
    pub fn scheduler(&self) -> &StatePath {
        &self.scheduler
    }

    /// What the job's masters have seen of it.
    pub fn chronicle(&self) -> &StatePath {
        &self.chronicle
    }

    /// Who leads this submission of the job, where, and in which mastership. It is a lease: what is not renewed ends.
    pub fn master(&self, submission: u64) -> Result<StatePath> {
        self.base.child(&format!("{MASTER}{submission:016x}"))
    }

    /// Which life this submission of the job is in, and which of its epochs is committed, if it has a guarantee.
    pub fn epochs(&self, submission: u64) -> Result<StatePath> {
        self.base.child(&format!("{EPOCHS}{submission:016x}"))
    }

    /// Above all containers.
    pub fn containers(&self) -> &StatePath {
        &self.containers
    }

    /// Host and port of a container's worker, as its master was told.
    pub fn container(&self, id: u32) -> Result<StatePath> {
        self.containers.child(&format!("{id:010}"))
    }

    /// Above the metadata of all complete snapshots.
    pub fn snapshots(&self) -> &StatePath {
        &self.snapshots
    }

    /// What the snapshot of the end of this epoch consists of, and where it is.
    pub fn snapshot(&self, epoch: Epoch) -> Result<StatePath> {
        self.snapshots.child(&format!("{:020}", epoch.0))
    }
}

/// The number that a container's or a snapshot's node is named for, if it is one.
pub fn number_of(name: &str) -> Option<u64> {
    name.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| name.parse().ok())?
}

/// The submission that a node of this name right below a job is the lease of, if it is one.
pub fn submission_led_by(name: &str) -> Option<u64> {
    submission_of(name.strip_prefix(MASTER)?)
}

/// The submission that a node of this name right below a job is the record of epochs of, if it is one.
pub fn submission_with_epochs(name: &str) -> Option<u64> {
    submission_of(name.strip_prefix(EPOCHS)?)
}

/// The submission that a node of a job that is gone is named for, if it is one.
pub fn submission_of(name: &str) -> Option<u64> {
    let digits = name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(name, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_and_a_record_of_epochs_name_their_submission() {
        let job = JobLayout::of("a").expect("a name");
        for submission in [0, 42, u64::MAX] {
            let lease = job.master(submission).expect("a path");
            assert_eq!(lease.name().and_then(submission_led_by), Some(submission));
            let epochs = job.epochs(submission).expect("a path");
            let of = epochs.name().and_then(submission_with_epochs);
            assert_eq!(of, Some(submission));
            assert_eq!(epochs.name().and_then(submission_led_by), None);
            let past = past_job("a", submission).expect("a path");
            assert_eq!(past.name().and_then(submission_of), Some(submission));
        }
        for other in ["master", "master-", "master-x", "definition"] {
            assert_eq!(submission_led_by(other), None);
        }
    }

    #[test]
    fn snapshots_sort_by_epoch_and_give_it_back() {
        let job = JobLayout::of("a").expect("a name");
        let epochs = [0, 9, 10, u64::MAX];
        let paths = epochs.map(|epoch| job.snapshot(Epoch(epoch)).expect("a path"));
        assert!(paths.is_sorted());
        let numbers = paths.map(|path| path.name().and_then(number_of));
        assert_eq!(numbers, epochs.map(Some));
        assert_eq!(number_of("x1"), None);
    }

    #[test]
    fn two_jobs_never_share_a_node_and_the_name_comes_back() {
        let names = ["a/b", "a%2Fb", "ä", ".hidden", "a b"];
        for (i, name) in names.iter().enumerate() {
            let job = JobLayout::of(name).expect(name);
            assert_eq!(job.base().any_name().as_deref(), Some(*name));
            for other in &names[i + 1..] {
                assert_ne!(job, JobLayout::of(other).expect(other));
            }
        }
        assert!(JobLayout::of("").is_err());
    }
}
