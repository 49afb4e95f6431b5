//! Tests of rollbacks, and of jobs that fail repeatedly.

use super::*;

#[test]
fn who_loses_a_participant_goes_back_to_what_is_committed_and_forgets_the_life_before() {
    let mut desk = TestHarness::running();
    let committed = desk.commit_next();
    let lost = desk.next_epoch();
    desk.save(1, lost);
    desk.save(2, lost);
    desk.lose(3);
    let (old, new) = (Generation(1), Generation(2));
    assert_eq!(desk.lives[1], (new, Some(Epoch(committed)), false));
    let why = AbortReason::RolledBack("it has died".into());
    let aborted = CoordinatorStatus::Aborted {
        epoch: Epoch(lost),
        why,
    };
    assert!(desk.notes.contains(&aborted));
    // Messages of the old attempt are ignored, and its start is not awaited.
    desk.say_in(old, 3, ParticipantReport::Saved(Epoch(lost), receipt(None)));
    desk.begin(old, None);
    assert_eq!(desk.committed(), Some(committed));
    desk.words();
    desk.begin(new, Some(Epoch(committed)));
    assert_eq!(
        desk.words(),
        ALL.map(|id| (id, CoordinatorMessage::Committed))
    );
    let next = desk.next_epoch();
    assert!(next > lost);
    desk.say_in(old, 1, ParticipantReport::Saved(Epoch(next), receipt(None)));
    desk.save(2, next);
    desk.save(3, next);
    assert_eq!(desk.committed(), Some(committed));
    desk.save(1, next);
    assert_eq!(desk.committed(), Some(next));
}

#[test]
fn a_loss_while_the_checkpoint_is_being_recorded_waits_for_what_becomes_of_that() {
    for stored in [false, true] {
        let mut desk = TestHarness::running();
        let epoch = desk.next_epoch();
        desk.store = if stored { Store::Mute } else { Store::Away };
        desk.all_save(epoch);
        desk.lose(2);
        assert_eq!(desk.lives.len(), 1);
        desk.store = Store::Answers;
        desk.wait(millis(1_200));
        let last = desk.lives.last().unwrap();
        // The epoch can be recorded without the lost participant. It is recorded now unless it was
        // before.
        assert_eq!(*last, (Generation(2), Some(Epoch(epoch)), false));
        assert_eq!(desk.committed(), Some(epoch));
    }
}

#[test]
fn who_has_ended_is_needed_until_it_has_heard_that_its_last_state_is_committed() {
    for heard in [false, true] {
        let mut desk = TestHarness::running();
        desk.end(2, None);
        let epoch = desk.next_epoch();
        desk.save(1, epoch);
        desk.save(3, epoch);
        if heard {
            desk.hear(2, epoch);
        }
        desk.lose(2);
        assert_eq!(desk.lives.len(), if heard { 1 } else { 2 });
    }
}

#[test]
fn who_ends_in_a_life_that_was_restored_is_needed_until_a_commit_of_that_life() {
    let mut desk = TestHarness::running();
    let committed = desk.commit_next();
    desk.lose(1);
    desk.begin_asked_for();
    desk.hear(2, committed);
    desk.end(2, None);
    desk.lose(2);
    desk.wait(millis(200));
    assert_eq!(desk.lives.len(), 3);
}

#[test]
fn waits_between_lives_that_fail_double_until_an_epoch_is_committed() {
    let mut desk = TestHarness::running();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let (count, failed_at) = (desk.lives.len(), desk.now);
        desk.lose(1);
        while desk.lives.len() == count {
            desk.wait(millis(50));
        }
        waits.push((desk.now - failed_at).as_millis());
        desk.begin_asked_for();
    }
    assert_eq!(waits, [0, 100, 200, 400, 800]);
    assert_eq!(desk.record().failures, 5);
    desk.commit_next();
    let count = desk.lives.len();
    desk.lose(1);
    assert_eq!((desk.lives.len(), desk.record().failures), (count + 1, 1));
}

/// Creates a job in safe mode, since it has failed too often.
fn in_safe_mode() -> TestHarness {
    let mut desk = TestHarness::running();
    desk.commit_next();
    desk.commit_next();
    while desk.record().safe_mode.is_none() {
        let count = desk.lives.len();
        desk.lose(1);
        while desk.lives.len() == count {
            desk.wait(millis(50));
        }
        desk.begin_asked_for();
    }
    desk
}

#[test]
fn a_job_that_fails_too_often_goes_to_safe_mode_with_its_sources_paused_and_one_reason() {
    let mut desk = in_safe_mode();
    assert_eq!(
        desk.record().failures,
        desk.config.failed_attempts_tolerated + 1
    );
    let (generation, to, paused) = *desk.lives.last().unwrap();
    assert_eq!((to, paused), (Some(Epoch(2)), true));
    let safe_mode = desk.record().safe_mode.clone().unwrap();
    assert_eq!(
        safe_mode.to_string(),
        "the job has failed 9 times in a row: it has died"
    );
    assert!(
        desk.notes
            .contains(&CoordinatorStatus::SafeMode(safe_mode.clone()))
    );
    desk.words();
    desk.wait(desk.config.interval * 5);
    assert!(
        desk.words()
            .iter()
            .all(|(_, word)| *word == CoordinatorMessage::Committed)
    );
    desk.command(1, CheckpointCommand::Savepoint);
    assert_eq!(
        desk.reply(1),
        Some(&Err(EpochNotDone::SafeMode(safe_mode.clone())))
    );
    // The paused attempt may be lost too. Then no attempt is retried any more.
    let count = desk.lives.len();
    desk.lose(2);
    desk.wait(desk.config.interval * 50);
    assert_eq!(desk.lives.len(), count);
    assert_eq!(desk.record().generation, generation);
    assert!(matches!(
        desk.notes.last(),
        Some(CoordinatorStatus::Down(_))
    ));
    assert_eq!(desk.record().safe_mode, Some(safe_mode));
}

#[test]
fn safe_mode_is_left_by_trying_again_by_going_back_further_and_by_stopping() {
    let mut desk = in_safe_mode();
    desk.command(1, CheckpointCommand::Retry);
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(2)))));
    let (_, to, paused) = *desk.lives.last().unwrap();
    assert_eq!((to, paused), (Some(Epoch(2)), false));
    desk.begin_asked_for();
    desk.commit_next();

    let mut desk = in_safe_mode();
    let unknown = Epoch(9);
    desk.command(1, CheckpointCommand::GoBackTo(Some(unknown)));
    assert_eq!(
        desk.reply(1),
        Some(&Err(EpochNotDone::NoSuchCheckpoint(unknown)))
    );
    desk.command(2, CheckpointCommand::GoBackTo(Some(Epoch(1))));
    assert_eq!(
        desk.lives.last().map(|(_, to, _)| *to),
        Some(Some(Epoch(1)))
    );
    assert_eq!(desk.kept, [Epoch(1)]);
    desk.begin_asked_for();
    assert!(desk.commit_next() > 2);

    let mut desk = in_safe_mode();
    desk.command(1, CheckpointCommand::GoBackTo(None));
    assert_eq!(desk.lives.last().map(|(_, to, _)| *to), Some(None));
    assert!(desk.kept.is_empty());

    let mut desk = in_safe_mode();
    desk.command(1, CheckpointCommand::Stop);
    assert_eq!(desk.over, Some(EpochsOver::Stopped));
    assert_eq!(desk.reply(1), Some(&Ok(Some(Epoch(2)))));
}

#[test]
fn ways_out_of_safe_mode_are_refused_outside_it() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Retry);
    desk.command(2, CheckpointCommand::GoBackTo(None));
    for id in [1, 2] {
        assert_eq!(desk.reply(id), Some(&Err(EpochNotDone::NotInSafeMode)));
    }
}

fn unreadable(guarantee: Guarantee, commits: u32) -> TestHarness {
    let config = CoordinatorConfig {
        guarantee,
        ..CoordinatorConfig::default()
    };
    let mut desk = TestHarness::running_with(config);
    for _ in 0..commits {
        desk.commit_next();
    }
    desk.lose(1);
    let generation = desk.record().generation;
    let reason = "a block is damaged".to_string();
    desk.happens(CoordinatorEvent::Unreadable { generation, reason });
    desk.wait(millis(200));
    desk
}

#[test]
fn a_checkpoint_that_cant_be_read_is_skipped_if_that_repeats_results_only_where_that_was_promised()
{
    let desk = unreadable(Guarantee::AtLeastOnce, 2);
    assert_eq!(
        desk.lives.last().map(|(_, to, _)| *to),
        Some(Some(Epoch(1)))
    );
    assert_eq!(desk.record().committed, Some(Epoch(1)));
    assert_eq!(desk.record().safe_mode, None);

    for (guarantee, commits) in [(Guarantee::AtLeastOnce, 1), (Guarantee::ExactlyOnce, 2)] {
        let mut desk = unreadable(guarantee, commits);
        assert_eq!(desk.lives.len(), 2);
        let safe_mode = desk.record().safe_mode.clone().unwrap();
        assert!(safe_mode.to_string().contains("a block is damaged"));
        // After the repair the job continues normally.
        desk.command(1, CheckpointCommand::Retry);
        desk.begin_asked_for();
        assert_eq!(desk.record().restored_from, Some(Epoch(u64::from(commits))));
        desk.commit_next();
    }
}

fn is_away(desk: &mut TestHarness) {
    let generation = desk.record().generation;
    let reason = "nobody answers".to_string();
    desk.happens(CoordinatorEvent::Away { generation, reason });
}

#[test]
fn who_can_not_read_what_it_goes_back_to_looks_until_it_can_and_has_not_failed() {
    let mut desk = TestHarness::running();
    let committed = desk.commit_next();
    desk.lose(1);
    let mut longest = Duration::ZERO;
    for _ in 0..50 {
        let (count, asked_at) = (desk.lives.len(), desk.now);
        is_away(&mut desk);
        while desk.lives.len() == count {
            desk.wait(millis(50));
        }
        longest = longest.max(desk.now - asked_at);
    }
    assert_eq!(longest, Duration::from_secs(5));
    assert_eq!(
        (desk.record().failures, &desk.record().safe_mode),
        (1, &None)
    );
    assert_eq!(desk.epochs.waiting_reason(), Some("nobody answers"));
    let notes = desk.notes.iter();
    let told = notes.filter(|note| matches!(note, CoordinatorStatus::Waiting(_)));
    assert_eq!(told.count(), 1);
    desk.begin_asked_for();
    assert_eq!(desk.epochs.waiting_reason(), None);
    assert_eq!(desk.record().restored_from, Some(Epoch(committed)));
    desk.commit_next();
}

#[test]
fn who_waits_for_what_it_goes_back_to_may_be_told_to_take_another() {
    let mut desk = TestHarness::running();
    let first = desk.commit_next();
    desk.commit_next();
    desk.lose(1);
    is_away(&mut desk);
    desk.command(1, CheckpointCommand::GoBackTo(Some(Epoch(first))));
    assert!(matches!(desk.reply(1), Some(Ok(_))));
    desk.wait(millis(100));
    desk.begin_asked_for();
    assert_eq!(desk.record().restored_from, Some(Epoch(first)));
    desk.commit_next();
}

#[test]
fn an_attempt_restored_from_another_epoch_is_rejected() {
    let mut desk = TestHarness::running();
    desk.commit_next();
    desk.lose(1);
    let generation = desk.record().generation;
    desk.begin(generation, None);
    desk.wait(millis(200));
    assert_eq!(
        desk.lives.last(),
        Some(&(generation.next(), Some(Epoch(1)), false))
    );
}

#[test]
fn a_loss_after_the_final_epoch_restores_it_until_its_commit_is_confirmed() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Stop);
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.hear(1, epoch);
    desk.lose(2);
    assert_eq!(
        desk.lives.last(),
        Some(&(Generation(2), Some(Epoch(epoch)), true))
    );
    desk.begin_asked_for();
    desk.all_hear(epoch);
    assert_eq!(desk.over, Some(EpochsOver::Stopped));
}

#[test]
fn a_job_that_stops_and_cant_be_begun_to_hear_of_its_last_epoch_can_be_tried_again() {
    let mut desk = TestHarness::running();
    desk.command(1, CheckpointCommand::Stop);
    let epoch = desk.next_epoch();
    desk.all_save(epoch);
    desk.lose(2);
    let generation = desk.record().generation;
    let reason = "a block is damaged".to_string();
    desk.happens(CoordinatorEvent::Unreadable { generation, reason });
    desk.take_over();
    assert!(desk.over.is_none() && desk.record().safe_mode.is_some());
    desk.command(2, CheckpointCommand::Retry);
    assert_eq!(
        desk.lives.last().map(|(_, to, paused)| (*to, *paused)),
        Some((Some(Epoch(epoch)), true))
    );
    desk.begin_asked_for();
    desk.all_hear(epoch);
    assert_eq!(desk.over, Some(EpochsOver::Stopped));
}

#[test]
fn a_loss_reported_during_a_retry_belongs_to_the_previous_attempt() {
    let mut desk = in_safe_mode();
    desk.store = Store::Away;
    desk.command(1, CheckpointCommand::Retry);
    desk.lose(2);
    desk.store = Store::Answers;
    desk.wait(millis(1_200));
    assert_eq!(desk.lives.last().map(|(_, _, paused)| *paused), Some(false));
    desk.begin_asked_for();
    desk.commit_next();
}

fn failed(signature: Option<&str>, is_permanent: bool) -> AttemptFailure {
    AttemptFailure {
        reason: "there is no such topic".into(),
        signature: signature.map(String::from),
        is_permanent,
    }
}

#[test]
fn a_vertex_without_progress_leads_to_safe_mode_though_epochs_are_committed_in_between() {
    let mut desk = TestHarness::running();
    let tolerated = desk.config.failed_attempts_tolerated;
    for _ in 0..tolerated {
        desk.commit_next();
        desk.fail(1, failed(Some("kafka ARD-301"), false));
        assert_eq!(desk.record().safe_mode, None);
        desk.next_life();
    }
    desk.commit_next();
    desk.fail(1, failed(Some("kafka ARD-301"), false));
    let safe_mode = desk.record().safe_mode.clone();
    assert!(
        matches!(safe_mode, Some(SafeMode::KeepsFailing { times, .. }) if times == tolerated + 1),
        "{safe_mode:?}"
    );
}

#[test]
fn failures_after_progress_do_not_add_up_over_commits() {
    let mut desk = TestHarness::running();
    for _ in 0..=desk.config.failed_attempts_tolerated {
        desk.commit_next();
        desk.fail(1, failed(None, false));
        desk.next_life();
    }
    assert_eq!(desk.record().safe_mode, None);
    assert_eq!(desk.record().failures, 1);
}

#[test]
fn a_permanent_failure_leads_to_safe_mode_at_once_and_retry_leads_out_of_it() {
    let mut desk = TestHarness::running();
    let committed = desk.commit_next();
    desk.fail(2, failed(None, true));
    let why = "there is no such topic".to_string();
    assert_eq!(desk.record().safe_mode, Some(SafeMode::Permanent { why }));
    assert_eq!(desk.lives.len(), 1);
    desk.command(7, CheckpointCommand::Retry);
    desk.wait(millis(50));
    assert_eq!(desk.record().safe_mode, None);
    let last = *desk.lives.last().unwrap();
    assert_eq!(last, (Generation(3), Some(Epoch(committed)), false));
}
