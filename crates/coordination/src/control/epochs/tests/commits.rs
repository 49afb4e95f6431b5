//! Epochs that are committed, given up, and asked for.

use super::*;

#[test]
fn an_epoch_is_committed_when_all_have_saved_it_and_told_when_that_is_stored() {
    let mut desk = Desk::running();
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
    assert_eq!(desk.words()[..3], ALL.map(|id| (id, EpochWord::Committed)));
    let snapshot = desk.record().snapshot(Epoch(epoch)).unwrap();
    assert_eq!((snapshot.bytes(), snapshot.cuts.len()), (30, 3));
}

#[test]
fn epochs_come_at_their_interval_and_one_at_a_time() {
    let mut desk = Desk::running();
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
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    desk.command(1, EpochsCommand::Savepoint);
    desk.wait(millis(1_500));
    let over_at = desk.now;
    desk.all_save(epoch);
    desk.next_epoch();
    assert_eq!(desk.now, over_at + desk.config.pause);
}

#[test]
fn an_epoch_that_is_too_slow_is_given_up_and_the_job_goes_on() {
    let mut desk = Desk::running();
    let slow = desk.next_epoch();
    desk.save(1, slow);
    desk.save(3, slow);
    desk.words();
    desk.wait(desk.config.timeout / 2);
    let (epoch, waiting_for) = (Epoch(slow), vec![ParticipantId(2)]);
    assert_eq!(
        desk.notes,
        [EpochsNote::Slow {
            epoch,
            waiting_for: waiting_for.clone()
        }]
    );
    assert!(desk.words().iter().all(|word| *word == (2, end_of(slow))));
    desk.wait(desk.config.timeout / 2);
    let why = GivenUp::TimedOut(waiting_for);
    assert_eq!(desk.notes[1], EpochsNote::GivenUp { epoch, why });
    let given_up = ALL.map(|id| (id, EpochWord::GivenUp(epoch)));
    assert!(desk.words().ends_with(&given_up));
    assert_eq!(desk.lives.len(), 1);
    // Its cut comes too late for it, and isn't taken for one of the next.
    let next = desk.next_epoch();
    desk.save(2, slow);
    desk.save(1, next);
    desk.save(3, next);
    assert_eq!(desk.committed(), None);
    desk.save(2, next);
    assert_eq!(desk.committed(), Some(next));
}

#[test]
fn who_cant_save_has_the_epoch_given_up_at_once_and_people_told_if_that_goes_on() {
    let mut desk = Desk::running();
    for _ in 0..desk.config.epochs_tolerated {
        let epoch = desk.next_epoch();
        desk.say(2, Report::CannotSave(Epoch(epoch), "disk full".into()));
        assert_eq!(desk.under_way(), None);
    }
    let failing = |note: &EpochsNote| matches!(note, EpochsNote::Failing { .. });
    assert!(!desk.notes.iter().any(failing));
    let epoch = desk.next_epoch();
    desk.say(2, Report::CannotSave(Epoch(epoch), "disk full".into()));
    assert!(desk.notes.iter().any(failing));
    assert_eq!(desk.lives.len(), 1);
    desk.commit_next();
    desk.notes.clear();
    let epoch = desk.next_epoch();
    desk.say(2, Report::CannotSave(Epoch(epoch), "disk full".into()));
    assert!(!desk.notes.iter().any(failing));
}

#[test]
fn people_are_told_of_epochs_that_are_given_up_each_time_that_their_number_has_doubled() {
    let mut desk = Desk::running();
    for _ in 0..40 {
        let epoch = desk.next_epoch();
        desk.say(2, Report::CannotSave(Epoch(epoch), "disk full".into()));
    }
    let told = desk.notes.iter().filter_map(|note| match note {
        EpochsNote::Failing { in_a_row, .. } => Some(*in_a_row),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [4, 8, 16, 32]);
}

#[test]
fn a_snapshot_that_is_refused_is_given_up_and_the_next_one_recorded() {
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Refuses;
    desk.all_save(epoch);
    assert_eq!(desk.under_way(), None);
    let why = GivenUp::NotRecorded(refused());
    let given_up = EpochsNote::GivenUp {
        epoch: Epoch(epoch),
        why,
    };
    assert!(desk.notes.contains(&given_up));
    desk.store = Store::Answers;
    assert_eq!(desk.commit_next(), epoch + 1);
}

#[test]
fn a_refused_snapshot_that_an_earlier_try_may_yet_store_is_not_given_up_before_that_is_certain() {
    for arrives in [false, true] {
        let mut desk = Desk::running();
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
            true => EpochWord::Committed,
            false => EpochWord::GivenUp(Epoch(epoch)),
        };
        assert_eq!(desk.words()[..3], ALL.map(|id| (id, word)));
        // Whatever comes later is too late.
        desk.comes_late();
        assert_eq!(desk.committed(), arrives.then_some(epoch));
        assert_eq!(desk.commit_next(), epoch + 1);
    }
}

#[test]
fn while_it_is_not_known_whether_a_snapshot_is_recorded_nothing_else_is_decided() {
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    desk.store = Store::Mute;
    desk.all_save(epoch);
    desk.words();
    desk.command(1, EpochsCommand::Savepoint);
    desk.lose(1);
    desk.wait(desk.config.timeout * 2);
    assert!(desk.words().is_empty());
    assert_eq!((desk.under_way(), desk.lives.len()), (Some(epoch), 1));
    let doubts = desk
        .notes
        .iter()
        .filter(|note| **note == EpochsNote::RecordDoubtful);
    assert_eq!(doubts.count(), 1);
    // It was, so the job goes back to it and not behind it.
    desk.store = Store::Answers;
    desk.wait(millis(1_100));
    assert_eq!(
        desk.lives.last(),
        Some(&(Generation(2), Some(Epoch(epoch)), false))
    );
}

#[test]
fn who_has_not_said_that_a_commit_is_carried_out_is_told_again() {
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.hear(1, epoch);
    desk.hear(3, epoch + 7);
    desk.words();
    desk.wait(desk.config.repeat_after);
    let words = desk.words();
    let commits: Vec<_> = words
        .iter()
        .filter(|(_, word)| *word == EpochWord::Committed)
        .collect();
    assert_eq!(commits, [&(2, EpochWord::Committed)]);
}

#[test]
fn who_has_not_reported_is_asked_again() {
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    desk.save(1, epoch);
    desk.words();
    desk.wait(desk.config.repeat_after);
    assert_eq!(desk.words(), [(2, end_of(epoch)), (3, end_of(epoch))]);
}

#[test]
fn the_last_state_of_who_has_ended_counts_in_all_later_epochs_and_its_own_cuts_before() {
    let mut desk = Desk::running();
    let epoch = desk.next_epoch();
    // Its end is heard of before the cut that it took first.
    desk.end(2, Some(epoch));
    desk.save(1, epoch);
    desk.save(3, epoch);
    assert_eq!(desk.committed(), None);
    desk.save(2, epoch);
    let ended = |desk: &Desk| {
        let committed = desk.record().committed.unwrap();
        desk.record().snapshot(committed).unwrap().cuts[&ParticipantId(2)].has_ended
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
    let mut desk = Desk::running();
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
fn old_snapshots_are_dropped_when_the_record_needs_them_no_more_and_savepoints_when_forgotten() {
    let mut desk = Desk::running();
    desk.command(1, EpochsCommand::Savepoint);
    let savepoint = desk.commit_next();
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(savepoint)))));
    let epochs = [0; 4].map(|_| Epoch(desk.commit_next()));
    assert_eq!(desk.kept, [Epoch(savepoint), epochs[2], epochs[3]]);
    desk.command(2, EpochsCommand::Forget(epochs[3]));
    assert_eq!(
        desk.reply(2),
        Some(&Err(EpochNotDone::NoSuchSnapshot(epochs[3])))
    );
    desk.command(3, EpochsCommand::Forget(Epoch(savepoint)));
    assert_eq!(desk.kept, epochs[2..]);
    assert_eq!(desk.reply(3), Some(&Ok(Some(epochs[3]))));
}

#[test]
fn a_savepoint_that_is_given_up_is_answered_and_the_job_goes_on() {
    let mut desk = Desk::running();
    desk.command(1, EpochsCommand::Savepoint);
    let epoch = desk.next_epoch();
    assert_eq!(
        desk.words()[0].1,
        EpochWord::End(Epoch(epoch), EpochKind::Savepoint)
    );
    desk.say(1, Report::CannotSave(Epoch(epoch), "disk full".into()));
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
    let mut desk = Desk::running();
    desk.command(1, EpochsCommand::Stop);
    let epoch = desk.next_epoch();
    assert_eq!(
        desk.words()[0].1,
        EpochWord::End(Epoch(epoch), EpochKind::Last)
    );
    desk.command(2, EpochsCommand::Savepoint);
    desk.all_save(epoch);
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(epoch)))));
    assert_eq!(desk.reply(2), Some(&Err(EpochNotDone::Stopping)));
    desk.hear(1, epoch);
    desk.hear(2, epoch);
    // Who has heard is not needed any more.
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
fn a_last_epoch_that_is_given_up_stops_nothing() {
    let mut desk = Desk::running();
    desk.command(1, EpochsCommand::Stop);
    let epoch = desk.next_epoch();
    desk.say(1, Report::CannotSave(Epoch(epoch), "disk full".into()));
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
    let mut desk = Desk::running();
    let given_up = desk.next_epoch();
    desk.say(1, Report::CannotSave(Epoch(given_up), "disk full".into()));
    let epoch = desk.next_epoch();
    let wrong = receipt(Some(Epoch(given_up)));
    desk.say(2, Report::Saved(Epoch(epoch), wrong));
    assert_eq!(desk.under_way(), None);
    desk.commit_next();
}

#[test]
fn numbers_go_on_however_many_epochs_are_given_up() {
    let mut desk = Desk::running();
    for expected in 1..200 {
        let epoch = desk.next_epoch();
        assert_eq!(epoch, expected);
        assert!(Epoch(epoch) <= desk.record().numbers);
        desk.say(1, Report::CannotSave(Epoch(epoch), "disk full".into()));
    }
}
