//! Who speaks, and in which order what was said counts.

use std::fmt;

use crate::packing::ContainerId;
use serde::{Deserialize, Serialize};

/// The version of the messages between workers and master; both sides need the same.
pub const PROTOCOL: u32 = 3;

/// The number of a mastership of a job: each master's is above those of all masters before it.
///
/// It is the fencing number: whoever has seen an epoch does nothing that a master of a lower one says.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MasterEpoch(pub u64);

impl MasterEpoch {
    /// The next mastership.
    pub const fn next(self) -> Self {
        MasterEpoch(self.0 + 1)
    }
}

/// The number of a packing plan of a job, from one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PlanVersion(pub u64);

/// The place of something that masters say among all that the masters of a job say: later ones are greater.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Order {
    /// Who says it.
    pub epoch: MasterEpoch,
    /// Counted by that master, from one.
    pub number: u64,
}

/// One life of a container's worker process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WorkerId {
    /// The container.
    pub container: ContainerId,
    /// Which life; whoever starts containers gives a greater number to each start of a container, its count or the time.
    pub incarnation: u64,
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.container, self.incarnation)
    }
}

/// One submission of a job: a name may be used again when its job is gone, and then it is another submission.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobRef {
    /// The cluster's name.
    pub cluster: String,
    /// The job's name, unique in the cluster.
    pub name: String,
    /// A random number that the submitter chose.
    pub submission: u64,
}

impl JobRef {
    /// The job as its processes speak of it when they greet each other: `word-count#2a`, the submission in hexadecimal digits.
    pub fn key(&self) -> String {
        format!("{}#{:x}", self.name, self.submission)
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}
