//! A snapshot that stays while it is copied or read, whatever follows it; and looks at those that don't.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::leader::{JobDesk, JobView, Undone};
use ardea_coordination::control::{Command, EpochsCommand, Generation, LeftState};
use ardea_core::{Epoch, Error, ErrorCode};
use tokio::runtime::Handle;

/// For how long what is committed is looked at again: well below the patience of who asks.
const LOOKS_FOR: Duration = Duration::from_secs(15);

/// Looks at what is committed, which newer ones may follow meanwhile.
pub(super) struct Looks {
    begun: Instant,
    gone: Option<Epoch>,
}

impl Looks {
    /// The first one begins.
    pub(super) fn begin() -> Self {
        Looks {
            begun: Instant::now(),
            gone: None,
        }
    }

    /// Whether there is to be another, since this snapshot was not there. One that is still the newest at the next look is gone for good.
    pub(super) fn go_on(&mut self, gone: Epoch) -> bool {
        let was_gone = self.gone.replace(gone) == Some(gone);
        !was_gone && self.begun.elapsed() < LOOKS_FOR
    }
}

/// What a snapshot is held for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// It is copied for a savepoint.
    Saving,
    /// All of it is read.
    Checking,
}

/// The jobs of which a snapshot is held here, by their keys.
pub(super) type Turns = Arc<Mutex<BTreeMap<String, Doing>>>;

/// That nobody else holds a snapshot of the job, as long as this is kept.
pub(super) struct Turn {
    turns: Turns,
    key: String,
}

impl Turn {
    /// # Errors
    /// [`WrongState`](ErrorCode::WrongState) if somebody does.
    pub(super) fn of(turns: &Turns, view: &JobView, doing: Doing) -> Result<Self, Error> {
        let key = view.job.key();
        let mut jobs = turns.lock().unwrap_or_else(PoisonError::into_inner);
        let what = match jobs.get(&key) {
            None => {
                jobs.insert(key.clone(), doing);
                let turns = Arc::clone(turns);
                return Ok(Turn { turns, key });
            }
            Some(Doing::Saving) => format!("a savepoint of {} is being written", view.job),
            Some(Doing::Checking) => format!("the snapshots of {} are being checked", view.job),
        };
        Err(Error::new(ErrorCode::WrongState, what).hint("try again when that is done"))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut jobs = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(&self.key);
    }
}

/// Has an epoch ended whose snapshot stays until it is [forgotten](forget). In somebody's [`Turn`], and not to be cut off: the snapshot
/// would stay, and nobody know of it.
pub(super) async fn hold(desk: &JobDesk, view: &JobView) -> Result<Option<LeftState>, Undone> {
    let epochs = view.epochs.as_ref();
    // What a master that is gone has ended for a savepoint is nobody's any more.
    for (_, epoch) in epochs.map_or(&[][..], |epochs| &epochs.savepoints) {
        forget(desk, Epoch(*epoch)).await;
    }
    let wanted = Command::Epochs(EpochsCommand::Savepoint);
    desk.command(wanted).await?;
    let now = desk.view().await.map_err(Undone::Failed)?;
    let kept = now.epochs.and_then(|it| it.savepoints.last().copied());
    Ok(kept.map(|(generation, epoch)| LeftState {
        generation: Generation(generation),
        epoch: Epoch(epoch),
    }))
}

/// Lets go of a snapshot. The next who holds one does it, if this can't.
pub(super) async fn forget(desk: &JobDesk, epoch: Epoch) {
    let forget = EpochsCommand::Forget(epoch);
    let _ = desk.command(Command::Epochs(forget)).await;
}

/// A snapshot that stays until this is dropped.
pub(super) struct Held {
    epoch: Epoch,
    desk: JobDesk,
    turn: Option<Turn>,
}

impl Held {
    /// Holds one, as soon as an epoch ends; nothing if none does within this time. One that comes later is let go at once.
    pub(super) async fn within(
        patience: Duration,
        (desk, view): (JobDesk, JobView),
        turn: Turn,
    ) -> Option<Self> {
        let holding = tokio::spawn(async move {
            let kept = hold(&desk, &view).await.ok()??;
            Some(Held {
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

    /// Whether it has stayed so far: a master that came meanwhile may have let it go.
    pub(super) async fn stays(&self) -> bool {
        let view = self.desk.view().await.ok();
        let held = view.and_then(|view| Some(view.epochs?.savepoints));
        held.is_some_and(|held| held.iter().any(|(_, epoch)| *epoch == self.epoch.0))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (desk, epoch, turn) = (self.desk.clone(), self.epoch, self.turn.take());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                forget(&desk, epoch).await;
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
        let mut looks = Looks::begin();
        assert!(looks.go_on(Epoch(3)));
        assert!(looks.go_on(Epoch(4)), "it was followed");
        assert!(!looks.go_on(Epoch(4)));
    }
}
