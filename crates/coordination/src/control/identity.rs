//! Identities of jobs and workers, and the fencing and order of the leader's commands.

use std::fmt;

use crate::packing::ContainerId;
use serde::{Deserialize, Serialize};

/// The version of the protocol between workers and leader; both must use the same.
pub const PROTOCOL: u32 = 4;

/// The master epoch: the number of a leadership of a job, greater than the numbers of all earlier
/// leaderships.
///
/// It is the fencing token of commands: a receiver ignores a command with a lower epoch than one
/// that it has received.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MasterEpoch(pub u64);

impl MasterEpoch {
    /// Returns the epoch after this one.
    pub const fn next(self) -> Self {
        MasterEpoch(self.0 + 1)
    }
}

/// The version of a job's packing plan, counted from one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PlanVersion(pub u64);

/// The position of a command in the total order of all commands of a job's leaders.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Order {
    /// The master epoch of the leader that issued the command.
    pub epoch: MasterEpoch,
    /// The number of the command in this master epoch, counted from one.
    pub number: u64,
}

/// The identity of one start of a container's worker process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WorkerId {
    /// The container.
    pub container: ContainerId,
    /// The number of the start. The scheduler assigns a greater number, such as a count or the
    /// time, to each new start of a container.
    pub incarnation: u64,
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.container, self.incarnation)
    }
}

/// The identity of one submission of a job. A name can be reused after its job is gone; the new job
/// is another submission.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct JobRef {
    /// The cluster's name.
    pub cluster: String,
    /// The job's name, unique in the cluster.
    pub name: String,
    /// The random number of the submission, chosen by the submitter.
    pub submission: u64,
}

impl JobRef {
    /// Returns the job's key, its identifier in the handshake between processes. An example is
    /// `word-count#2a`: the name, and the submission in hexadecimal digits.
    pub fn key(&self) -> String {
        format!("{}#{:x}", self.name, self.submission)
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}
