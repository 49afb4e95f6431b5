//! What is seen of the epochs of a job from outside, while it runs.

use std::time::{Duration, Instant};

use ardea::recovery::Figures;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::EpochsView;
use serde_json::{Value, json};

use crate::report::{Field, rounded};

/// How long a first snapshot, of everything, may take.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);

/// What is known of epochs at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Epochs {
    /// The newest that is committed.
    pub(crate) committed: Option<u64>,
    /// How long that took, in milliseconds.
    pub(crate) took_ms: Option<f64>,
    pub(crate) given_up: u64,
    /// What has been written for epochs until now.
    pub(crate) bytes: u64,
}

impl Epochs {
    /// Of a job of this process.
    pub(crate) fn of(figures: &Figures) -> Self {
        Epochs {
            committed: figures.last.map(|(epoch, _)| epoch.0),
            took_ms: figures.last.map(|(_, took)| took.as_secs_f64() * 1e3),
            given_up: figures.given_up,
            bytes: figures.bytes,
        }
    }
}

/// Looks at epochs again and again, and gathers what is new. A look has to come before the next epoch is committed.
#[derive(Debug)]
pub(crate) struct Commits {
    first: Epochs,
    last: Epochs,
    took_ms: Vec<f64>,
    bytes: u64,
}

impl Commits {
    /// Of those that are committed from now on.
    pub(crate) fn since(now: Epochs) -> Self {
        Commits {
            first: now,
            last: now,
            took_ms: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn look(&mut self, now: Epochs) {
        if now.committed > self.last.committed {
            self.took_ms.extend(now.took_ms);
            self.bytes += now.bytes.saturating_sub(self.last.bytes);
        }
        self.last = now;
    }

    /// The same of a job of a cluster, whose master tells what was written for the newest epoch alone.
    pub(crate) fn look_at(&mut self, view: Option<&EpochsView>) {
        let Some(view) = view else { return };
        let is_new = view.committed > self.last.committed;
        let written = view.written_bytes.filter(|_| is_new).unwrap_or(0);
        self.look(Epochs {
            committed: view.committed,
            took_ms: view.took_ms.map(|took| took as f64),
            given_up: view.given_up_count,
            bytes: self.last.bytes + written,
        });
    }

    /// What was seen last.
    pub(crate) fn newest(&self) -> Epochs {
        self.last
    }

    /// Of all that were seen.
    pub(crate) fn figures(&self) -> Vec<Field> {
        let mut sorted = self.took_ms.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let told = |at: usize| sorted.get(at).map(|took| rounded(*took, 1e3));
        let given_up = self.last.given_up.saturating_sub(self.first.given_up);
        vec![
            ("snapshots", json!(sorted.len())),
            ("snapshots_given_up", json!(given_up)),
            ("snapshot_p50_ms", json!(told(sorted.len() / 2))),
            ("snapshot_max_ms", json!(told(sorted.len().wrapping_sub(1)))),
            ("snapshot_bytes", json!(self.bytes)),
        ]
    }
}

/// The figures of a job that makes no snapshots.
pub(crate) fn none() -> Vec<Field> {
    let names = [
        "snapshots",
        "snapshots_given_up",
        "snapshot_p50_ms",
        "snapshot_max_ms",
        "snapshot_bytes",
    ];
    names.map(|name| (name, Value::Null)).into()
}

/// Waits until an epoch is committed that ended after this was called: not the next one, which may have ended before.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if that takes longer than anybody would wait; what `look` returns.
pub(crate) fn wait_for_whole(mut look: impl FnMut() -> Result<Epochs>) -> Result<Epochs> {
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
            let what = format!("no whole snapshot after {} s", WHOLE_WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("ask for fewer keys; or for a folder with room for the snapshots (--snapshot-folder), on a disk that is not slow"));
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
            given_up: 0,
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
            commits.look(now);
        }
        let figures = commits.figures();
        assert_eq!(figures[0], ("snapshots", json!(2)));
        assert_eq!(figures[2], ("snapshot_p50_ms", json!(7.0)));
        assert_eq!(figures[3], ("snapshot_max_ms", json!(7.0)));
        assert_eq!(figures[4], ("snapshot_bytes", json!(300)));
        let nothing = Commits::since(Epochs::default()).figures();
        assert_eq!(nothing[3], ("snapshot_max_ms", Value::Null));
    }

    #[test]
    fn the_next_epoch_may_have_ended_before_so_the_one_behind_it_is_waited_for() {
        let mut told = [Some(3), Some(3), Some(4), Some(4), Some(5)].into_iter();
        let whole = wait_for_whole(|| {
            Ok(Epochs {
                committed: told.next().flatten(),
                ..Epochs::default()
            })
        });
        assert_eq!(whole.unwrap().committed, Some(5));
    }
}
