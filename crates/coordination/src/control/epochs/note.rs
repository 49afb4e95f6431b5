//! What people may want to read of a job's epochs.

use std::fmt;
use std::time::Duration;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use super::interface::GivenUp;
use super::message::{Generation, ParticipantId};
use super::record::SafeMode;
use crate::control::Refused;

/// Something that a person may want to read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EpochsNote {
    /// An epoch is committed.
    Committed {
        /// Which.
        epoch: Epoch,
        /// From its end being asked for until its snapshot was recorded.
        took: Duration,
        /// How much was written for it.
        bytes: u64,
    },
    /// An epoch takes longer than half the time that it may take.
    Slow {
        /// Which.
        epoch: Epoch,
        /// Who has not reported.
        waiting_for: Vec<ParticipantId>,
    },
    /// An epoch was given up; the job goes on.
    GivenUp {
        /// Which.
        epoch: Epoch,
        /// Why.
        why: GivenUp,
    },
    /// More epochs in a row than are tolerated were given up; the job goes on. It is told again
    /// each time that the number has doubled.
    Failing {
        /// How many.
        in_a_row: u32,
        /// Why, the last one.
        why: GivenUp,
    },
    /// It is not known whether the record is stored; nothing else is done until that is known.
    RecordDoubtful,
    /// The state manager does not take the record; it is tried again.
    RecordRefused(Refused),
    /// The job goes back.
    RollingBack {
        /// To which epoch.
        to: Option<Epoch>,
        /// Why.
        reason: String,
        /// How often in a row it has done so without progress.
        in_a_row: u32,
        /// When it begins again, after so long.
        after: Duration,
    },
    /// A life of the job has been asked for, and has not begun for long.
    BeginsLate {
        /// Which.
        generation: Generation,
        /// For how long.
        after: Duration,
        /// Who has been told of it and has not carried that out.
        waiting_for: Vec<ParticipantId>,
    },
    /// A snapshot can't be read; the one before it is taken.
    SnapshotSkipped {
        /// Which.
        epoch: Epoch,
        /// What is wrong with it.
        why: String,
    },
    /// What the job should go back to can't be read at the moment, for this reason: it is tried again until it can. Told once for each reason.
    Waiting(String),
    /// The job's sources are paused until somebody decides: [`EpochsCommand`](crate::control::EpochsCommand) has the
    /// ways out.
    SafeMode(SafeMode),
    /// In safe mode, what was still there of the job is gone as well, for this reason; its state is in the snapshot.
    Down(String),
}

impl fmt::Display for EpochsNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsNote::Committed { epoch, took, bytes } => {
                let (epoch, took) = (epoch.0, took.as_millis());
                write!(
                    f,
                    "epoch {epoch} is committed after {took} ms, {bytes} bytes"
                )
            }
            EpochsNote::Slow { epoch, waiting_for } => {
                let count = waiting_for.len();
                let missing = match count {
                    1 => "1 participant is missing".to_string(),
                    count => format!("{count} participants are missing"),
                };
                write!(f, "epoch {} is slow: {missing}", epoch.0)
            }
            EpochsNote::GivenUp { epoch, why } => write!(f, "epoch {} is given up: {why}", epoch.0),
            EpochsNote::Failing { in_a_row, why } => {
                write!(
                    f,
                    "{in_a_row} epochs in a row were given up, the last one: {why}"
                )
            }
            EpochsNote::RecordDoubtful => {
                f.write_str("it is not known whether the record of epochs is stored: the cluster's state does not answer, or where its snapshots are")
            }
            EpochsNote::RecordRefused(why) => {
                write!(f, "the record of epochs is not stored: {why}")
            }
            EpochsNote::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            } => {
                match to {
                    Some(epoch) => write!(f, "the job goes back to epoch {}", epoch.0)?,
                    None => f.write_str("the job begins anew")?,
                }
                match after.as_millis() {
                    0 => f.write_str(" at once")?,
                    after => write!(f, " in {after} ms")?,
                }
                if *in_a_row > 1 {
                    write!(f, ", {in_a_row} times in a row now")?;
                }
                write!(f, ": {reason}")
            }
            EpochsNote::BeginsLate {
                generation,
                after,
                waiting_for,
            } => {
                let names: Vec<String> = waiting_for.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "life {generation} has not begun after {} s: container {} still ends the life before, in which \
                     an instance may not come back from a call, or reads what its instances remember",
                    after.as_secs(),
                    names.join(", ")
                )
            }
            EpochsNote::SnapshotSkipped { epoch, why } => {
                write!(
                    f,
                    "the snapshot of epoch {} can't be read, the one before is taken: {why}",
                    epoch.0
                )
            }
            EpochsNote::Waiting(why) => write!(
                f,
                "the job waits until what it goes back to can be had: {why}"
            ),
            EpochsNote::SafeMode(why) => {
                write!(
                    f,
                    "safe mode, sources are paused until somebody decides: {why}"
                )
            }
            EpochsNote::Down(why) => {
                write!(f, "in safe mode, what was left of the job is gone: {why}")
            }
        }
    }
}
