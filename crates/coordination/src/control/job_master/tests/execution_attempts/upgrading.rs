//! Tests of upgrades to another program.

use super::*;
use crate::control::{
    FinalState, JobDefinition, Predecessor, ProgramRef, Successor, Upgrade, UpgradeEnd,
    UpgradeOrder,
};

const PATIENCE: Duration = Duration::from_secs(5);

fn successor(submission: u64) -> Successor {
    Successor {
        definition: JobDefinition {
            job: JobRef {
                submission,
                ..job()
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "word-count".into(),
                arguments: Vec::new(),
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: Default::default(),
            version: "0.1.0".into(),
        },
        demand: JobDemand::new("word-count"),
        packing: PackingConfig::default(),
    }
}

fn order() -> Command {
    order_of(8)
}

fn order_of(submission: u64) -> Command {
    Command::Upgrade(Box::new(UpgradeOrder {
        next: successor(submission),
        back: 9,
        commit_timeout: PATIENCE,
    }))
}

impl TestHarness {
    fn upgrade(&self) -> Option<Upgrade> {
        let (record, _) = self.stored.as_ref()?;
        record.upgrade.clone()
    }

    /// Returns the job's stored record at the time of its removal.
    fn left(&self) -> &JobRecord {
        assert!(self.finished && self.stored.is_none());
        self.left.as_ref().unwrap()
    }

    /// Waits for the final epoch, and has the participants commit and publish it.
    fn stop(&mut self) -> Epoch {
        let until = self.now + LONG;
        while self
            .asked_for()
            .is_none_or(|(_, kind)| kind != EpochKind::Last)
        {
            assert!(self.now < until, "no last epoch is asked for");
            self.wait(Duration::from_millis(50));
            // First the regular epoch that was pending.
            if let Some((_, EpochKind::Usual)) = self.asked_for() {
                self.commit();
            }
        }
        let epoch = self.commit();
        for container in [1, 2] {
            self.report(worker(container), ParticipantReport::CommitDone(epoch));
        }
        epoch
    }

    /// Replaces the master by another, with which the workers register.
    fn is_followed(&mut self) {
        self.take_over();
        for container in [1, 2] {
            self.comes_back(worker(container), Some(1));
        }
        self.wait(Duration::from_millis(200));
    }
}

/// Creates a running job whose record contains this upgrade.
fn with(upgrade: Upgrade) -> TestHarness {
    let mut desk = living();
    let (record, version) = desk.stored.take().unwrap();
    let record = JobRecord {
        upgrade: Some(upgrade),
        ..(*record).clone()
    };
    desk.stored = Some((Arc::new(record), version));
    desk.is_followed();
    desk
}

/// Creates a job that has replaced another and has not committed an epoch yet.
fn proving() -> TestHarness {
    with(Upgrade::Starting(Arc::new(Predecessor {
        job: successor(6),
        plan: None,
        state: None,
        back: 9,
        commit_timeout: PATIENCE,
    })))
}

#[test]
fn a_job_that_is_to_be_followed_ends_a_last_epoch_and_gives_way_with_that_state() {
    let mut desk = living();
    desk.commit_next();
    assert_eq!(desk.command(order()), Some(Ok(())));
    // A repeated order is accepted; another one is refused, like any change of the plan.
    assert_eq!(desk.command(order()), Some(Ok(())));
    let busy = desk.command(Command::Update([("v".into(), 2)].into()));
    assert_eq!(busy.unwrap().unwrap_err().code(), ErrorCode::WrongState);
    let epoch = desk.stop();
    let left = desk.left();
    let state = FinalState {
        generation: Generation(1),
        epoch,
    };
    let Some(Upgrade::Stopped(_, found)) = &left.upgrade else {
        panic!("{:?}", left.upgrade);
    };
    assert_eq!(*found, Some(state));
    assert!(left.is_being_replaced());
}

#[test]
fn an_upgrade_goes_on_under_the_next_master() {
    let mut desk = living();
    desk.commit_next();
    assert_eq!(desk.command(order()), Some(Ok(())));
    desk.is_followed();
    desk.stop();
    assert!(desk.left().is_being_replaced());
}

#[test]
fn a_job_that_is_killed_or_ends_by_itself_is_followed_by_none() {
    let mut desk = living();
    assert_eq!(desk.command(order()), Some(Ok(())));
    desk.command(Command::Kill);
    assert!(!desk.left().is_being_replaced());

    let mut desk = TestHarness::running();
    let refused = desk.command(order()).unwrap().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::WrongState);
}

#[test]
fn a_program_has_come_up_when_it_has_committed_an_epoch_of_its_own() {
    let mut desk = proving();
    assert!(matches!(desk.upgrade(), Some(Upgrade::Starting(_))));
    // A new master ends an epoch as soon as it has found the running attempt.
    desk.commit();
    desk.wait(Duration::from_millis(100));
    let from = 6;
    let upgraded = Upgrade::Over(UpgradeEnd::Upgraded { from });
    assert_eq!(desk.upgrade(), Some(upgraded));
    desk.wait(2 * PATIENCE);
    assert!(!desk.finished);
    // The new job can be upgraded itself.
    assert_eq!(desk.command(order()), Some(Ok(())));
}

#[test]
fn a_program_that_commits_nothing_in_time_gives_way_to_the_one_before() {
    let mut desk = proving();
    desk.wait(PATIENCE + Duration::from_secs(1));
    let left = desk.left();
    let Some(Upgrade::RollingBack(before, why)) = &left.upgrade else {
        panic!("{:?}", left.upgrade);
    };
    assert_eq!(before.back, 9);
    assert!(why.contains("5s"), "{why}");
    assert!(left.is_being_replaced());
}

#[test]
fn a_program_that_is_to_give_way_commits_nothing_while_that_is_being_stored() {
    let mut desk = proving();
    let (epoch, _) = desk.asked_for().unwrap();
    desk.refuses = true;
    desk.wait(PATIENCE + Duration::from_secs(1));
    assert!(!desk.finished);
    let told = |desk: &TestHarness| {
        let told = desk.told.iter();
        let words = told.filter(|(_, message)| matches!(message, ToWorker::Epochs(_)));
        words.count()
    };
    let before = told(&desk);
    // A late commit does not save the new program.
    for container in [1, 2] {
        desk.report(
            worker(container),
            ParticipantReport::Saved(epoch, receipt(None)),
        );
    }
    desk.wait(Duration::from_secs(1));
    assert_eq!((desk.committed(), told(&desk)), (None, before));
    desk.command(Command::Epochs(CheckpointCommand::Savepoint));
    desk.wait(Duration::from_secs(1));
    let (_, savepoint) = desk.replies.last().unwrap();
    assert_eq!(
        savepoint.as_ref().unwrap_err().code(),
        ErrorCode::WrongState
    );
    desk.refuses = false;
    desk.wait(Duration::from_secs(1));
    assert!(desk.left().is_being_replaced());
}

#[test]
fn a_job_that_no_program_can_follow_is_killed_when_somebody_wants_that() {
    let mut desk = living();
    desk.commit_next();
    assert_eq!(desk.command(order()), Some(Ok(())));
    desk.is_unfollowed = true;
    desk.stop();
    desk.wait(Duration::from_secs(1));
    assert!(desk.gives_way() && !desk.finished);
    let busy = desk.command(Command::Pause).unwrap().unwrap_err();
    assert_eq!(busy.code(), ErrorCode::WrongState);
    desk.command(Command::Kill);
    desk.wait(Duration::from_secs(1));
    assert_eq!(desk.replies.last().unwrap().1, Ok(()));
    assert!(!desk.left().is_being_replaced());
}

#[test]
fn who_asks_again_for_a_program_that_did_not_come_up_does_not_begin_it_again() {
    let over = Upgrade::Over(UpgradeEnd::RolledBack {
        tried: 8,
        why: "it failed".into(),
    });
    let mut desk = with(over.clone());
    assert_eq!(desk.command(order_of(8)), Some(Ok(())));
    assert_eq!(desk.upgrade(), Some(over));
    assert_eq!(desk.command(order_of(10)), Some(Ok(())));
    assert!(matches!(desk.upgrade(), Some(Upgrade::Stopping(_))));
}

#[test]
fn a_repeated_order_for_a_completed_upgrade_is_ignored() {
    for over in [None, Some(Upgrade::Over(UpgradeEnd::Upgraded { from: 6 }))] {
        let mut desk = over.clone().map_or_else(living, with);
        assert_eq!(desk.command(order_of(job().submission)), Some(Ok(())));
        desk.wait(Duration::from_secs(1));
        assert_eq!(desk.upgrade(), over);
        assert!(!desk.finished);
    }
}

#[test]
fn a_master_that_can_not_write_does_not_decide_on_an_upgrade() {
    let mut desk = proving();
    desk.refuses = true;
    desk.commit();
    desk.take_over();
    desk.wait(2 * PATIENCE);
    desk.refuses = false;
    desk.wait(Duration::from_millis(500));
    for container in [1, 2] {
        desk.comes_back(worker(container), Some(1));
    }
    desk.wait(Duration::from_millis(500));
    let upgraded = Upgrade::Over(UpgradeEnd::Upgraded { from: 6 });
    assert_eq!(desk.upgrade(), Some(upgraded));
}

#[test]
fn a_program_that_has_committed_is_never_rolled_back() {
    let (mut came_up, mut gave_way) = (0, 0);
    for seed in 0..300_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let mut desk = proving();
        let mut has_published = false;
        for _ in 0..12 {
            match below(8) {
                0 => desk.refuses = !desk.refuses,
                1 if !desk.finished => desk.is_followed(),
                2 => {
                    let asked_for = desk.asked_for();
                    let members: Vec<_> = desk.master.workers().collect();
                    for (worker, (epoch, _)) in
                        members.into_iter().zip(asked_for.into_iter().cycle())
                    {
                        desk.report(
                            worker,
                            ParticipantReport::Saved(epoch, receipt(desk.committed())),
                        );
                    }
                }
                _ => desk.wait(Duration::from_millis(100 + below(1_500))),
            }
            has_published |= desk.told.iter().any(|(_, message)| {
                matches!(message, ToWorker::Epochs(word) if word.committed.is_some())
            });
        }
        desk.refuses = false;
        desk.wait(3 * PATIENCE);
        match desk
            .stored
            .take()
            .map_or_else(|| desk.left.clone(), |(it, _)| Some(it))
        {
            Some(record) if record.is_being_replaced() => {
                assert!(!has_published, "seed {seed}");
                gave_way += 1;
            }
            Some(record) => {
                let end = record.upgrade.as_ref();
                let is_up = matches!(end, Some(Upgrade::Over(UpgradeEnd::Upgraded { .. })));
                came_up += u64::from(is_up);
            }
            None => panic!("seed {seed}: nothing is left of it"),
        }
    }
    assert!(came_up > 20 && gave_way > 20, "{came_up} {gave_way}");
}

#[test]
fn a_program_whose_state_is_damaged_gives_way_at_once_and_one_that_follows_none_says_so() {
    let mut desk = TestHarness::with(config());
    desk.epochs = None;
    desk.is_unbringable = true;
    let (record, version) = desk.stored.take().unwrap();
    let record = JobRecord {
        upgrade: Some(Upgrade::Starting(Arc::new(Predecessor {
            job: successor(6),
            plan: None,
            state: None,
            back: 9,
            commit_timeout: PATIENCE,
        }))),
        ..(*record).clone()
    };
    desk.stored = Some((Arc::new(record), version));
    desk.take_over();
    desk.wait(Duration::from_secs(1));
    let Some(Upgrade::RollingBack(_, why)) = &desk.left().upgrade else {
        panic!("{:?}", desk.left().upgrade);
    };
    assert!(why.contains("a block is missing; restore it"), "{why}");

    let mut desk = TestHarness::with(config());
    desk.epochs = None;
    desk.is_unbringable = true;
    desk.take_over();
    desk.wait(Duration::from_secs(1));
    let JobPhase::Impossible(why) = desk.master.phase() else {
        panic!("{:?}", desk.master.phase());
    };
    assert!(why.contains("a block is missing"), "{why}");
    // The state is readable again.
    desk.is_unbringable = false;
    desk.wait(LONG);
    assert_eq!(desk.master.phase(), &JobPhase::Starting);
}
