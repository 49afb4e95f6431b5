//! What a person may want to read while a job survives.

use std::fmt;
use std::time::Duration;

use crate::savepoint::{StateDiff, Verdict};
use ardea_core::{Epoch, Error, Timestamp};

/// What a person may want to read while a job survives.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// State is kept in the memory of this process: it survives failures of the job, and not that of the process.
    InMemory,
    /// The job has completed when it was run before: nothing is done.
    CompletedBefore {
        /// As what is kept there says.
        place: String,
    },
    /// The job goes on from a snapshot that an earlier process has left.
    GoesOn {
        /// That of this epoch.
        epoch: Epoch,
        /// Committed then, if that is known.
        at: Option<Timestamp>,
    },
    /// The job begins from a savepoint.
    FromSavepoint {
        /// Which.
        place: String,
        /// What it is of.
        epoch: Epoch,
        /// Committed then.
        at: Timestamp,
        /// What becomes of its states.
        changes: StateDiff,
    },
    /// The savepoint that the job is told to begin from can't be opened; it has begun from one before, and goes on from its own folder.
    SavepointAway {
        /// Which.
        place: String,
        /// Why it can't.
        why: String,
    },
    /// The program remembers something in another form than what is kept: it is read in that, and kept in its own from now on.
    Migrates {
        /// What becomes of each state.
        changes: StateDiff,
    },
    /// The job had failed, and is started anew.
    Recovering {
        /// From the snapshot of this epoch; from the beginning if there is none.
        from: Option<Epoch>,
        /// Why it failed.
        why: String,
        /// How often in a row that has happened without progress.
        in_a_row: u32,
        /// After so long.
        after: Duration,
    },
    /// A snapshot can't be read, and the one before it is taken: what was published since is published again.
    SnapshotSkipped {
        /// Which.
        epoch: Epoch,
        /// What is wrong with it.
        why: String,
    },
    /// What the job goes on from can't be had at the moment; it waits until it can.
    Waiting {
        /// Why.
        why: String,
    },
    /// A snapshot takes long.
    Slow {
        /// Which.
        epoch: Epoch,
        /// Whose state is not safe yet, some of them.
        waiting_for: Vec<String>,
    },
    /// Several epochs in a row could not be committed; the job goes on, and more would have to be
    /// done again after a failure. It is told again each time that the number has doubled.
    NoSnapshots {
        /// How many.
        in_a_row: u32,
        /// Why the last one could not.
        why: String,
    },
    /// What is said of the job's epochs can't be written at the moment; it is tried again, and until then no epoch ends.
    RecordRefused {
        /// Why.
        why: String,
    },
    /// The last epoch before a stop could not be committed; it is tried again.
    StopDelayed {
        /// Why.
        why: String,
    },
    /// The last snapshot before a stop was not made in time: the job ends without it.
    StopTimedOut {
        /// The time limit.
        within: Duration,
        /// The newest committed epoch, which the job goes on from.
        epoch: Option<Epoch>,
        /// Where its snapshot is; none if it ends with this process.
        place: Option<String>,
    },
    /// What is left at the end, of a step or of the job, can't be written; the job waits until something can be.
    EndNotKept {
        /// Why.
        why: String,
    },
    /// Old snapshots could not be folded or removed; it is tried again.
    NotTidied {
        /// Why.
        why: String,
    },
}

impl Notice {
    pub(crate) fn not_tidied(error: &Error) -> Self {
        let why = error.to_string();
        Notice::NotTidied { why }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::InMemory => f.write_str(
                "its snapshots are in memory: it survives its own failures, and not the end of this process (snapshots.folder keeps them)",
            ),
            Notice::CompletedBefore { place } => write!(
                f,
                "has completed already, as {place} says: nothing is done (recovery.start_over runs it again)"
            ),
            Notice::GoesOn { epoch, at } => {
                write!(f, "goes on from the snapshot of epoch {}", epoch.0)?;
                at.map_or(Ok(()), |at| write!(f, " ({at})"))
            }
            Notice::FromSavepoint {
                place,
                epoch,
                at,
                changes,
            } => {
                write!(f, "begins from {place}, of epoch {} ({at})", epoch.0)?;
                write_changes(f, changes)
            }
            Notice::SavepointAway { place, why } => write!(
                f,
                "{place} can't be opened, so nobody knows whether it is the one that the job has begun from, as its own folder says, on which alone it goes on: {why}"
            ),
            Notice::Migrates { changes } => {
                f.write_str("reads what is kept in another form")?;
                write_changes(f, changes)
            }
            Notice::Recovering {
                from,
                why,
                in_a_row,
                after,
            } => {
                match from {
                    Some(epoch) => write!(f, "starts anew from the snapshot of epoch {}", epoch.0)?,
                    None => f.write_str("starts anew from the beginning")?,
                }
                if !after.is_zero() {
                    write!(f, " in {after:?}")?;
                }
                if *in_a_row > 1 {
                    write!(f, " ({in_a_row} times in a row now)")?;
                }
                write!(f, ": {why}")
            }
            Notice::SnapshotSkipped { epoch, why } => write!(
                f,
                "the snapshot of epoch {} can't be read, the one before it is taken; what was published since is published again: {why}",
                epoch.0
            ),
            Notice::Waiting { why } => write!(f, "waits until it can go on: {why}"),
            Notice::Slow { epoch, waiting_for } => write!(
                f,
                "the snapshot of epoch {} takes long: it waits for {}",
                epoch.0,
                waiting_for.join(", ")
            ),
            Notice::NoSnapshots { in_a_row, why } => write!(
                f,
                "{in_a_row} snapshots in a row could not be made; the job goes on: {why}"
            ),
            Notice::RecordRefused { why } => {
                write!(f, "no snapshot can be recorded, it is tried again: {why}")
            }
            Notice::StopDelayed { why } => write!(
                f,
                "the last snapshot could not be made, it is tried again (Ctrl-C stops without): {why}"
            ),
            Notice::StopTimedOut {
                within,
                epoch,
                place,
            } => {
                write!(
                    f,
                    "is interrupted: its last snapshot could not be made within {within:?} (recovery.stop_within)"
                )?;
                match (epoch, place) {
                    (Some(epoch), Some(place)) => write!(
                        f,
                        "; run again, it goes on from the snapshot of epoch {} in {place}",
                        epoch.0
                    ),
                    _ => f.write_str("; run again, it begins with nothing"),
                }
            }
            Notice::EndNotKept { why } => write!(
                f,
                "has come to an end that can't be kept, and waits until something can be written: {why}"
            ),
            Notice::NotTidied { why } => {
                write!(f, "old snapshots could not be tidied up, it is tried again: {why}")
            }
        }
    }
}

/// What is not kept as it was, on the same line.
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
