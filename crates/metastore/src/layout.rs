//! The paths of the cluster's nodes in the metadata store.
//!
//! ```text
//! /cluster                     the name of the cluster
//! /jobs/NAME/definition        definition and leaders' decisions; the job exists while it does
//! /jobs/NAME/packing-plan      containers and their instances, for readers
//! /jobs/NAME/scheduler         the name of its scheduler, and how it is reached; for readers
//! /jobs/NAME/chronicle         restarts, problems and notes; for users and the next leader
//! /jobs/NAME/master-SUBMISSION the leader's lease: its address, and the number of its term
//! /jobs/NAME/epochs-SUBMISSION the attempt of a job with a guarantee, and its committed epoch
//! /jobs/NAME/containers/ID     host and port of a container's worker; for readers
//! /jobs/NAME/checkpoints/EPOCH the manifest and place of a complete checkpoint
//! /history/NAME/SUBMISSION     the record of an ended job
//! /drains/ID                   a drained host; kept when the host goes away
//! /grid/record                 the grid of in-memory checkpoints; created on first use
//! /grid/members/ID             a member of the grid, tied to the session of its host
//! /workers/ID                  a worker of a session cluster without a job; tied to its session
//! ```
//!
//! A lease has the submission in its path because it is written independently of the job: a late
//! write for a removed job can't be mistaken for one of a later job of the same name. The record of
//! epochs has the submission in its path for the same reason.
//!
//! Names of jobs may be any text; numbers are padded so that they sort as text.

use crate::StatePath;
use ardea_core::{Epoch, Result};

/// Returns the path of the cluster's name.
pub fn cluster() -> Result<StatePath> {
    StatePath::root().child("cluster")
}

/// Returns the parent of all jobs.
pub fn jobs() -> Result<StatePath> {
    StatePath::root().child("jobs")
}

/// Returns the parent of all workers of a session cluster.
pub fn workers() -> Result<StatePath> {
    StatePath::root().child("workers")
}

/// Returns the path of a worker of a session cluster; the node is deleted with its session.
pub fn worker(id: &str) -> Result<StatePath> {
    workers()?.child_encoded(id)
}

/// Returns the parent of the drained hosts, whose names are its children.
pub fn drains() -> Result<StatePath> {
    StatePath::root().child("drains")
}

/// Returns the path of the node that exists while a host is drained.
pub fn drain(host: &str) -> Result<StatePath> {
    drains()?.child_encoded(host)
}

/// Returns the parent of the named tokens of the REST interface.
pub fn tokens() -> Result<StatePath> {
    StatePath::root().child("tokens")
}

/// Returns the path of a named token; `digest` is the digest of its secret.
pub fn token(digest: &str) -> Result<StatePath> {
    tokens()?.child_encoded(digest)
}

/// Returns the path of the record of the grid that stores checkpoints in the memory of hosts.
pub fn grid_record() -> Result<StatePath> {
    StatePath::root().child("grid")?.child("record")
}

/// Returns the parent of all members of the checkpoint grid.
pub fn grid_members() -> Result<StatePath> {
    StatePath::root().child("grid")?.child("members")
}

/// Returns the path of a member of the checkpoint grid; the node is deleted with the session of its
/// host.
pub fn grid_member(id: u64) -> Result<StatePath> {
    grid_members()?.child(&format!("{id:016x}"))
}

/// Returns the member with this node name below [`grid_members`]; `None` for any other name.
pub fn member_of(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(id)
}

/// Returns the parent of the records of ended jobs; its children are the names of the jobs.
pub fn history() -> Result<StatePath> {
    StatePath::root().child("history")
}

/// Returns the parent of the records of ended jobs of this name; its children are the submissions.
pub fn past_jobs(name: &str) -> Result<StatePath> {
    history()?.child_encoded(name)
}

/// Returns the path of the record of one ended submission of the job `name`.
pub fn past_job(name: &str, submission: u64) -> Result<StatePath> {
    past_jobs(name)?.child(&format!("{submission:016x}"))
}

/// Prefix of the node names of leaders' leases.
const MASTER: &str = "master-";

/// Prefix of the node names of records of epochs.
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
    checkpoints: StatePath,
}

impl JobLayout {
    /// Returns the nodes of the job of this name.
    ///
    /// Fails if the name is empty or too long for a path (200 bytes, where characters other than
    /// letters and digits count three).
    pub fn of(name: &str) -> Result<Self> {
        let base = jobs()?.child_encoded(name)?;
        Ok(JobLayout {
            definition: base.child("definition")?,
            packing_plan: base.child("packing-plan")?,
            scheduler: base.child("scheduler")?,
            chronicle: base.child("chronicle")?,
            containers: base.child("containers")?,
            checkpoints: base.child("checkpoints")?,
            base,
        })
    }

    /// Returns the parent of all nodes of the job, which has no value.
    pub fn base(&self) -> &StatePath {
        &self.base
    }

    /// Returns the path of the job's definition.
    pub fn definition(&self) -> &StatePath {
        &self.definition
    }

    /// Returns the path of the packing plan.
    pub fn packing_plan(&self) -> &StatePath {
        &self.packing_plan
    }

    /// Returns the path of the scheduler's address.
    pub fn scheduler(&self) -> &StatePath {
        &self.scheduler
    }

    /// Returns the path of the job's event history.
    pub fn chronicle(&self) -> &StatePath {
        &self.chronicle
    }

    /// Returns the path of the leader's lease for this submission of the job.
    pub fn master(&self, submission: u64) -> Result<StatePath> {
        self.base.child(&format!("{MASTER}{submission:016x}"))
    }

    /// Returns the path of the record of epochs of this submission: its current attempt and
    /// committed epoch.
    pub fn epochs(&self, submission: u64) -> Result<StatePath> {
        self.base.child(&format!("{EPOCHS}{submission:016x}"))
    }

    /// Returns the parent of all containers.
    pub fn containers(&self) -> &StatePath {
        &self.containers
    }

    /// Returns the path of the host and port of a container's worker, as reported to the leader.
    pub fn container(&self, id: u32) -> Result<StatePath> {
        self.containers.child(&format!("{id:010}"))
    }

    /// Returns the parent of the metadata of all complete checkpoints.
    pub fn checkpoints(&self) -> &StatePath {
        &self.checkpoints
    }

    /// Returns the path of the metadata of the checkpoint of this epoch.
    pub fn checkpoint(&self, epoch: Epoch) -> Result<StatePath> {
        self.checkpoints.child(&format!("{:020}", epoch.0))
    }
}

/// Parses the number in the name of a container's or a checkpoint's node.
pub fn number_of(name: &str) -> Option<u64> {
    name.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| name.parse().ok())?
}

/// Returns the submission whose lease has this node name below a job.
pub fn submission_of_lease(name: &str) -> Option<u64> {
    submission_of(name.strip_prefix(MASTER)?)
}

/// Returns the submission whose record of epochs has this node name below a job.
pub fn submission_of_epochs(name: &str) -> Option<u64> {
    submission_of(name.strip_prefix(EPOCHS)?)
}

/// Parses the submission in the node name of an ended job.
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
            assert_eq!(lease.name().and_then(submission_of_lease), Some(submission));
            let epochs = job.epochs(submission).expect("a path");
            let of = epochs.name().and_then(submission_of_epochs);
            assert_eq!(of, Some(submission));
            assert_eq!(epochs.name().and_then(submission_of_lease), None);
            let past = past_job("a", submission).expect("a path");
            assert_eq!(past.name().and_then(submission_of), Some(submission));
        }
        for other in ["master", "master-", "master-x", "definition"] {
            assert_eq!(submission_of_lease(other), None);
        }
    }

    #[test]
    fn checkpoints_sort_by_epoch_and_give_it_back() {
        let job = JobLayout::of("a").expect("a name");
        let epochs = [0, 9, 10, u64::MAX];
        let paths = epochs.map(|epoch| job.checkpoint(Epoch(epoch)).expect("a path"));
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
