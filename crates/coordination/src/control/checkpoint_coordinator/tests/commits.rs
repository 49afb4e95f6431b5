//! Tests of committed, aborted and requested epochs.

use super::*;

#[test]
fn an_epoch_is_committed_when_all_have_saved_it_and_told_when_that_is_stored() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    assert_eq!(desk.words(), ALL.map(|id| (id, end_of(epoch))));
    desk.save(1, epoch);
    desk.save(2, epoch);
    desk.save(2, epoch);
    assert!(desk.words().is_empty());
    desk.store = Store::Away;
    desk.save(3, epoch);
    assert!(desk.words().is_empty());
    assert_eq!(desk.committed(), None);
    desk.store = Store::Answers;
    desk.wait(millis(1_100));
    assert_eq!(desk.committed(), Some(epoch));
    let told: Vec<_> = desk
        .told
        .iter()
        .map(|(_, message)| message.committed)
        .collect();
    assert_eq!(told[..3], [Some(Epoch(epoch)); 3]);
    assert_eq!(
        desk.words()[..3],
        ALL.map(|id| (id, CoordinatorMessage::Committed))
    );
    let checkpoint = desk.record().checkpoint(Epoch(epoch)).unwrap();
    assert_eq!((checkpoint.bytes(), checkpoint.snapshots.len()), (30, 3));
}

#[test]
fn epochs_come_at_their_interval_and_one_at_a_time() {
    let mut desk = TestHarness::running();
    let mut begun = Vec::new();
    for _ in 0..4 {
        let epoch = desk.next_epoch();
        begun.push((epoch, desk.now));
        desk.wait(millis(700));
        assert_eq!(desk.under_way(), Some(epoch));
        desk.all_save(epoch);
    }
    let first = begun[0];
    for (index, (epoch, at)) in begun.into_iter().enumerate() {
        assert_eq!(epoch, first.0 + index as u64);
        assert_eq!(at, first.1 + desk.config.interval * index as u32);
    }
}

#[test]
fn between_a_slow_epoch_and_the_next_there_is_a_pause_even_if_one_is_asked_for() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.command(1, CheckpointCommand::Savepoint);
    desk.wait(millis(1_500));
    let over_at = desk.now;
    desk.all_save(epoch);
    desk.next_epoch();
    assert_eq!(desk.now, over_at + desk.config.pause);
}

#[test]
fn an_epoch_that_is_too_slow_is_aborted_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    let slow = desk.next_epoch();
    desk.save(1, slow);
    desk.save(3, slow);
    desk.words();
    desk.wait(desk.config.timeout / 2);
    let (epoch, waiting_for) = (Epoch(slow), vec![ParticipantId(2)]);
    assert_eq!(
        desk.notes,
        [CoordinatorStatus::Slow {
            epoch,
            waiting_for: waiting_for.clone()
        }]
    );
    assert!(desk.words().iter().all(|word| *word == (2, end_of(slow))));
    desk.wait(desk.config.timeout / 2);
    let why = AbortReason::TimedOut(waiting_for);
    assert_eq!(desk.notes[1], CoordinatorStatus::Aborted { epoch, why });
    let aborted = ALL.map(|id| (id, CoordinatorMessage::Aborted(epoch)));
    assert!(desk.words().ends_with(&aborted));
    assert_eq!(desk.lives.len(), 1);
    // The snapshot comes too late, and does not count for the next epoch.
    let next = desk.next_epoch();
    desk.save(2, slow);
    desk.save(1, next);
    desk.save(3, next);
    assert_eq!(desk.committed(), None);
    desk.save(2, next);
    assert_eq!(desk.committed(), Some(next));
}

#[test]
fn who_cant_save_has_the_epoch_aborted_at_once_and_people_told_if_that_goes_on() {
    let mut desk = TestHarness::running();
    for _ in 0..desk.config.epochs_tolerated {
        let epoch = desk.next_epoch();
        desk.say(
            2,
            ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
        );
        assert_eq!(desk.under_way(), None);
    }
    let failing = |note: &CoordinatorStatus| matches!(note, CoordinatorStatus::Failing { .. });
    assert!(!desk.notes.iter().any(failing));
    let epoch = desk.next_epoch();
    desk.say(
        2,
        ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
    );
    assert!(desk.notes.iter().any(failing));
    assert_eq!(desk.lives.len(), 1);
    desk.commit_next();
    desk.notes.clear();
    let epoch = desk.next_epoch();
    desk.say(
        2,
        ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
    );
    assert!(!desk.notes.iter().any(failing));
}

#[test]
fn people_are_told_of_epochs_that_are_given_up_each_time_that_their_number_has_doubled() {
    let mut desk = TestHarness::running();
    for _ in 0..40 {
        let epoch = desk.next_epoch();
        desk.say(
            2,
            ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
        );
    }
    let told = desk.notes.iter().filter_map(|note| match note {
        CoordinatorStatus::Failing { in_a_row, .. } => Some(*in_a_row),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [4, 8, 16, 32]);
}

#[test]
fn a_checkpoint_that_is_refused_is_aborted_and_the_next_one_recorded() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Refuses;
    desk.all_save(epoch);
    assert_eq!(desk.under_way(), None);
    let why = AbortReason::NotRecorded(refused());
    let aborted = CoordinatorStatus::Aborted {
        epoch: Epoch(epoch),
        why,
    };
    assert!(desk.notes.contains(&aborted));
    desk.store = Store::Answers;
    assert_eq!(desk.commit_next(), epoch + 1);
}

#[test]
fn a_refused_checkpoint_that_an_earlier_try_may_yet_store_is_not_given_up_before_that_is_certain() {
    for arrives in [false, true] {
        let mut desk = TestHarness::running();
        let epoch = desk.next_epoch();
        desk.store = Store::Away;
        desk.all_save(epoch);
        desk.store = Store::Refuses;
        desk.wait(millis(1_500));
        assert_eq!(desk.under_way(), Some(epoch));
        if arrives {
            desk.comes_late();
        }
        desk.store = Store::Answers;
        desk.words();
        desk.wait(millis(300));
        assert_eq!(desk.committed(), arrives.then_some(epoch));
        let word = match arrives {
            true => CoordinatorMessage::Committed,
            false => CoordinatorMessage::Aborted(Epoch(epoch)),
        };
        assert_eq!(desk.words()[..3], ALL.map(|id| (id, word)));
        // The delayed writes arrive too late.
        desk.comes_late();
        assert_eq!(desk.committed(), arrives.then_some(epoch));
        assert_eq!(desk.commit_next(), epoch + 1);
    }
}

#[test]
fn while_it_is_not_known_whether_a_checkpoint_is_recorded_nothing_else_is_decided() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Mute;
    desk.all_save(epoch);
    desk.words();
    desk.command(1, CheckpointCommand::Savepoint);
    desk.lose(1);
    desk.wait(desk.config.timeout * 2);
    assert!(desk.words().is_empty());
    assert_eq!((desk.under_way(), desk.lives.len()), (Some(epoch), 1));
    let doubts = desk
        .notes
        .iter()
        .filter(|note| **note == CoordinatorStatus::RecordDoubtful);
    assert_eq!(doubts.count(), 1);
    // The checkpoint was stored, so the job is restored from it and not from an earlier one.
    desk.store = Store::Answers;
    desk.wait(millis(1_100));
    assert_eq!(
        desk.lives.last(),
        Some(&(Generation(2), Some(Epoch(epoch)), false))
    );
}

#[test]
fn who_has_not_said_that_a_commit_is_carried_out_is_told_again() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.hear(1, epoch);
    desk.hear(3, epoch + 7);
    desk.words();
    desk.wait(desk.config.repeat_after);
    let words = desk.words();
    let commits: Vec<_> = words
        .iter()
        .filter(|(_, word)| *word == CoordinatorMessage::Committed)
        .collect();
    assert_eq!(commits, [&(2, CoordinatorMessage::Committed)]);
}

#[test]
fn who_has_not_reported_is_asked_again() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    desk.save(1, epoch);
    desk.words();
    desk.wait(desk.config.repeat_after);
    assert_eq!(desk.words(), [(2, end_of(epoch)), (3, end_of(epoch))]);
}

#[test]
fn the_last_state_of_who_has_ended_counts_in_all_later_epochs_and_its_own_snapshots_before() {
    let mut desk = TestHarness::running();
    let epoch = desk.next_epoch();
    // The report of the participant's completion arrives before its earlier snapshot.
    desk.end(2, Some(epoch));
    desk.save(1, epoch);
    desk.save(3, epoch);
    assert_eq!(desk.committed(), None);
    desk.save(2, epoch);
    let ended = |desk: &TestHarness| {
        let committed = desk.record().committed.unwrap();
        desk.record().checkpoint(committed).unwrap().snapshots[&ParticipantId(2)].has_ended
    };
    assert!(!ended(&desk));
    for _ in 0..2 {
        let epoch = desk.next_epoch();
        desk.save(1, epoch);
        desk.save(3, epoch);
        assert_eq!(desk.committed(), Some(epoch));
        assert!(ended(&desk));
    }
}

#[test]
fn when_all_have_ended_a_last_epoch_is_committed_and_the_job_is_over_when_all_have_heard() {
    let mut desk = TestHarness::running();
    desk.commit_next();
    for id in ALL {
        desk.end(id, Some(1));
    }
    desk.wait(desk.config.pause);
    assert_eq!(desk.committed(), Some(2));
    desk.hear(1, 2);
    desk.hear(2, 2);
    desk.wait(desk.config.interval * 3);
    assert_eq!((desk.over.clone(), desk.committed()), (None, Some(2)));
    desk.hear(3, 2);
    assert_eq!(desk.over, Some(EpochsOver::Finished));
}

#[test]
fn old_checkpoints_are_dropped_when_the_record_needs_them_no_more_and_savepoints_when_forgotten() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Savepoint);
    let savepoint = desk.commit_next();
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(savepoint)))));
    let epochs = [0; 4].map(|_| Epoch(desk.commit_next()));
    assert_eq!(desk.kept, [Epoch(savepoint), epochs[2], epochs[3]]);
    desk.command(2, CheckpointCommand::Forget(epochs[3]));
    assert_eq!(
        desk.reply(2),
        Some(&Err(EpochNotDone::NoSuchCheckpoint(epochs[3])))
    );
    desk.command(3, CheckpointCommand::Forget(Epoch(savepoint)));
    assert_eq!(desk.kept, epochs[2..]);
    assert_eq!(desk.reply(3), Some(&Ok(Some(epochs[3]))));
}

#[test]
fn a_savepoint_that_is_aborted_is_answered_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Savepoint);
    let epoch = desk.next_epoch();
    assert_eq!(
        desk.words()[0].1,
        CoordinatorMessage::End(Epoch(epoch), EpochKind::Savepoint)
    );
    desk.say(
        1,
        ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
    );
    let Some(Err(not_done)) = desk.reply(1).cloned() else {
        panic!("{:?}", desk.replies);
    };
    let error = Error::from(not_done);
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    assert!(error.to_string().contains("disk full"), "{error}");
    desk.commit_next();
}

#[test]
fn a_job_stops_after_a_last_epoch_that_everybody_has_heard_the_commit_of() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Stop);
    let epoch = desk.next_epoch();
    assert_eq!(
        desk.words()[0].1,
        CoordinatorMessage::End(Epoch(epoch), EpochKind::Last)
    );
    desk.command(2, CheckpointCommand::Savepoint);
    desk.all_save(epoch);
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(epoch)))));
    assert_eq!(desk.reply(2), Some(&Err(EpochNotDone::Stopping)));
    desk.hear(1, epoch);
    desk.hear(2, epoch);
    // A participant that has confirmed is no longer required.
    desk.lose(1);
    desk.wait(desk.config.interval * 3);
    assert_eq!(
        (desk.over.clone(), desk.under_way(), desk.lives.len()),
        (None, None, 1)
    );
    desk.hear(3, epoch);
    assert_eq!(desk.over, Some(EpochsOver::Stopped));
}

#[test]
fn a_last_epoch_that_is_aborted_stops_nothing() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Stop);
    let epoch = desk.next_epoch();
    desk.say(
        1,
        ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
    );
    assert!(matches!(
        desk.reply(1),
        Some(Err(EpochNotDone::GivenUp { .. }))
    ));
    desk.words();
    let epoch = desk.next_epoch();
    assert_eq!(desk.words()[0].1, end_of(epoch));
}

#[test]
fn an_increment_since_an_epoch_that_is_not_committed_is_refused() {
    let mut desk = TestHarness::running();
    let aborted = desk.next_epoch();
    desk.say(
        1,
        ParticipantReport::CannotSave(Epoch(aborted), "disk full".into()),
    );
    let epoch = desk.next_epoch();
    let wrong = receipt(Some(Epoch(aborted)));
    desk.say(2, ParticipantReport::Saved(Epoch(epoch), wrong));
    assert_eq!(desk.under_way(), None);
    desk.commit_next();
}

#[test]
fn numbers_go_on_however_many_epochs_are_aborted() {
    let mut desk = TestHarness::running();
    for expected in 1..200 {
        let epoch = desk.next_epoch();
        assert_eq!(epoch, expected);
        assert!(Epoch(epoch) <= desk.record().numbers);
        desk.say(
            1,
            ParticipantReport::CannotSave(Epoch(epoch), "disk full".into()),
        );
    }
}
