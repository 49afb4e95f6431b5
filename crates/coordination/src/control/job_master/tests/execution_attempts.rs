//! Tests of the execution attempts of a job with a guarantee.

mod draining;
mod upgrading;
mod worker_recovery;

use std::num::NonZeroU32;

use ardea_core::Epoch;

use super::*;
use crate::control::{
    AttemptEnd, AttemptFailure, CheckpointCommand, CoordinatorConfig, CoordinatorMessage,
    CoordinatorStatus, DesiredState, EpochKind, ExecutionAttempt, FromParticipant, Generation,
    ParticipantId, ParticipantReport, PlanVersion, RunningAssignment, SnapshotAck, ToParticipant,
};

fn config() -> MasterConfig {
    MasterConfig {
        epochs: Some(CoordinatorConfig::default()),
        ..MasterConfig::default()
    }
}

/// A time that is longer than any delay in these tests.
const LONG: Duration = Duration::from_secs(30);

/// Creates a job with a guarantee in two containers, with its first attempt running.
pub(super) fn living() -> TestHarness {
    let mut desk = TestHarness::with(config());
    for container in [1, 2] {
        desk.register(worker(container), Credentials::of(&job()));
    }
    desk.carry_out_all();
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    desk
}

fn later(container: u32) -> WorkerId {
    WorkerId {
        incarnation: 2,
        ..worker(container)
    }
}

fn receipt(since: Option<Epoch>) -> SnapshotAck {
    SnapshotAck {
        since,
        place: vec![1],
        bytes: 1,
    }
}

impl TestHarness {
    /// Has all workers carry out their assignments, until the master sends no new ones.
    pub(super) fn carry_out_all(&mut self) {
        for _ in 0..4 {
            let workers: Vec<_> = self.master.workers().collect();
            workers
                .into_iter()
                .for_each(|worker| self.carry_out(worker));
        }
    }

    fn life_of(&self, worker: WorkerId) -> Option<ExecutionAttempt> {
        self.newest(worker)
            .and_then(|assignment| assignment.attempt)
    }

    fn generation(&self) -> u64 {
        self.epochs.as_ref().unwrap().0.generation.0
    }

    fn committed(&self) -> Option<Epoch> {
        self.epochs.as_ref().unwrap().0.committed
    }

    pub(super) fn wait(&mut self, long: Duration) {
        let until = self.now + long;
        while self.now < until {
            self.now += Duration::from_millis(50);
            let workers: Vec<_> = self.master.workers().collect();
            workers
                .into_iter()
                .for_each(|worker| self.carry_out(worker));
            self.happens(MasterEvent::Tick);
        }
    }

    fn report(&mut self, worker: WorkerId, report: ParticipantReport) {
        let message = FromParticipant {
            participant: ParticipantId::of(worker.container),
            generation: Generation(self.generation()),
            report,
        };
        self.happens(MasterEvent::From(ToMaster::Epochs { worker, message }));
    }

    /// Returns the epoch whose end was last requested, and its kind.
    pub(super) fn asked_for(&self) -> Option<(Epoch, EpochKind)> {
        let mut told = self.told.iter().rev();
        told.find_map(|(_, message)| match message {
            ToWorker::Epochs(ToParticipant {
                word: CoordinatorMessage::End(epoch, kind),
                ..
            }) => Some((*epoch, *kind)),
            _ => None,
        })
    }

    /// Has all participants save the snapshot of the last requested epoch, and returns this epoch.
    pub(super) fn commit(&mut self) -> Epoch {
        let (epoch, _) = self.asked_for().unwrap();
        let workers: Vec<_> = self.master.workers().collect();
        let since = self.committed();
        for worker in workers {
            self.report(worker, ParticipantReport::Saved(epoch, receipt(since)));
        }
        assert_eq!(self.committed(), Some(epoch));
        epoch
    }

    pub(super) fn commit_next(&mut self) -> Epoch {
        let before = self.asked_for();
        let until = self.now + LONG;
        while self.asked_for() == before {
            assert!(self.now < until, "no epoch is asked for behind {before:?}");
            self.wait(Duration::from_millis(50));
        }
        self.commit()
    }

    /// Commits the regular epoch that precedes a change of plans.
    pub(super) fn come_near(&mut self) {
        self.wait(Duration::from_millis(200));
        assert_eq!(self.asked_for().unwrap().1, EpochKind::Usual);
        self.commit();
    }

    pub(super) fn take_over(&mut self) {
        let epoch = self.master.epoch().next();
        self.master = JobMaster::new(job(), epoch, Arc::new(RoundRobin), config());
        self.told.clear();
        self.happens(MasterEvent::Tick);
    }

    pub(super) fn comes_back(&mut self, worker: WorkerId, generation: Option<u64>) {
        let indices = [worker.container.0 - 1, worker.container.0 + 1];
        let held = generation.map(|generation| RunningAssignment {
            instances: indices.map(|index| InstanceId::new("v", index)).into(),
            plans: vec![PlanVersion(1)],
            attempt: Some(Generation(generation)),
        });
        let registration = Registration {
            worker,
            who: Credentials::of(&job()),
            endpoint: "there".into(),
            held,
        };
        self.happens(MasterEvent::From(ToMaster::Register(registration)));
    }
}

#[test]
fn sources_read_when_all_workers_have_begun_the_life_and_not_before() {
    let mut desk = TestHarness::with(config());
    desk.register(worker(1), Credentials::of(&job()));
    desk.carry_out(worker(1));
    let first = desk.newest(worker(1)).unwrap();
    let life = first.attempt.unwrap();
    assert_eq!((life.generation, life.from), (Generation(1), None));
    assert_eq!(first.run, Run::Prepared);
    assert_eq!(desk.master.phase(), &JobPhase::Starting);
    desk.register(worker(2), Credentials::of(&job()));
    desk.carry_out(worker(1));
    assert_eq!(desk.newest(worker(1)).unwrap().run, Run::Prepared);
    desk.carry_out(worker(2));
    for container in [1, 2] {
        assert_eq!(desk.newest(worker(container)).unwrap().run, Run::Running);
    }
    desk.carry_out_all();
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert!(desk.master.is_settled());
}

#[test]
fn in_a_life_that_goes_on_sources_read_where_they_can_while_others_are_prepared_unless_paused() {
    for (is_paused, meanwhile, then) in [
        (false, Run::Early, Run::Running),
        (true, Run::Prepared, Run::Paused),
    ] {
        let mut desk = living();
        desk.commit_next();
        if is_paused {
            desk.command(Command::Pause);
            desk.carry_out_all();
        }
        desk.happens(MasterEvent::Exited(worker(1)));
        desk.happens(MasterEvent::Tick);
        let told = desk.newest(worker(2)).unwrap();
        assert_eq!(
            told.attempt.map(|life| life.generation),
            Some(Generation(2))
        );
        assert_eq!(told.run, meanwhile);
        desk.comes_back(later(1), None);
        assert_eq!(desk.newest(later(1)).unwrap().run, meanwhile);
        desk.wait(Duration::from_millis(100));
        for worker in [later(1), worker(2)] {
            assert_eq!(desk.newest(worker).unwrap().run, then);
        }
    }
}

#[test]
fn a_delayed_start_of_an_attempt_is_reported_once() {
    let mut desk = TestHarness::with(config());
    for container in [1, 2] {
        desk.register(worker(container), Credentials::of(&job()));
    }
    let late = |desk: &TestHarness| -> Vec<Vec<ParticipantId>> {
        let notes = desk.notes.iter();
        let late = notes.filter_map(|note| match note {
            MasterStatus::Epochs(CoordinatorStatus::StartDelayed { waiting_for, .. }) => {
                Some(waiting_for.clone())
            }
            _ => None,
        });
        late.collect()
    };
    for _ in 0..300 {
        desk.now += Duration::from_millis(50);
        desk.carry_out(worker(1));
        // The worker is alive, but has not carried out its assignment.
        desk.happens(MasterEvent::From(ToMaster::Status(Status {
            worker: worker(2),
            applied: None,
            ended: false,
            scope: RecoveryScope::default(),
        })));
        desk.happens(MasterEvent::Tick);
        if desk.now < Duration::from_secs(9) {
            assert_eq!(late(&desk), [] as [Vec<ParticipantId>; 0]);
        }
    }
    assert_eq!(late(&desk), [[ParticipantId::of(ContainerId(2))]]);
    assert_eq!(desk.generation(), 1);
    desk.carry_out_all();
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_lost_worker_takes_all_back_to_the_committed_epoch() {
    let mut desk = living();
    let epoch = desk.commit_next();
    desk.happens(MasterEvent::Exited(worker(1)));
    // The next worker of the container is not assigned to an attempt of which it was not part.
    desk.comes_back(later(1), None);
    let told = desk.life_of(later(1));
    assert!(told.is_none_or(|life| life.generation == Generation(2)));
    desk.wait(Duration::from_millis(500));
    for worker in [later(1), worker(2)] {
        let life = desk.life_of(worker).unwrap();
        assert_eq!((life.generation, life.from), (Generation(2), Some(epoch)));
        assert_eq!(life.taken_in, Generation(1));
    }
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert!(desk.commit_next() > epoch);
}

#[test]
fn a_container_has_one_worker_in_a_life_even_before_that_has_begun() {
    let mut desk = TestHarness::with(config());
    desk.register(worker(1), Credentials::of(&job()));
    let first = desk.life_of(worker(1)).unwrap().generation;
    desk.comes_back(later(1), None);
    desk.register(worker(2), Credentials::of(&job()));
    desk.wait(Duration::from_millis(500));
    let begun = desk.life_of(later(1)).unwrap().generation;
    assert!(begun > first);
    let told = desk.told.iter().filter(|(to, _)| *to == later(1));
    let lives = told.filter_map(|(_, message)| match message {
        ToWorker::Assign(assignment) => assignment.attempt,
        _ => None,
    });
    assert!(lives.into_iter().all(|life| life.generation > first));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_worker_that_can_not_go_on_takes_all_back_and_stays() {
    let mut desk = living();
    for generation in [1, 2] {
        let over = ToMaster::AttemptOver {
            worker: worker(2),
            generation: Generation(generation),
            why: AttemptEnd::Failed(AttemptFailure::transient("an instance panicked")),
        };
        desk.happens(MasterEvent::From(over.clone()));
        // All workers are registered. The second time, the next attempt is requested after a delay.
        assert_eq!(desk.master.phase(), &JobPhase::Recovering);
        desk.wait(Duration::from_millis(500));
        assert_eq!(desk.generation(), generation + 1);
        // A report about a past attempt is ignored.
        desk.happens(MasterEvent::From(over));
        desk.wait(Duration::from_millis(500));
        assert_eq!(desk.generation(), generation + 1);
    }
    let failed = |note: &&MasterStatus| matches!(note, MasterStatus::AttemptFailed(who, _) if *who == worker(2));
    assert_eq!(desk.notes.iter().filter(failed).count(), 2);
    let mut calls = desk.calls.iter();
    assert!(!calls.any(|call| matches!(call, SchedulerCall::Restart(_))));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_worker_that_can_not_read_yet_what_it_begins_from_has_the_life_asked_for_again() {
    let mut desk = living();
    let epoch = desk.commit_next();
    let over = |generation, why| {
        MasterEvent::From(ToMaster::AttemptOver {
            worker: worker(2),
            generation: Generation(generation),
            why,
        })
    };
    desk.happens(over(
        1,
        AttemptEnd::Failed(AttemptFailure::transient("it panicked")),
    ));
    assert_eq!(desk.generation(), 2);
    // The report is repeated with each heartbeat.
    for _ in 0..3 {
        desk.happens(over(2, AttemptEnd::Away("nobody answers".into())));
    }
    let waits = desk
        .master
        .epochs()
        .and_then(crate::control::CheckpointCoordinator::waiting_reason);
    assert!(waits.is_some_and(|why| why.contains("nobody answers")));
    assert_eq!(desk.master.phase(), &JobPhase::Recovering);
    while desk.life_of(worker(2)).map(|life| life.generation) != Some(Generation(3)) {
        desk.now += Duration::from_millis(10);
        desk.happens(MasterEvent::Tick);
    }
    let run = desk.newest(worker(2)).unwrap().run;
    assert_eq!(run, Run::Prepared, "it may be away yet");
    desk.wait(Duration::from_millis(500));
    // Only failures are counted.
    let failures = desk.epochs.as_ref().unwrap().0.failures;
    assert_eq!((desk.generation(), failures), (3, 1));
    let life = desk.life_of(worker(2)).unwrap();
    assert_eq!(life.from, Some(epoch));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn what_ends_a_life_that_has_begun_is_never_passed_over() {
    let mut desk = living();
    // A sink detects its wrong configuration at the first record. As nothing is committed yet,
    // another attempt would not help.
    let over = ToMaster::AttemptOver {
        worker: worker(2),
        generation: Generation(1),
        why: AttemptEnd::Unreadable("there is no such table".into()),
    };
    desk.happens(MasterEvent::From(over));
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.generation(), 2);
    assert_eq!(desk.epochs.as_ref().unwrap().0.failures, 1);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_new_master_resumes_the_running_attempt() {
    let mut desk = living();
    desk.commit_next();
    desk.take_over();
    desk.comes_back(worker(1), Some(1));
    assert_eq!(desk.newest(worker(1)).unwrap().run, Run::Running);
    desk.comes_back(worker(2), Some(1));
    desk.wait(Duration::from_millis(500));
    for container in [1, 2] {
        let life = desk.life_of(worker(container)).unwrap();
        assert_eq!(life.generation, Generation(1));
    }
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    desk.commit();
    assert_eq!(desk.generation(), 1);
}

#[test]
fn a_new_master_whose_first_write_is_refused_leads_when_it_is_taken() {
    let mut desk = living();
    desk.refuses = true;
    desk.take_over();
    desk.wait(Duration::from_secs(1));
    assert!(matches!(desk.master.phase(), JobPhase::Impossible(_)));
    assert!(!desk.master.accepts_messages());
    desk.refuses = false;
    desk.wait(Duration::from_millis(500));
    for container in [1, 2] {
        desk.comes_back(worker(container), Some(1));
    }
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(desk.generation(), 1);
}

#[test]
fn a_new_master_that_misses_one_of_the_life_goes_back() {
    // In the two cases the worker is replaced, or missing.
    for is_replaced in [true, false] {
        let mut desk = living();
        let epoch = desk.commit_next();
        desk.take_over();
        desk.comes_back(worker(1), Some(1));
        match is_replaced {
            true => desk.comes_back(later(2), None),
            false => desk.wait(config().recovery_grace),
        }
        desk.wait(Duration::from_millis(500));
        assert_eq!(desk.generation(), 2);
        assert_eq!(desk.life_of(worker(1)).unwrap().from, Some(epoch));
    }
}

#[test]
fn an_update_ends_an_epoch_and_all_begin_from_exactly_there_by_the_new_plan() {
    let mut desk = living();
    desk.commit_next();
    let update = Command::Update([("v".into(), 6)].into());
    assert_eq!(desk.command(update), Some(Ok(())));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    let busy = desk.command(Command::Update([("v".into(), 5)].into()));
    let busy = busy.unwrap().unwrap_err();
    assert_eq!(busy.code(), ErrorCode::WrongState);
    desk.come_near();
    desk.wait(Duration::from_millis(200));
    let (_, kind) = desk.asked_for().unwrap();
    assert_eq!((kind, desk.generation()), (EpochKind::Handover, 1));
    let epoch = desk.commit();
    desk.wait(Duration::from_millis(500));
    for container in [1, 2] {
        let told = desk.newest(worker(container)).unwrap();
        let life = told.attempt.unwrap();
        assert_eq!((life.generation, life.from), (Generation(2), Some(epoch)));
        let plans = [told.routes, told.next, told.last];
        assert_eq!(plans.map(|it| it.0), [2, 2, 2]);
    }
    assert_eq!(desk.indices(1), [0, 2, 4]);
    assert_eq!(desk.indices(2), [1, 3, 5]);
    assert!(desk.stored.as_ref().unwrap().0.previous.is_none());
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_plan_with_more_containers_is_followed_when_their_workers_are_there() {
    let mut desk = living();
    desk.commit_next();
    desk.command(Command::Update([("v".into(), 8)].into()));
    let Some(SchedulerCall::EnsureContainers(wanted)) = desk.calls.last() else {
        panic!("{:?}", desk.calls);
    };
    assert_eq!(wanted.len(), 3);
    desk.commit_next();
    let (_, kind) = desk.asked_for().unwrap();
    assert_eq!((desk.generation(), kind), (1, EpochKind::Usual));
    // The new worker has no instances before the next attempt.
    desk.comes_back(worker(3), None);
    assert_eq!(desk.newest(worker(3)), None);
    desk.take_over();
    for container in [1, 2] {
        desk.comes_back(worker(container), Some(1));
    }
    desk.wait(Duration::from_millis(200));
    desk.commit();
    desk.comes_back(worker(3), None);
    desk.come_near();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    let epoch = desk.commit();
    desk.wait(Duration::from_millis(500));
    for container in [1, 2, 3] {
        let life = desk.life_of(worker(container)).unwrap();
        assert_eq!(life.from, Some(epoch));
    }
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_job_is_spread_over_more_workers_and_over_fewer_again_and_only_what_moves_is_elsewhere() {
    let mut desk = living();
    desk.commit_next();
    let over = |count| Command::Rescale(NonZeroU32::new(count).unwrap());
    // The job already has that size; it has four instances.
    assert_eq!(desk.command(over(2)), Some(Ok(())));
    let Some(Err(refused)) = desk.command(over(5)) else {
        panic!("five workers for four instances");
    };
    assert!(
        refused.to_string().contains("fits in at most 4"),
        "{refused}"
    );
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(desk.command(over(3)), Some(Ok(())));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    desk.comes_back(worker(3), None);
    desk.come_near();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    let epoch = desk.commit();
    desk.wait(Duration::from_millis(500));
    let placed = |desk: &TestHarness| [1, 2, 3].map(|container| desk.indices(container));
    assert_eq!(placed(&desk), [vec![0], vec![1, 3], vec![2]]);
    let life = desk.life_of(worker(3)).unwrap();
    assert_eq!((life.generation, life.from), (Generation(2), Some(epoch)));
    assert_eq!(desk.master.phase(), &JobPhase::Running);

    assert_eq!(desk.command(over(2)), Some(Ok(())));
    desk.come_near();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    desk.commit();
    desk.wait(Duration::from_millis(500));
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));
    assert_eq!(desk.generation(), 3);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    let Some(SchedulerCall::EnsureContainers(wanted)) = desk.calls.last() else {
        panic!("{:?}", desk.calls);
    };
    assert_eq!(wanted.len(), 2);
}

#[test]
fn a_job_whose_workers_have_all_ended_and_heard_of_their_last_commit_has_finished() {
    let mut desk = living();
    let ended = ParticipantReport::Ended {
        after: None,
        receipt: receipt(None),
    };
    // The completion of instances does not count before it is committed.
    desk.say(worker(1), true);
    desk.say(worker(2), true);
    for container in [1, 2] {
        desk.report(worker(container), ended.clone());
    }
    assert!(!desk.finished);
    desk.wait(Duration::from_millis(200));
    let epoch = desk.committed().unwrap();
    desk.report(worker(1), ParticipantReport::CommitDone(epoch));
    // The worker is no longer required.
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.wait(Duration::from_millis(100));
    let restart = SchedulerCall::Restart(ContainerId(1));
    assert!(!desk.calls.contains(&restart));
    assert_eq!(desk.generation(), 1);
    desk.report(worker(2), ParticipantReport::CommitDone(epoch));
    assert!(desk.finished && desk.stored.is_none());
}

#[test]
fn paused_sources_do_not_keep_epochs_from_being_committed() {
    let mut desk = living();
    assert_eq!(desk.command(Command::Pause), Some(Ok(())));
    desk.carry_out_all();
    assert_eq!(desk.newest(worker(1)).unwrap().run, Run::Paused);
    assert_eq!(desk.master.phase(), &JobPhase::Paused);
    desk.commit_next();
    assert_eq!(desk.generation(), 1);
    let (record, _) = desk.stored.as_ref().unwrap();
    assert_eq!(record.intent, DesiredState::Pause);
}

#[test]
fn a_savepoint_is_answered_when_it_is_committed_and_a_kill_leaves_nobody_waiting() {
    let mut desk = living();
    let savepoint = Command::Epochs(CheckpointCommand::Savepoint);
    assert_eq!(desk.command(savepoint.clone()), None);
    desk.wait(Duration::from_millis(200));
    desk.commit();
    assert_eq!(desk.replies.last().unwrap().1, Ok(()));
    assert_eq!(desk.command(savepoint.clone()), None);
    desk.command(Command::Kill);
    let refused = desk.replies.iter().filter(|(_, reply)| reply.is_err());
    assert_eq!(refused.count(), 1);
    assert!(desk.finished);

    let mut desk = TestHarness::running();
    let refused = desk.command(savepoint).unwrap().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::WrongState);
}
