//! Serialisable reasons of refusals, with the differing values of both sides.

use crate::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::control::{EpochNotDone, JobRef, MasterEpoch};

/// The reason for which a process of the cluster, or a command, was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The protocol versions differ.
    #[error("this process speaks version {theirs} of the protocol, its master version {ours}")]
    VersionMismatch {
        /// The master's version.
        ours: u32,
        /// The process's version.
        theirs: u32,
    },
    /// The process belongs to another cluster.
    #[error("this process belongs to cluster {theirs:?}, the master to {ours:?}")]
    WrongCluster {
        /// The master's cluster.
        ours: String,
        /// The process's cluster.
        theirs: String,
    },
    /// The process belongs to another job, or to an earlier job of the same name.
    #[error("this process belongs to job {theirs}, the master to {ours}")]
    WrongJob {
        /// The master's job.
        ours: String,
        /// The process's job.
        theirs: String,
    },
    /// The plan has no such container.
    #[error("the plan has no container {0}")]
    UnknownContainer(ContainerId),
    /// The container has a newer worker than the refused one.
    #[error(
        "container {container} has been started again since (start {newest}, this is {theirs})"
    )]
    Replaced {
        /// The container.
        container: ContainerId,
        /// The newest known start of the container.
        newest: u64,
        /// The start to which the refused worker belongs.
        theirs: u64,
    },
    /// Another leader has taken over, or the receiver of the request no longer leads the job.
    #[error("{}", not_master(*newest))]
    NotMaster {
        /// The newest master epoch; zero if the leader is unknown.
        newest: MasterEpoch,
    },
    /// The cluster has another job of this name.
    #[error("cluster {cluster:?} has a job {name:?} already")]
    NameTaken {
        /// The cluster.
        cluster: String,
        /// The job's name.
        name: String,
    },
    /// The cluster has no job of this name, or no longer.
    #[error("there is no job {0}")]
    NoSuchJob(String),
    /// The job is in a state in which the command is not possible.
    #[error("job {job} is {doing}")]
    Busy {
        /// The job.
        job: String,
        /// The current operation, such as "being updated" or "being killed".
        doing: String,
    },
    /// The job cannot be packed, or the requested change is invalid. Code and message are those of
    /// the packing error.
    #[error("{message}")]
    Impossible {
        /// True if the resources do not suffice; false if the request is invalid, such as an
        /// unknown vertex.
        resources: bool,
        /// The error message.
        message: String,
        /// The hint, if any.
        hint: Option<String>,
    },
    /// The metadata store rejects the write of a decision, or the stored value cannot be read. Code
    /// and message are those of the store's error. If it is unknown whether the write was done, the
    /// code is [`ErrorCode::Superseded`].
    #[error("{message}")]
    NotStored {
        /// The code of the error.
        #[serde(with = "code_by_name")]
        code: ErrorCode,
        /// The error message.
        message: String,
        /// The hint, if any.
        hint: Option<String>,
    },
    /// The job has no guarantee, and so no epochs.
    #[error("job {0} has no guarantee, and so no checkpoints")]
    NoEpochs(String),
    /// The requested checkpoint operation was not done.
    #[error("{0}")]
    NotDone(Box<EpochNotDone>),
}

impl From<EpochNotDone> for Rejection {
    fn from(not_done: EpochNotDone) -> Self {
        Rejection::NotDone(Box::new(not_done))
    }
}

impl Rejection {
    pub(crate) fn no_epochs(job: &JobRef) -> Self {
        Rejection::NoEpochs(job.to_string())
    }

    /// Returns the stable error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Rejection::VersionMismatch { .. } => ErrorCode::VersionMismatch,
            Rejection::WrongCluster { .. } | Rejection::WrongJob { .. } => ErrorCode::WrongCluster,
            Rejection::UnknownContainer(_) => ErrorCode::NoSuchContainer,
            Rejection::Replaced { .. } | Rejection::NotMaster { .. } => ErrorCode::Superseded,
            Rejection::NameTaken { .. } => ErrorCode::NameTaken,
            Rejection::NoSuchJob(_) => ErrorCode::NoSuchJob,
            Rejection::Busy { .. } => ErrorCode::WrongState,
            Rejection::Impossible {
                resources: true, ..
            } => ErrorCode::ResourcesImpossible,
            Rejection::Impossible {
                resources: false, ..
            } => ErrorCode::InvalidJob,
            Rejection::NotStored { code, .. } => *code,
            Rejection::NoEpochs(_) => ErrorCode::WrongState,
            Rejection::NotDone(not_done) => not_done.code(),
        }
    }

    /// Returns the hint for users.
    pub fn hint(&self) -> &str {
        match self {
            Rejection::VersionMismatch { .. } => "start both from the same version of the program",
            Rejection::WrongCluster { .. } | Rejection::WrongJob { .. } => {
                "check the name of the cluster and the job that the process was started with"
            }
            Rejection::UnknownContainer(_) => "the job's plan shows its containers",
            Rejection::Replaced { .. } => "nothing: this process ends, the job goes on",
            Rejection::NotMaster { .. } => {
                "the job keeps running; the request is repeated to the new leader"
            }
            Rejection::NameTaken { .. } => "choose another name, or kill that job",
            Rejection::NoSuchJob(_) => "check the list of the cluster's jobs",
            Rejection::Busy { .. } => "try again when that has ended",
            Rejection::Impossible { hint, .. } => match hint {
                Some(hint) => hint,
                None => "change the request",
            },
            Rejection::NotStored { hint, .. } => match hint {
                Some(hint) => hint,
                None => "check the cluster's metadata store, and try again",
            },
            Rejection::NoEpochs(_) => "submit it with a guarantee",
            Rejection::NotDone(not_done) => not_done.hint(),
        }
    }

    /// Creates the rejection for a permanent `error` of the metadata store.
    pub fn not_stored(error: &Error) -> Self {
        Rejection::NotStored {
            code: error.code(),
            message: error.message(),
            hint: error.hint_text().map(str::to_string),
        }
    }

    /// Returns true if the rejection means permanently damaged or missing data, rather than
    /// temporary unavailability.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(
            self,
            Rejection::NotStored {
                code: ErrorCode::CheckpointDamaged
                    | ErrorCode::NoSuchCheckpoint
                    | ErrorCode::VersionMismatch,
                ..
            }
        )
    }

    /// Creates the rejection for a write of unknown outcome, whose verifying read failed for `why`.
    /// The code is that of all commands with an unknown outcome, since any other code means a
    /// refusal.
    pub(crate) fn doubtful(why: &Rejection) -> Self {
        Rejection::NotStored {
            code: ErrorCode::Superseded,
            message: format!("it is not known whether this was stored: {why}"),
            hint: Some(why.hint().to_string()),
        }
    }

    pub(crate) fn impossible(error: &Error) -> Self {
        Rejection::Impossible {
            resources: error.code() == ErrorCode::ResourcesImpossible,
            message: error.message(),
            hint: error.hint_text().map(str::to_string),
        }
    }
}

fn not_master(newest: MasterEpoch) -> String {
    match newest.0 {
        0 => "this process leads the job no longer".to_string(),
        number => format!("master {number} has taken over"),
    }
}

impl From<Rejection> for Error {
    fn from(refused: Rejection) -> Error {
        let (code, hint) = (refused.code(), refused.hint().to_string());
        match refused {
            // The message of the error is complete.
            Rejection::Impossible { message, .. } | Rejection::NotStored { message, .. } => {
                Error::new(code, message)
            }
            refused => Error::new(code, "refused").because(refused),
        }
        .hint(hint)
    }
}

/// Serializes an error code by its stable name.
mod code_by_name {
    use std::borrow::Cow;

    use ardea_core::ErrorCode;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(code: &ErrorCode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(code.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ErrorCode, D::Error> {
        let name = Cow::<str>::deserialize(from)?;
        let unknown = || D::Error::custom(format!("{name:?} is no code"));
        ErrorCode::from_name(&name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stored_keeps_code_text_and_hint_of_its_error_wherever_it_goes() {
        let error = Error::new(ErrorCode::MetastoreCorrupt, "the job's node is damaged")
            .because("no JSON")
            .hint("remove it");
        let refused = Rejection::not_stored(&error);
        let sent = serde_json::to_string(&refused).unwrap();
        let received: Rejection = serde_json::from_str(&sent).unwrap();
        assert_eq!(received, refused);
        assert_eq!(Error::from(received).to_string(), error.to_string());
        let unknown = sent.replace(ErrorCode::MetastoreCorrupt.as_str(), "ARD-0");
        assert!(serde_json::from_str::<Rejection>(&unknown).is_err());
    }

    #[test]
    fn a_former_leader_names_its_successor_only_if_it_is_known() {
        let error = |epoch| {
            let newest = MasterEpoch(epoch);
            Error::from(Rejection::NotMaster { newest }).to_string()
        };
        assert!(error(3).contains("master 3 has taken over"), "{}", error(3));
        assert!(error(0).contains("leads the job no longer"), "{}", error(0));
    }
}
