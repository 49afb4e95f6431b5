//! Tests of the recovery of one worker in the current attempt.

use super::*;
use crate::control::{JobRecoveryReason, RecoveryScope};

/// Creates a job whose workers can be restored alone, after its first commit.
fn committed() -> (TestHarness, Epoch) {
    let mut desk = living();
    desk.scope = RecoveryScope::Worker;
    desk.carry_out_all();
    let epoch = desk.commit_next();
    (desk, epoch)
}

fn rollbacks(desk: &TestHarness) -> Vec<String> {
    let notes = desk.notes.iter();
    let rollbacks = notes.filter_map(|note| match note {
        MasterStatus::Epochs(CoordinatorStatus::RollingBack { reason, .. }) => Some(reason.clone()),
        _ => None,
    });
    rollbacks.collect()
}

fn is_restored_alone(desk: &TestHarness) -> bool {
    let is_restored = |note: &MasterStatus| {
        matches!(
            note,
            MasterStatus::Epochs(CoordinatorStatus::RestoredAlone { .. })
        )
    };
    desk.notes.iter().any(is_restored)
}

#[test]
fn a_lost_worker_is_restored_alone_in_the_same_attempt_while_the_others_continue() {
    let (mut desk, epoch) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    assert_eq!(desk.newest(worker(2)).unwrap().run, Run::Running);
    desk.comes_back(later(1), None);
    let told = desk.newest(later(1)).unwrap().clone();
    let attempt = told.attempt.unwrap();
    assert_eq!(attempt.generation, Generation(1));
    assert_eq!(
        (attempt.from, attempt.taken_in),
        (Some(epoch), Generation(1))
    );
    let repeated = &desk.newest(worker(2)).unwrap().restarted;
    assert_eq!(repeated.len(), 1);
    assert_eq!(
        (repeated[0].worker, repeated[0].from),
        (later(1), Some(epoch))
    );
    let of_other = desk.life_of(worker(2)).unwrap();
    assert_eq!((of_other.generation, of_other.from), (Generation(1), None));
    desk.carry_out_all();
    assert!(is_restored_alone(&desk));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    let next = desk.commit_next();
    assert!(next > epoch);
    assert_eq!((desk.generation(), rollbacks(&desk)), (1, Vec::new()));

    // The other worker is restored alone from the later checkpoint.
    desk.happens(MasterEvent::Exited(worker(2)));
    desk.comes_back(later(2), None);
    assert_eq!(desk.life_of(later(2)).unwrap().from, Some(next));
    assert_eq!(desk.life_of(later(1)).unwrap().from, Some(epoch));
    desk.carry_out_all();
    desk.commit_next();
    assert_eq!((desk.generation(), rollbacks(&desk)), (1, Vec::new()));
}

#[test]
fn no_checkpoint_is_triggered_before_all_workers_are_told_to_repeat_their_output() {
    let (mut desk, epoch) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.comes_back(later(1), None);
    for _ in 0..100 {
        desk.now += Duration::from_millis(50);
        desk.carry_out(later(1));
        desk.happens(MasterEvent::From(ToMaster::Status(Status {
            worker: worker(2),
            applied: None,
            ended: false,
            scope: RecoveryScope::Worker,
        })));
        desk.happens(MasterEvent::Tick);
    }
    assert_eq!(desk.asked_for().unwrap().0, epoch);
    assert!(!is_restored_alone(&desk));
    desk.carry_out_all();
    assert!(desk.commit_next() > epoch);
}

#[test]
fn the_whole_job_is_restored_with_the_reason_if_a_checkpoint_is_in_progress() {
    let (mut desk, _) = committed();
    let before = desk.asked_for();
    while desk.asked_for() == before {
        desk.wait(Duration::from_millis(50));
    }
    desk.happens(MasterEvent::Exited(worker(1)));
    let reasons = rollbacks(&desk);
    assert!(
        reasons[0].ends_with("it is not restored alone: a checkpoint was in progress"),
        "{reasons:?}"
    );
    desk.comes_back(later(1), None);
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.generation(), 2);
}

#[test]
fn the_whole_job_is_restored_after_an_aborted_checkpoint_until_the_next_commit() {
    let (mut desk, _) = committed();
    let before = desk.asked_for();
    while desk.asked_for() == before {
        desk.wait(Duration::from_millis(50));
    }
    let (epoch, _) = desk.asked_for().unwrap();
    desk.report(
        worker(2),
        ParticipantReport::CannotSave(epoch, "the store is full".into()),
    );
    desk.happens(MasterEvent::Exited(worker(1)));
    assert_eq!(rollbacks(&desk).len(), 1);
}

#[test]
fn the_whole_job_is_restored_if_another_worker_is_lost_meanwhile() {
    let (mut desk, epoch) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.happens(MasterEvent::Exited(worker(2)));
    assert!(rollbacks(&desk)[0].contains("the job was being changed, restored or ended"));
    desk.comes_back(later(1), None);
    desk.comes_back(later(2), None);
    desk.wait(Duration::from_secs(1));
    assert_eq!(desk.generation(), 2);
    let attempt = desk.life_of(later(1)).unwrap();
    assert_eq!(attempt.from, Some(epoch));
    assert!(desk.newest(later(1)).unwrap().restarted.is_empty());
}

#[test]
fn the_whole_job_is_restored_if_the_restored_worker_is_lost_before_all_is_repeated() {
    let (mut desk, _) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.comes_back(later(1), None);
    desk.happens(MasterEvent::Exited(later(1)));
    assert_eq!(rollbacks(&desk).len(), 1);
}

#[test]
fn the_whole_job_is_restored_if_a_worker_dies_again_before_the_next_checkpoint() {
    let (mut desk, _) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.comes_back(later(1), None);
    desk.carry_out_all();
    assert!(is_restored_alone(&desk));
    desk.happens(MasterEvent::Exited(later(1)));
    assert!(rollbacks(&desk)[0].ends_with("from the same checkpoint before"));
}

#[test]
fn the_whole_job_is_restored_if_another_worker_dies_before_the_next_checkpoint() {
    let (mut desk, _) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.comes_back(later(1), None);
    desk.carry_out_all();
    assert!(is_restored_alone(&desk));
    desk.happens(MasterEvent::Exited(worker(2)));
    assert!(rollbacks(&desk)[0].ends_with("from the same checkpoint before"));
}

#[test]
fn the_whole_job_is_restored_if_a_worker_cannot_repeat_its_output() {
    let (mut desk, _) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.comes_back(later(1), None);
    desk.happens(MasterEvent::From(ToMaster::AttemptOver {
        worker: worker(2),
        generation: Generation(1),
        why: AttemptEnd::Failed(AttemptFailure::transient("output was not kept")),
    }));
    desk.wait(Duration::from_secs(1));
    assert_eq!((rollbacks(&desk).len(), desk.generation()), (1, 2));
}

#[test]
fn a_new_leader_restores_the_whole_job_if_the_lost_worker_has_not_come_back() {
    let (mut desk, _) = committed();
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.take_over();
    desk.comes_back(worker(2), Some(1));
    desk.comes_back(later(1), None);
    desk.wait(Duration::from_secs(1));
    assert_eq!(desk.generation(), 2);
}

#[test]
fn the_reason_why_a_worker_is_not_restored_alone_is_reported() {
    let (mut desk, _) = committed();
    desk.scope = RecoveryScope::JobBecause(JobRecoveryReason::HasSource);
    desk.carry_out_all();
    desk.happens(MasterEvent::Exited(worker(1)));
    let reasons = rollbacks(&desk);
    assert!(
        reasons[0].ends_with("it is not restored alone: it runs a source that is not repeatable"),
        "{reasons:?}"
    );
}
