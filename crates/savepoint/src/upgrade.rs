//! The steps from one program of a job to the next, and back if the new one doesn't come up.
//!
//! A state machine without clock and files: whoever drives it does what its [actions](UpgradeAction) say and tells what came of it. So it
//! holds for a job
//! of one process and for one on a cluster.
//!
//! ```text
//! compare ──▶ stop the old one with a last snapshot ──▶ keep a savepoint of that ──▶ start the new one from it ──▶ it commits: done
//!    │                        │                                   │                             │
//!    ▼ impossible             ▼ not stopped: it runs on           ▼ none                        ▼ it fails, or too long nothing
//!  nothing was done                                      start the old one again  ◀── stop the new one
//! ```
//!
//! The old one is stopped first, and the savepoint is of its last epoch: what it would publish behind that the new one would publish
//! again. The new one
//! has come up when it has committed an epoch; until then it has published nothing, and the old one can go on from where it stopped.

use std::time::Duration;

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradeEvent {
    /// The new program can go on from the state of the old one, or why not.
    Compared(Result<(), String>),
    /// The old one has stopped with a last snapshot, or why it runs on.
    OldStopped(Result<(), String>),
    /// There is a savepoint of it, or why not.
    Saved(Result<(), String>),
    /// The new one was started, or why not.
    NewStarted(Result<(), String>),
    /// The new one has committed an epoch.
    NewCommitted,
    /// The new one has failed for good.
    NewFailed(String),
    /// Nothing of the new one runs any more.
    NewStopped,
    /// The old one was started again, or why not.
    OldStarted(Result<(), String>),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradeAction {
    /// Compare what the old one remembers with what the new one would.
    Compare,
    /// Stop the old one, with a last snapshot.
    StopOld,
    /// Write a savepoint of that.
    Save,
    /// Start the new one from the savepoint.
    StartNew,
    /// Stop the new one at once, and leave what it has kept.
    StopNew,
    /// Start the old one again, from its own last snapshot.
    StartOld,
    /// It is over.
    End(UpgradeEnd),
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradeEnd {
    /// The new one runs.
    Upgraded,
    /// The old one runs as before; nothing was stopped. Why.
    Refused(String),
    /// The old one runs again, from where it stopped. Why the new one doesn't.
    RolledBack(String),
    /// Neither runs: why the new one doesn't, and why the old one could not be started again.
    Down(String, String),
}

/// Where an upgrade is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    Comparing,
    StoppingOld,
    Saving,
    /// Since then.
    Starting(Duration),
    StoppingNew(String),
    StartingOld(String),
    Over,
}

/// An upgrade of one job.
///
/// ```
/// use std::time::Duration;
/// use ardea_savepoint::{Upgrade, UpgradeAction, UpgradeEnd, UpgradeEvent};
///
/// let now = Duration::ZERO;
/// let (mut upgrade, first) = Upgrade::begin(Duration::from_secs(60));
/// assert_eq!(first, UpgradeAction::Compare);
/// let refused = upgrade.on(now, UpgradeEvent::Compared(Err("words/keys can't be read".into())));
/// assert_eq!(refused, Some(UpgradeAction::End(UpgradeEnd::Refused("words/keys can't be read".into()))));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    stage: Stage,
    /// How long the new one may take to commit an epoch.
    patience: Duration,
}

impl Upgrade {
    /// Begins one; the new program has `patience` to commit its first epoch.
    pub fn begin(patience: Duration) -> (Self, UpgradeAction) {
        let stage = Stage::Comparing;
        (Upgrade { stage, patience }, UpgradeAction::Compare)
    }

    /// What is to be done now that this has happened. What doesn't belong to the present step changes nothing.
    pub fn on(&mut self, now: Duration, event: UpgradeEvent) -> Option<UpgradeAction> {
        let (stage, action) = self.next(now, event)?;
        self.stage = stage;
        Some(action)
    }

    fn next(&self, now: Duration, event: UpgradeEvent) -> Option<(Stage, UpgradeAction)> {
        let end = |end| (Stage::Over, UpgradeAction::End(end));
        let back = |why: String| (Stage::StartingOld(why), UpgradeAction::StartOld);
        Some(match (&self.stage, event) {
            (Stage::Comparing, UpgradeEvent::Compared(Ok(()))) => {
                (Stage::StoppingOld, UpgradeAction::StopOld)
            }
            (Stage::Comparing, UpgradeEvent::Compared(Err(why)))
            | (Stage::StoppingOld, UpgradeEvent::OldStopped(Err(why))) => {
                end(UpgradeEnd::Refused(why))
            }
            (Stage::StoppingOld, UpgradeEvent::OldStopped(Ok(()))) => {
                (Stage::Saving, UpgradeAction::Save)
            }
            (Stage::Saving, UpgradeEvent::Saved(Ok(()))) => {
                (Stage::Starting(now), UpgradeAction::StartNew)
            }
            (Stage::Saving, UpgradeEvent::Saved(Err(why)))
            | (Stage::Starting(_), UpgradeEvent::NewStarted(Err(why))) => back(why),
            (Stage::Starting(_), UpgradeEvent::NewCommitted) => end(UpgradeEnd::Upgraded),
            (Stage::Starting(_), UpgradeEvent::NewFailed(why)) => {
                (Stage::StoppingNew(why), UpgradeAction::StopNew)
            }
            (Stage::Starting(since), UpgradeEvent::Tick)
                if now.saturating_sub(*since) >= self.patience =>
            {
                let why = format!("it has committed nothing for {:?}", self.patience);
                (Stage::StoppingNew(why), UpgradeAction::StopNew)
            }
            // What it has committed before it was stopped counts.
            (Stage::StoppingNew(_), UpgradeEvent::NewCommitted) => {
                (Stage::Starting(now), UpgradeAction::StartNew)
            }
            (Stage::StoppingNew(why), UpgradeEvent::NewStopped) => back(why.clone()),
            (Stage::StartingOld(why), UpgradeEvent::OldStarted(Ok(()))) => {
                end(UpgradeEnd::RolledBack(why.clone()))
            }
            (Stage::StartingOld(why), UpgradeEvent::OldStarted(Err(other))) => {
                end(UpgradeEnd::Down(why.clone(), other))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn started() -> Upgrade {
        let (mut upgrade, _) = Upgrade::begin(at(10));
        let steps = [
            (UpgradeEvent::Compared(Ok(())), UpgradeAction::StopOld),
            (UpgradeEvent::OldStopped(Ok(())), UpgradeAction::Save),
            (UpgradeEvent::Saved(Ok(())), UpgradeAction::StartNew),
        ];
        for (event, action) in steps {
            assert_eq!(upgrade.on(at(5), event), Some(action));
        }
        assert_eq!(upgrade.on(at(5), UpgradeEvent::NewStarted(Ok(()))), None);
        upgrade
    }

    #[test]
    fn it_is_done_when_the_new_program_has_committed_an_epoch() {
        let mut upgrade = started();
        assert_eq!(upgrade.on(at(14), UpgradeEvent::Tick), None);
        let over = upgrade.on(at(14), UpgradeEvent::NewCommitted);
        assert_eq!(over, Some(UpgradeAction::End(UpgradeEnd::Upgraded)));
        assert_eq!(upgrade.on(at(99), UpgradeEvent::Tick), None);
    }

    #[test]
    fn a_new_program_that_does_not_come_up_in_time_gives_way_to_the_old_one() {
        let mut upgrade = started();
        let late = upgrade.on(at(15), UpgradeEvent::Tick);
        assert_eq!(late, Some(UpgradeAction::StopNew));
        assert_eq!(upgrade.on(at(16), UpgradeEvent::Tick), None);
        let stopped = upgrade.on(at(17), UpgradeEvent::NewStopped);
        assert_eq!(stopped, Some(UpgradeAction::StartOld));
        let Some(UpgradeAction::End(UpgradeEnd::RolledBack(why))) =
            upgrade.on(at(18), UpgradeEvent::OldStarted(Ok(())))
        else {
            panic!("it is over");
        };
        assert!(why.contains("10s"), "{why}");
    }

    #[test]
    fn what_the_new_program_has_committed_is_not_taken_back() {
        let mut upgrade = started();
        upgrade.on(at(15), UpgradeEvent::Tick);
        let late = upgrade.on(at(15), UpgradeEvent::NewCommitted);
        assert_eq!(late, Some(UpgradeAction::StartNew));
    }

    fn any_event() -> impl Strategy<Value = UpgradeEvent> {
        let outcome = || prop_oneof![Just(Ok(())), Just(Err("no".to_string()))];
        prop_oneof![
            outcome().prop_map(UpgradeEvent::Compared),
            outcome().prop_map(UpgradeEvent::OldStopped),
            outcome().prop_map(UpgradeEvent::Saved),
            outcome().prop_map(UpgradeEvent::NewStarted),
            outcome().prop_map(UpgradeEvent::OldStarted),
            Just(UpgradeEvent::NewCommitted),
            Just(UpgradeEvent::NewFailed("no".to_string())),
            Just(UpgradeEvent::NewStopped),
            Just(UpgradeEvent::Tick),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_never_both_run_and_it_says_which_does(
            events in proptest::collection::vec((any_event(), 0u64..5), 0..40),
        ) {
            let (mut upgrade, _) = Upgrade::begin(at(10));
            let (mut old, mut new, mut now) = (true, false, 0);
            for (event, passed) in events {
                now += passed;
                let told = event.clone();
                let Some(action) = upgrade.on(at(now), event) else { continue };
                match told {
                    UpgradeEvent::OldStopped(Ok(())) => old = false,
                    UpgradeEvent::OldStarted(Ok(())) => old = true,
                    UpgradeEvent::NewStopped | UpgradeEvent::NewStarted(Err(_)) => new = false,
                    _ => {}
                }
                match action {
                    UpgradeAction::StartNew => new = true,
                    UpgradeAction::StartOld => prop_assert!(!new),
                    UpgradeAction::End(UpgradeEnd::Upgraded) => prop_assert!(new && !old),
                    UpgradeAction::End(UpgradeEnd::Refused(_)) => prop_assert!(old && !new),
                    UpgradeAction::End(UpgradeEnd::RolledBack(_)) => prop_assert!(old && !new),
                    UpgradeAction::End(UpgradeEnd::Down(..)) => prop_assert!(!old && !new),
                    _ => {}
                }
                prop_assert!(!(old && new));
            }
        }
    }
}
