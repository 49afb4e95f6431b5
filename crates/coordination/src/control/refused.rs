//! Refusals that travel: what is wrong, with both sides' values.

use crate::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::control::{EpochNotDone, JobRef, MasterEpoch};

/// Why a process of the cluster, or a command, was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The versions of the messages differ.
    #[error("this process speaks version {theirs} of the protocol, its master version {ours}")]
    VersionMismatch {
        /// The master's.
        ours: u32,
        /// The process's.
        theirs: u32,
    },
    /// The process belongs to another cluster.
    #[error("this process belongs to cluster {theirs:?}, the master to {ours:?}")]
    WrongCluster {
        /// The master's.
        ours: String,
        /// The process's.
        theirs: String,
    },
    /// The process belongs to another job, or to an earlier one of this name.
    #[error("this process belongs to job {theirs}, the master to {ours}")]
    WrongJob {
        /// The master's.
        ours: String,
        /// The process's.
        theirs: String,
    },
    /// The plan has no such container.
    #[error("the plan has no container {0}")]
    UnknownContainer(ContainerId),
    /// The container has a newer worker.
    #[error(
        "container {container} has been started again since (start {newest}, this is {theirs})"
    )]
    Replaced {
        /// The container.
        container: ContainerId,
        /// The newest start.
        newest: u64,
        /// The refused one's.
        theirs: u64,
    },
    /// Another master has taken over, or whoever was asked leads the job no longer.
    #[error("{}", not_master(*newest))]
    NotMaster {
        /// The newest mastership; zero if it isn't known who leads.
        newest: MasterEpoch,
    },
    /// Another job of the cluster has the name.
    #[error("cluster {cluster:?} has a job {name:?} already")]
    NameTaken {
        /// The cluster.
        cluster: String,
        /// The job's name.
        name: String,
    },
    /// The cluster has no such job, or no longer.
    #[error("there is no job {0}")]
    NoSuchJob(String),
    /// The job is doing something that this can't be done beside.
    #[error("job {job} is {doing}")]
    Busy {
        /// The job.
        job: String,
        /// What it is doing: "being updated", "being killed".
        doing: String,
    },
    /// The job can't be packed, or the change makes no sense; code and text are those of the error.
    #[error("{message}")]
    Impossible {
        /// Whether the resources don't suffice, or the job has no such vertex.
        resources: bool,
        /// What is wrong.
        message: String,
        /// What to do next, if that is known.
        hint: Option<String>,
    },
    /// The state manager does not take what was decided, or what it has can't be read; code and text are those of its error. If it is not
    /// known whether it has taken it, the code says so: [`ErrorCode::Superseded`].
    #[error("{message}")]
    NotStored {
        /// What kind of failure it is.
        #[serde(with = "code_by_name")]
        code: ErrorCode,
        /// What is wrong.
        message: String,
        /// What to do next, if that is known.
        hint: Option<String>,
    },
    /// The job promises nothing: it has no epochs.
    #[error("job {0} has no guarantee, and so no snapshots")]
    NoEpochs(String),
    /// What was wanted of the job's epochs was not done.
    #[error("{0}")]
    NotDone(Box<EpochNotDone>),
}

impl From<EpochNotDone> for Refused {
    fn from(not_done: EpochNotDone) -> Self {
        Refused::NotDone(Box::new(not_done))
    }
}

impl Refused {
    pub(crate) fn no_epochs(job: &JobRef) -> Self {
        Refused::NoEpochs(job.to_string())
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Refused::VersionMismatch { .. } => ErrorCode::VersionMismatch,
            Refused::WrongCluster { .. } | Refused::WrongJob { .. } => ErrorCode::WrongCluster,
            Refused::UnknownContainer(_) => ErrorCode::NoSuchContainer,
            Refused::Replaced { .. } | Refused::NotMaster { .. } => ErrorCode::Superseded,
            Refused::NameTaken { .. } => ErrorCode::NameTaken,
            Refused::NoSuchJob(_) => ErrorCode::NoSuchJob,
            Refused::Busy { .. } => ErrorCode::WrongState,
            Refused::Impossible {
                resources: true, ..
            } => ErrorCode::ResourcesImpossible,
            Refused::Impossible {
                resources: false, ..
            } => ErrorCode::InvalidJob,
            Refused::NotStored { code, .. } => *code,
            Refused::NoEpochs(_) => ErrorCode::WrongState,
            Refused::NotDone(not_done) => not_done.code(),
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &str {
        match self {
            Refused::VersionMismatch { .. } => "start both from the same version of the program",
            Refused::WrongCluster { .. } | Refused::WrongJob { .. } => {
                "check the name of the cluster and the job that the process was started with"
            }
            Refused::UnknownContainer(_) => "the job's plan shows its containers",
            Refused::Replaced { .. } => "nothing: this process ends, the job goes on",
            Refused::NotMaster { .. } => {
                "the job goes on; what was asked of it is asked again of whoever leads it then"
            }
            Refused::NameTaken { .. } => "choose another name, or kill that job",
            Refused::NoSuchJob(_) => "look at the list of the cluster's jobs",
            Refused::Busy { .. } => "try again when that has ended",
            Refused::Impossible { hint, .. } => match hint {
                Some(hint) => hint,
                None => "ask for something else",
            },
            Refused::NotStored { hint, .. } => match hint {
                Some(hint) => hint,
                None => "look at the cluster's state, and try again",
            },
            Refused::NoEpochs(_) => "submit it with a guarantee",
            Refused::NotDone(not_done) => not_done.hint(),
        }
    }

    /// What the state manager says, however often it is asked.
    pub fn not_stored(error: &Error) -> Self {
        Refused::NotStored {
            code: error.code(),
            message: error.message(),
            hint: error.what_next().map(str::to_string),
        }
    }

    /// Whether it says that something is damaged or gone for good, and not that it can't be had at the moment.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(
            self,
            Refused::NotStored {
                code: ErrorCode::SnapshotDamaged
                    | ErrorCode::NoSuchSnapshot
                    | ErrorCode::VersionMismatch,
                ..
            }
        )
    }

    /// It is not known whether something was stored, since what there is can't be read for that reason. The code is that of all commands
    /// that may have been done; any other would be taken for a refusal.
    pub(crate) fn doubtful(why: &Refused) -> Self {
        Refused::NotStored {
            code: ErrorCode::Superseded,
            message: format!("it is not known whether this was stored: {why}"),
            hint: Some(why.hint().to_string()),
        }
    }

    pub(crate) fn impossible(error: &Error) -> Self {
        Refused::Impossible {
            resources: error.code() == ErrorCode::ResourcesImpossible,
            message: error.message(),
            hint: error.what_next().map(str::to_string),
        }
    }
}

fn not_master(newest: MasterEpoch) -> String {
    match newest.0 {
        0 => "this process leads the job no longer".to_string(),
        number => format!("master {number} has taken over"),
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        let (code, hint) = (refused.code(), refused.hint().to_string());
        match refused {
            // It says itself what can't be.
            Refused::Impossible { message, .. } | Refused::NotStored { message, .. } => {
                Error::new(code, message)
            }
            refused => Error::new(code, "refused").because(refused),
        }
        .hint(hint)
    }
}

/// A code travels as its stable name.
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
        ErrorCode::named(&name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stored_keeps_code_text_and_hint_of_its_error_wherever_it_goes() {
        let error = Error::new(ErrorCode::StateCorrupt, "the job's node is damaged")
            .because("no JSON")
            .hint("remove it");
        let refused = Refused::not_stored(&error);
        let sent = serde_json::to_string(&refused).unwrap();
        let received: Refused = serde_json::from_str(&sent).unwrap();
        assert_eq!(received, refused);
        assert_eq!(Error::from(received).to_string(), error.to_string());
        let unknown = sent.replace(ErrorCode::StateCorrupt.as_str(), "ARD-0");
        assert!(serde_json::from_str::<Refused>(&unknown).is_err());
    }

    #[test]
    fn who_leads_no_longer_says_who_does_only_if_it_knows() {
        let error = |epoch| {
            let newest = MasterEpoch(epoch);
            Error::from(Refused::NotMaster { newest }).to_string()
        };
        assert!(error(3).contains("master 3 has taken over"), "{}", error(3));
        assert!(error(0).contains("leads the job no longer"), "{}", error(0));
    }
}
