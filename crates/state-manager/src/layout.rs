//! Where the cluster keeps what: paths, not contents.
//!
//! ```text
//! /jobs/NAME/definition        the job as it was submitted
//! /jobs/NAME/packing-plan      containers and the instances in each
//! /jobs/NAME/scheduler         how its scheduler is reached
//! /jobs/NAME/master            the leading job master: where it is; tied to its session, so it is its lease as well
//! /jobs/NAME/containers/ID     host and ports of a container's worker; tied to its session
//! /jobs/NAME/snapshots/EPOCH   what a complete snapshot consists of, and where it is
//! /workers/ID                  a worker of a session cluster, before it has a job; tied to its session
//! ```
//!
//! Names of jobs may be any text; numbers are written so that they sort as text as they do as numbers.

use crate::StatePath;
use ardea_core::{Epoch, Result};

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

/// The nodes of one job.
///
/// ```
/// use ardea_state_manager::layout::JobLayout;
///
/// let job = JobLayout::of("word count")?;
/// assert_eq!(job.master().as_str(), "/jobs/word%20count/master");
/// assert_eq!(job.container(7)?.as_str(), "/jobs/word%20count/containers/0000000007");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobLayout {
    base: StatePath,
    definition: StatePath,
    packing_plan: StatePath,
    scheduler: StatePath,
    master: StatePath,
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
            master: base.child("master")?,
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

    /// Where the leading job master is. It goes with the master's session, so it is a lease, and its version is the
    /// fencing token of what the master commands.
    pub fn master(&self) -> &StatePath {
        &self.master
    }

    /// Above all containers.
    pub fn containers(&self) -> &StatePath {
        &self.containers
    }

    /// Host and ports of a container's worker; goes with the worker's session.
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

#[cfg(test)]
mod tests {
    use super::*;

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
