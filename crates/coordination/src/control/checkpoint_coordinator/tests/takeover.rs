//! Tests of successive leaders.

use super::*;

#[test]
fn a_successor_tells_the_commit_that_its_predecessor_did_not_tell() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Mute;
    desk.all_save(epoch);
    assert_eq!(desk.committed(), Some(epoch));
    desk.take_over();
    assert_eq!(desk.resumed, [Generation(1)]);
    desk.begin(Generation(1), None);
    let told: Vec<_> = desk
        .told
        .iter()
        .map(|(_, message)| message.committed)
        .collect();
    assert_eq!(told[..3], [Some(Epoch(epoch)); 3]);
    assert_eq!(desk.lives.len(), 1);
}

#[test]
fn a_successor_uses_numbers_that_its_predecessor_has_not_used_and_ends_an_epoch_at_once() {
    let mut desk = TestHarness::running();
    desk.commit_next();
    let open = desk.next_epoch();
    desk.save(1, open);
    desk.take_over();
    desk.begin(Generation(1), None);
    let epoch = desk.under_way().unwrap();
    assert!(epoch > open);
    desk.save(2, open);
    desk.save(3, open);
    assert_eq!(desk.committed(), Some(1));
    desk.all_save(epoch);
    assert_eq!(desk.committed(), Some(epoch));
}

#[test]
fn what_a_predecessor_writes_late_is_refused_or_found() {
    for late_first in [false, true] {
        let mut desk = TestHarness::running();
        let epoch = desk.next_epoch();
        desk.store = Store::Away;
        desk.all_save(epoch);
        if late_first {
            desk.comes_late();
        }
        desk.take_over();
        desk.comes_late();
        desk.begin(Generation(1), None);
        assert_eq!(desk.committed(), late_first.then_some(epoch));
        assert!(desk.commit_next() > epoch);
    }
}

#[test]
fn a_write_that_comes_between_a_successors_look_and_its_claim_is_found() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Away;
    desk.all_save(epoch);
    let late = desk.missed.pop().unwrap();
    let mut successor = CheckpointCoordinator::new(job(), MasterEpoch(2), desk.config);
    let now = desk.now;
    let mut ask = |event| match &successor.on(now, event)[..] {
        [CoordinatorAction::Record(id, request)] => (*id, request.clone()),
        other => panic!("{other:?}"),
    };
    let (read, _) = ask(CoordinatorEvent::Tick);
    let found = StoreReply::Found(desk.stored.clone());
    let (claim, request) = ask(CoordinatorEvent::Record(read, found));
    desk.carry_out(late);
    assert_eq!(desk.carry_out(request), StoreReply::Conflict);
    let (read, _) = ask(CoordinatorEvent::Record(claim, StoreReply::Conflict));
    let found = StoreReply::Found(desk.stored.clone());
    let (_, StoreRequest::Write { value, .. }) = ask(CoordinatorEvent::Record(read, found)) else {
        panic!("nothing is claimed");
    };
    assert_eq!(
        (value.committed, value.master),
        (Some(Epoch(epoch)), MasterEpoch(2))
    );
}

#[test]
fn a_master_that_finds_a_later_ones_record_does_nothing_any_more() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Savepoint);
    let epoch = desk.next_epoch();
    let mut later = desk.record().clone();
    later.master = MasterEpoch(5);
    desk.stored = Some((Arc::new(later), StoreVersion(77)));
    desk.words();
    for id in ALL {
        desk.say_in(
            Generation(1),
            id,
            ParticipantReport::Saved(Epoch(epoch), receipt(None)),
        );
    }
    let over = EpochsOver::Superseded(MasterEpoch(5));
    assert_eq!(desk.over, Some(over.clone()));
    assert_eq!(desk.reply(1), Some(&Err(EpochNotDone::Over(over))));
    desk.wait(desk.config.interval * 3);
    assert!(desk.words().is_empty());
    assert_eq!(desk.committed(), None);
}

#[test]
fn a_life_that_is_not_known_to_have_begun_is_replaced_by_another_that_counts_as_no_failure() {
    let mut desk = TestHarness::new(CoordinatorConfig::default());
    assert_eq!(desk.lives, [(Generation(1), None, false)]);
    desk.take_over();
    assert_eq!(desk.lives.last(), Some(&(Generation(2), None, false)));
    assert_eq!(desk.record().failures, 0);
    desk.begin(Generation(1), None);
    assert!(!desk.record().begun);
    desk.begin_asked_for();
    desk.commit_next();
}

#[test]
fn a_successor_waits_as_long_as_its_predecessor_before_a_life_that_follows_failures() {
    let mut desk = TestHarness::running();
    for _ in 0..4 {
        let count = desk.lives.len();
        desk.lose(1);
        while desk.lives.len() == count {
            desk.wait(millis(50));
        }
        desk.begin_asked_for();
    }
    desk.lose(1);
    let (count, generation) = (desk.lives.len(), desk.record().generation);
    desk.take_over();
    desk.wait(millis(750));
    assert_eq!(desk.lives.len(), count);
    desk.wait(millis(50));
    assert_eq!(desk.lives.last(), Some(&(generation.next(), None, false)));
}

#[test]
fn a_successor_goes_back_if_somebody_was_lost_meanwhile() {
    let mut desk = TestHarness::running();
    let epoch = desk.commit_next();
    desk.take_over();
    desk.lose(2);
    assert_eq!(
        desk.lives.last(),
        Some(&(Generation(2), Some(Epoch(epoch)), false))
    );
}

#[test]
fn a_successor_stops_a_job_whose_last_epoch_is_recorded() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Stop);
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.take_over();
    desk.begin(Generation(1), None);
    desk.all_hear(epoch);
    assert_eq!(desk.over, Some(EpochsOver::Stopped));
}

#[test]
fn a_successor_stays_in_safe_mode() {
    let mut desk = TestHarness::running();
    desk.commit_next();
    while desk.record().safe_mode.is_none() {
        let count = desk.lives.len();
        desk.lose(1);
        while desk.lives.len() == count {
            desk.wait(millis(50));
        }
        desk.begin_asked_for();
    }
    desk.notes.clear();
    desk.take_over();
    assert!(matches!(desk.notes[..], [CoordinatorStatus::SafeMode(_)]));
    let generation = desk.record().generation;
    assert_eq!(desk.resumed, [generation]);
    desk.begin(generation, Some(Epoch(1)));
    desk.wait(desk.config.interval * 5);
    assert_eq!(desk.under_way(), None);
    desk.command(1, CheckpointCommand::Retry);
    desk.begin_asked_for();
    desk.commit_next();
}

#[test]
fn a_job_that_is_gone_has_no_epochs() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.stored = None;
    let generation = Generation(1);
    for id in ALL {
        desk.say_in(
            generation,
            id,
            ParticipantReport::Saved(Epoch(epoch), receipt(None)),
        );
    }
    assert_eq!(desk.over, Some(EpochsOver::Gone));
}

#[test]
fn what_is_stored_can_be_read_again() {
    let mut desk = TestHarness::running();
    desk.commit_next();
    let text = serde_json::to_string(desk.record()).unwrap();
    let read: CheckpointRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(read, *desk.record());
    let bytes = postcard::to_stdvec(desk.record()).unwrap();
    let read: CheckpointRecord = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, *desk.record());
}
