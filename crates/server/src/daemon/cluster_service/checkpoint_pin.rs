//! Pins of checkpoints while they are copied or read, and retries of reads without a pin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::leader::{CommandError, JobHandle, JobView};
use ardea_coordination::control::{CheckpointCommand, Command, FinalState, Generation};
use ardea_core::{Epoch, Error, ErrorCode};
use tokio::runtime::Handle;

/// Maximum duration of all retries of a read, well below the timeout of clients.
const LOOKS_FOR: Duration = Duration::from_secs(15);

/// The retries of a read of the latest checkpoint, which may be replaced during the read.
pub(super) struct RetryLoop {
    begun: Instant,
    gone: Option<Epoch>,
}

impl RetryLoop {
    /// Starts the first attempt.
    pub(super) fn begin() -> Self {
        RetryLoop {
            begun: Instant::now(),
            gone: None,
        }
    }

    /// Returns true if the read should be retried after the checkpoint of the epoch `gone` was
    /// missing. A checkpoint missing in two successive reads is lost.
    pub(super) fn go_on(&mut self, gone: Epoch) -> bool {
        let was_gone = self.gone.replace(gone) == Some(gone);
        !was_gone && self.begun.elapsed() < LOOKS_FOR
    }
}

/// The purpose of a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinPurpose {
    /// The pinned checkpoint is copied to a savepoint.
    Saving,
    /// All checkpoints of the job are read and verified.
    Checking,
}

/// The jobs with a pinned checkpoint, by job key.
pub(super) type Pins = Arc<Mutex<BTreeMap<String, PinPurpose>>>;

/// The exclusive right to pin a checkpoint of a job. Dropping it releases the right.
pub(super) struct PinGuard {
    turns: Pins,
    key: String,
}

impl PinGuard {
    /// Acquires the right to pin a checkpoint of the job in `view`.
    ///
    /// # Errors
    /// [`WrongState`](ErrorCode::WrongState) if another request holds the right.
    pub(super) fn of(turns: &Pins, view: &JobView, doing: PinPurpose) -> Result<Self, Error> {
        let key = view.job.key();
        let mut jobs = turns.lock().unwrap_or_else(PoisonError::into_inner);
        let what = match jobs.get(&key) {
            None => {
                jobs.insert(key.clone(), doing);
                let turns = Arc::clone(turns);
                return Ok(PinGuard { turns, key });
            }
            Some(PinPurpose::Saving) => format!("a savepoint of {} is being written", view.job),
            Some(PinPurpose::Checking) => {
                format!("the checkpoints of {} are being checked", view.job)
            }
        };
        Err(Error::new(ErrorCode::WrongState, what).hint("try again when that is done"))
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        let mut jobs = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(&self.key);
    }
}

/// Completes an epoch and retains its checkpoint until [`release`]. The caller must hold the
/// [`PinGuard`] and must not be cancelled, or the checkpoint would remain.
pub(super) async fn pin(
    desk: &JobHandle,
    view: &JobView,
) -> Result<Option<FinalState>, CommandError> {
    // Savepoints requested through a former leader have no owner any more.
    for (_, epoch) in &view.savepoints {
        release(desk, Epoch(*epoch)).await;
    }
    let wanted = Command::Epochs(CheckpointCommand::Savepoint);
    desk.command(wanted).await?;
    let now = desk.view().await.map_err(CommandError::Failed)?;
    Ok(now.savepoints.last().map(|kept| final_state(*kept)))
}

/// Returns the checkpoint with this generation and epoch.
pub(super) fn final_state((generation, epoch): (u64, u64)) -> FinalState {
    FinalState {
        generation: Generation(generation),
        epoch: Epoch(epoch),
    }
}

/// Releases the pinned checkpoint of an epoch. If that fails, the next [`pin`] of the job releases
/// it.
pub(super) async fn release(desk: &JobHandle, epoch: Epoch) {
    let forget = CheckpointCommand::Forget(epoch);
    let _ = desk.command(Command::Epochs(forget)).await;
}

/// A pinned checkpoint. Dropping this releases the checkpoint.
pub(super) struct PinnedCheckpoint {
    epoch: Epoch,
    desk: JobHandle,
    turn: Option<PinGuard>,
}

impl PinnedCheckpoint {
    /// Pins the checkpoint of the next epoch. Returns `None` if the epoch is not committed within
    /// `patience`; a checkpoint committed later is released at once.
    pub(super) async fn within(
        patience: Duration,
        (desk, view): (JobHandle, JobView),
        turn: PinGuard,
    ) -> Option<Self> {
        let holding = tokio::spawn(async move {
            let kept = pin(&desk, &view).await.ok()??;
            Some(PinnedCheckpoint {
                epoch: kept.epoch,
                desk,
                turn: Some(turn),
            })
        });
        let held = tokio::time::timeout(patience, holding).await;
        held.ok()?.ok()?
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns true if the checkpoint is still retained. A new leader may have released it.
    pub(super) async fn stays(&self) -> bool {
        let is_held = |view: JobView| {
            let mut held = view.savepoints.iter();
            held.any(|(_, epoch)| *epoch == self.epoch.0)
        };
        self.desk.view().await.is_ok_and(is_held)
    }
}

impl Drop for PinnedCheckpoint {
    fn drop(&mut self) {
        let (desk, epoch, turn) = (self.desk.clone(), self.epoch, self.turn.take());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                release(&desk, epoch).await;
                drop(turn);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_the_newest_and_not_there_is_gone_for_good() {
        let mut looks = RetryLoop::begin();
        assert!(looks.go_on(Epoch(3)));
        assert!(looks.go_on(Epoch(4)), "it was followed");
        assert!(!looks.go_on(Epoch(4)));
    }
}
