//! Notices about checkpoints and recovery, for the user.

use std::fmt;
use std::time::Duration;

use crate::savepoint::{StateDiff, Verdict};
use ardea_core::{Epoch, Error, Timestamp};

/// A notice of a fault-tolerant job, for the user.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum RecoveryEvent {
    /// The checkpoints are in the memory of this process: the job survives its own failures, but
    /// not the end of the process.
    InMemory,
    /// The job had completed in an earlier run: this run does nothing.
    CompletedBefore {
        /// The location of the job's record.
        place: String,
    },
    /// The job resumes from a checkpoint of an earlier process.
    Resumed {
        /// The epoch of the checkpoint.
        epoch: Epoch,
        /// The commit time of the epoch, if known.
        at: Option<Timestamp>,
    },
    /// The job starts from a savepoint.
    FromSavepoint {
        /// The location of the savepoint.
        place: String,
        /// The epoch of the savepoint.
        epoch: Epoch,
        /// The commit time of the epoch.
        at: Timestamp,
        /// The change of each state on restore.
        changes: StateDiff,
    },
    /// The configured savepoint cannot be opened. The job resumes from its own folder, since it has
    /// already started from a savepoint.
    SavepointUnavailable {
        /// The location of the savepoint.
        place: String,
        /// The reason for which the savepoint cannot be opened.
        why: String,
    },
    /// The program's state schema differs from that of the checkpoint: state is migrated on
    /// restore.
    Migrates {
        /// The change of each state on restore.
        changes: StateDiff,
    },
    /// The job has failed and is restarted.
    Recovering {
        /// The epoch that is restored; `None` to start without state.
        from: Option<Epoch>,
        /// The cause of the failure.
        why: String,
        /// The number of consecutive failures without a committed epoch in between.
        in_a_row: u32,
        /// The delay before the restart.
        after: Duration,
    },
    /// A checkpoint cannot be read, and the previous one is restored. Output published since the
    /// previous one is published again.
    CheckpointSkipped {
        /// The epoch of the skipped checkpoint.
        epoch: Epoch,
        /// The reason for which the checkpoint cannot be read.
        why: String,
    },
    /// The state to restore is temporarily unavailable; the job waits for the state.
    Waiting {
        /// The reason for which the state is unavailable.
        why: String,
    },
    /// A checkpoint has taken more than half of its timeout.
    Slow {
        /// The epoch of the checkpoint.
        epoch: Epoch,
        /// Some of the instances whose snapshots are not durable yet.
        waiting_for: Vec<String>,
    },
    /// Several consecutive epochs could not be committed. The job continues, but a failure would
    /// repeat more work. Sent again each time `in_a_row` has doubled.
    NoCheckpoints {
        /// The number of consecutive epochs that could not be committed.
        in_a_row: u32,
        /// The reason for which the last of these epochs was not committed.
        why: String,
    },
    /// The record of the job cannot be written at the moment. The write is retried, and no epoch
    /// ends until it succeeds.
    RecordRefused {
        /// The reason for which the record cannot be written.
        why: String,
    },
    /// The last epoch before a stop could not be committed; the job retries with another epoch.
    StopDelayed {
        /// The reason for which the epoch was not committed.
        why: String,
    },
    /// The last checkpoint before a stop was not completed in time: the job ends without this
    /// checkpoint.
    StopTimedOut {
        /// The time limit of the stop.
        within: Duration,
        /// The newest committed epoch, from which the job resumes.
        epoch: Option<Epoch>,
        /// The location of the checkpoint of `epoch`; `None` if checkpoints are lost with this
        /// process.
        place: Option<String>,
    },
    /// The final snapshot of an instance, or the record of the job's end, cannot be written. The
    /// job waits until the store accepts writes.
    FinalStateNotWritten {
        /// The reason for which the write fails.
        why: String,
    },
    /// Old checkpoints could not be compacted or removed. The operation is retried after a later
    /// commit.
    MaintenanceFailed {
        /// The reason for which the operation failed.
        why: String,
    },
}

impl RecoveryEvent {
    pub(crate) fn not_tidied(error: &Error) -> Self {
        let why = error.to_string();
        RecoveryEvent::MaintenanceFailed { why }
    }
}

impl fmt::Display for RecoveryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryEvent::InMemory => f.write_str(
                "its checkpoints are in memory: the job survives its own failures, but not the end of this process (checkpoints.folder stores them)",
            ),
            RecoveryEvent::CompletedBefore { place } => write!(
                f,
                "has completed already, as recorded in {place}: nothing is done (recovery.start_over runs it again)"
            ),
            RecoveryEvent::Resumed { epoch, at } => {
                write!(f, "goes on from the checkpoint of epoch {}", epoch.0)?;
                at.map_or(Ok(()), |at| write!(f, " ({at})"))
            }
            RecoveryEvent::FromSavepoint {
                place,
                epoch,
                at,
                changes,
            } => {
                write!(f, "begins from {place}, of epoch {} ({at})", epoch.0)?;
                write_changes(f, changes)
            }
            RecoveryEvent::SavepointUnavailable { place, why } => write!(
                f,
                "{place} can't be opened, so it can't be compared with the savepoint that the job has started from; the job goes on from its own folder: {why}"
            ),
            RecoveryEvent::Migrates { changes } => {
                f.write_str("migrates its state to the schema of the program")?;
                write_changes(f, changes)
            }
            RecoveryEvent::Recovering {
                from,
                why,
                in_a_row,
                after,
            } => {
                match from {
                    Some(epoch) => write!(f, "restarts from the checkpoint of epoch {}", epoch.0)?,
                    None => f.write_str("restarts without state")?,
                }
                if !after.is_zero() {
                    write!(f, " in {after:?}")?;
                }
                if *in_a_row > 1 {
                    write!(f, " ({in_a_row} times in a row now)")?;
                }
                write!(f, ": {why}")
            }
            RecoveryEvent::CheckpointSkipped { epoch, why } => write!(
                f,
                "the checkpoint of epoch {} can't be read, so the previous one is restored; output published since then is repeated: {why}",
                epoch.0
            ),
            RecoveryEvent::Waiting { why } => write!(f, "waits until it can go on: {why}"),
            RecoveryEvent::Slow { epoch, waiting_for } => write!(
                f,
                "the checkpoint of epoch {} takes long: it waits for {}",
                epoch.0,
                waiting_for.join(", ")
            ),
            RecoveryEvent::NoCheckpoints { in_a_row, why } => write!(
                f,
                "{in_a_row} checkpoints in a row could not be made; the job goes on: {why}"
            ),
            RecoveryEvent::RecordRefused { why } => {
                write!(f, "the checkpoint record can't be written, which is retried: {why}")
            }
            RecoveryEvent::StopDelayed { why } => write!(
                f,
                "the last checkpoint failed and is retried (Ctrl-C stops without it): {why}"
            ),
            RecoveryEvent::StopTimedOut {
                within,
                epoch,
                place,
            } => {
                write!(
                    f,
                    "is interrupted: its last checkpoint could not be made within {within:?} (recovery.stop_within)"
                )?;
                match (epoch, place) {
                    (Some(epoch), Some(place)) => write!(
                        f,
                        "; run again, it goes on from the checkpoint of epoch {} in {place}",
                        epoch.0
                    ),
                    _ => f.write_str("; run again, it begins without state"),
                }
            }
            RecoveryEvent::FinalStateNotWritten { why } => write!(
                f,
                "has ended, but its final state can't be written; waits until it can: {why}"
            ),
            RecoveryEvent::MaintenanceFailed { why } => {
                write!(f, "old checkpoints could not be removed, which is retried: {why}")
            }
        }
    }
}

/// Appends the states that are not kept unchanged, with their changes, on the same line.
fn write_changes(f: &mut fmt::Formatter<'_>, changes: &StateDiff) -> fmt::Result {
    let states = changes.states.iter();
    let changed = states.filter(|state| state.verdict != Verdict::Keep);
    for (number, state) in changed.enumerate() {
        let before = if number == 0 { ": " } else { "; " };
        let word = state.verdict.word();
        write!(f, "{before}{word} {}/{}", state.vertex, state.state)?;
        if !state.verdict.reasons().is_empty() {
            write!(f, " ({})", state.verdict.reasons().join(", "))?;
        }
    }
    Ok(())
}
