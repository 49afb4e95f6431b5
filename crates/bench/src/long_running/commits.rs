//! Observation of a running job's epochs from outside.

use std::time::{Duration, Instant};

use ardea::recovery::CheckpointStats;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::EpochsView;
use serde_json::{Value, json};

use crate::report::{Field, rounded};

/// Timeout for the first full checkpoint.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);

/// The state of a job's epochs at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Epochs {
    /// The newest committed epoch.
    pub(crate) committed: Option<u64>,
    /// The duration of its checkpoint, in milliseconds.
    pub(crate) took_ms: Option<f64>,
    pub(crate) aborted: u64,
    /// Bytes written for epochs until now.
    pub(crate) bytes: u64,
}

impl Epochs {
    /// Returns the epochs of a job in this process.
    pub(crate) fn of(figures: &CheckpointStats) -> Self {
        Epochs {
            committed: figures.last.map(|(epoch, _)| epoch.0),
            took_ms: figures.last.map(|(_, took)| took.as_secs_f64() * 1e3),
            aborted: figures.aborted,
            bytes: figures.bytes,
        }
    }
}

/// The epochs committed since a moment, gathered by polling. The poll interval must be shorter than
/// an epoch.
#[derive(Debug)]
pub(crate) struct Commits {
    first: Epochs,
    last: Epochs,
    took_ms: Vec<f64>,
    bytes: u64,
}

impl Commits {
    /// Returns a collection of the epochs committed after `now`.
    pub(crate) fn since(now: Epochs) -> Self {
        Commits {
            first: now,
            last: now,
            took_ms: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn update(&mut self, now: Epochs) {
        if now.committed > self.last.committed {
            self.took_ms.extend(now.took_ms);
            self.bytes += now.bytes.saturating_sub(self.last.bytes);
        }
        self.last = now;
    }

    /// Adds the newest epoch of a job on a cluster, whose leader reports only the bytes written for
    /// that epoch.
    pub(crate) fn update_from_view(&mut self, view: Option<&EpochsView>) {
        let Some(view) = view else { return };
        let is_new = view.committed > self.last.committed;
        let written = view.written_bytes.filter(|_| is_new).unwrap_or(0);
        self.update(Epochs {
            committed: view.committed,
            took_ms: view.took_ms.map(|took| took as f64),
            aborted: view.aborted_count,
            bytes: self.last.bytes + written,
        });
    }

    /// Returns the epochs as seen last.
    pub(crate) fn newest(&self) -> Epochs {
        self.last
    }

    /// Returns the number of committed epochs, also those between two polls.
    pub(crate) fn committed(&self) -> u64 {
        let number = |epochs: &Epochs| epochs.committed.map_or(0, |epoch| epoch + 1);
        let ended = number(&self.last).saturating_sub(number(&self.first));
        ended.saturating_sub(self.last.aborted.saturating_sub(self.first.aborted))
    }

    /// Returns the figures of all collected epochs.
    pub(crate) fn figures(&self) -> Vec<Field> {
        let mut sorted = self.took_ms.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let told = |at: usize| sorted.get(at).map(|took| rounded(*took, 1e3));
        let aborted = self.last.aborted.saturating_sub(self.first.aborted);
        vec![
            ("checkpoints", json!(sorted.len())),
            ("checkpoints_aborted", json!(aborted)),
            ("checkpoint_p50_ms", json!(told(sorted.len() / 2))),
            (
                "checkpoint_max_ms",
                json!(told(sorted.len().wrapping_sub(1))),
            ),
            ("checkpoint_bytes", json!(self.bytes)),
        ]
    }
}

/// Returns the figures of a job without checkpoints.
pub(crate) fn none() -> Vec<Field> {
    let names = [
        "checkpoints",
        "checkpoints_aborted",
        "checkpoint_p50_ms",
        "checkpoint_max_ms",
        "checkpoint_bytes",
    ];
    names.map(|name| (name, Value::Null)).into()
}

/// Waits until an epoch is committed that ended after this call. The next one to be committed may
/// have ended before, so this waits for the second.
///
/// # Errors
/// [`ErrorCode::LimitReached`] on timeout; errors of `update`.
pub(crate) fn wait_for_full_checkpoint(mut look: impl FnMut() -> Result<Epochs>) -> Result<Epochs> {
    const LOOK: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + WHOLE_WITHIN;
    let (mut before, mut is_next) = (look()?.committed, true);
    loop {
        let now = look()?;
        if now.committed > before {
            if !is_next {
                return Ok(now);
            }
            (before, is_next) = (now.committed, false);
        }
        if Instant::now() >= deadline {
            let what = format!("no full checkpoint after {} s", WHOLE_WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what).hint(
                "give fewer --keys, or a --checkpoint-folder with enough space on a fast disk",
            ));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(committed: u64, took_ms: f64, bytes: u64) -> Epochs {
        Epochs {
            committed: Some(committed),
            took_ms: Some(took_ms),
            aborted: 0,
            bytes,
        }
    }

    #[test]
    fn each_epoch_counts_once_and_those_before_not_at_all() {
        let mut commits = Commits::since(at(4, 9_000.0, 1_000));
        for now in [
            at(4, 9_000.0, 1_000),
            at(5, 7.0, 1_100),
            at(5, 7.0, 1_100),
            at(7, 3.0, 1_300),
        ] {
            commits.update(now);
        }
        let figures = commits.figures();
        assert_eq!(figures[0], ("checkpoints", json!(2)));
        assert_eq!(figures[2], ("checkpoint_p50_ms", json!(7.0)));
        assert_eq!(figures[3], ("checkpoint_max_ms", json!(7.0)));
        assert_eq!(figures[4], ("checkpoint_bytes", json!(300)));
        let nothing = Commits::since(Epochs::default()).figures();
        assert_eq!(nothing[3], ("checkpoint_max_ms", Value::Null));
    }

    #[test]
    fn the_next_epoch_may_have_ended_before_so_the_one_behind_it_is_waited_for() {
        let mut told = [Some(3), Some(3), Some(4), Some(4), Some(5)].into_iter();
        let whole = wait_for_full_checkpoint(|| {
            Ok(Epochs {
                committed: told.next().flatten(),
                ..Epochs::default()
            })
        });
        assert_eq!(whole.unwrap().committed, Some(5));
    }
}
