//! Tests of handovers to another plan: an epoch ends, and another attempt starts from exactly this
//! point.

use super::*;
use crate::control::PlanVersion;

impl TestHarness {
    fn arrange(&mut self, plan: u64) {
        self.happens(CoordinatorEvent::Arranged(PlanVersion(plan)));
    }

    /// Sets the plan `plan`, and commits the regular epoch that precedes the handover to it.
    fn come_near(&mut self, plan: u64) {
        self.words();
        self.arrange(plan);
        self.wait(self.config.pause);
        let epoch = self.commit_next();
        let usual = CoordinatorMessage::End(Epoch(epoch), EpochKind::Usual);
        assert!(self.words().contains(&(1, usual)));
    }

    fn plan(&self) -> u64 {
        self.record().plan.0
    }
}

fn handover(epoch: u64) -> CoordinatorMessage {
    CoordinatorMessage::End(Epoch(epoch), EpochKind::Handover)
}

/// Creates a job whose current attempt uses its first plan, with one committed epoch.
fn running_by_the_first_plan() -> TestHarness {
    let mut desk = TestHarness::running();
    desk.come_near(1);
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.begin_asked_for();
    assert_eq!((desk.plan(), desk.lives.len()), (1, 2));
    desk.commit_next();
    desk.words();
    desk
}

#[test]
fn the_first_life_is_arranged_by_the_plan_that_is_told_before_it_is_written() {
    let mut epochs =
        CheckpointCoordinator::new(job(), MasterEpoch(1), CoordinatorConfig::default());
    let asked = epochs.on(Duration::ZERO, CoordinatorEvent::Arranged(PlanVersion(3)));
    let [CoordinatorAction::Record(id, StoreRequest::Read)] = asked[..] else {
        panic!("{asked:?}");
    };
    let nothing = CoordinatorEvent::Record(id, StoreReply::Found(None));
    let written = epochs.on(Duration::ZERO, nothing);
    let [CoordinatorAction::Record(_, StoreRequest::Write { value, .. })] = &written[..] else {
        panic!("{written:?}");
    };
    assert_eq!(
        (value.plan, value.generation),
        (PlanVersion(3), Generation(1))
    );
}

#[test]
fn another_plan_ends_an_epoch_and_begins_a_life_from_exactly_there_by_one_write() {
    let mut desk = running_by_the_first_plan();
    let before = desk.record().clone();
    desk.come_near(2);
    desk.wait(desk.config.pause);
    let epoch = desk.under_way().unwrap();
    assert_eq!(desk.words(), ALL.map(|id| (id, handover(epoch))));
    desk.save(1, epoch);
    desk.save(2, epoch);
    assert_eq!(desk.record().generation, before.generation);
    desk.save(3, epoch);
    let record = desk.record().clone();
    assert_eq!(
        (record.committed, record.restored_from),
        (Some(Epoch(epoch)), Some(Epoch(epoch)))
    );
    assert_eq!(
        (record.generation, record.plan.0),
        (before.generation.next(), 2)
    );
    assert!(!record.begun && record.failures == 0);
    assert_eq!(
        desk.lives.last(),
        Some(&(record.generation, Some(Epoch(epoch)), false))
    );
    let checkpoint = record.checkpoint(Epoch(epoch)).unwrap();
    assert_eq!(
        (checkpoint.generation, checkpoint.is_savepoint),
        (before.generation, false)
    );
    assert_eq!(record.attempt().taken_in, before.generation);
    desk.begin_asked_for();
    assert!(desk.commit_next() > epoch);
    assert_eq!(desk.lives.len(), 3);
}

#[test]
fn a_handover_that_is_aborted_is_tried_again_and_a_savepoint_comes_before_it() {
    let mut desk = running_by_the_first_plan();
    desk.come_near(2);
    desk.wait(desk.config.pause);
    let first = desk.under_way().unwrap();
    desk.say(
        1,
        ParticipantReport::CannotSave(Epoch(first), "the disk is full".into()),
    );
    desk.command(7, CheckpointCommand::Savepoint);
    desk.words();
    desk.wait(desk.config.pause);
    let second = desk.under_way().unwrap();
    let savepoint = CoordinatorMessage::End(Epoch(second), EpochKind::Savepoint);
    assert_eq!(desk.words(), ALL.map(|id| (id, savepoint)));
    desk.all_save(second);
    desk.all_hear(second);
    desk.words();
    desk.wait(desk.config.pause);
    let third = desk.under_way().unwrap();
    assert_eq!(desk.words(), ALL.map(|id| (id, handover(third))));
    desk.all_save(third);
    assert_eq!(
        (desk.plan(), desk.record().restored_from),
        (2, Some(Epoch(third)))
    );
}

#[test]
fn a_life_that_fails_before_it_is_handed_over_is_followed_by_one_of_the_new_plan() {
    let mut desk = running_by_the_first_plan();
    desk.come_near(2);
    let committed = desk.committed();
    desk.wait(desk.config.pause);
    let epoch = desk.under_way().unwrap();
    desk.save(1, epoch);
    desk.lose(2);
    desk.words();
    desk.wait(Duration::from_secs(1));
    assert_eq!((desk.plan(), desk.committed()), (2, committed));
    assert_eq!(desk.record().restored_from.map(|epoch| epoch.0), committed);
    desk.begin_asked_for();
    desk.next_epoch();
    assert!(desk.words().iter().all(
        |(_, word)| !matches!(word, CoordinatorMessage::End(_, kind) if kind.holds_sources())
    ));
}

#[test]
fn a_successor_that_does_not_know_of_the_plan_yet_leaves_the_life_as_it_is() {
    let mut desk = running_by_the_first_plan();
    desk.take_over();
    let generation = desk.record().generation;
    assert_eq!(desk.resumed, [generation]);
    desk.begin(generation, desk.record().restored_from);
    desk.commit_next();
    assert_eq!((desk.plan(), desk.record().generation), (1, generation));
    // The coordinator receives the next plan, and hands over to it.
    desk.come_near(2);
    desk.wait(desk.config.pause);
    let epoch = desk.under_way().unwrap();
    desk.all_save(epoch);
    assert_eq!(
        (desk.plan(), desk.record().generation),
        (2, generation.next())
    );
}

#[test]
fn a_handover_whose_answer_is_lost_is_found_and_the_next_life_begins_once() {
    let mut desk = running_by_the_first_plan();
    desk.come_near(2);
    desk.wait(desk.config.pause);
    let (epoch, lives) = (desk.under_way().unwrap(), desk.lives.len());
    desk.store = Store::Mute;
    desk.all_save(epoch);
    assert_eq!((desk.plan(), desk.lives.len()), (2, lives));
    desk.store = Store::Answers;
    desk.wait(millis(1_500));
    assert_eq!(desk.lives.len(), lives + 1);
    desk.begin_asked_for();
    desk.commit_next();
}
