//! Tests of a participant with late, duplicated and lost messages.

use super::*;

const ME: ParticipantId = ParticipantId(3);
const LIFE: Generation = Generation(2);

fn agent() -> CheckpointParticipant {
    CheckpointParticipant::new(ME, LIFE, Some(Epoch(5)))
}

fn hear(
    agent: &mut CheckpointParticipant,
    committed: u64,
    word: CoordinatorMessage,
) -> Vec<ParticipantAction> {
    hear_from(agent, 1, committed, word)
}

fn hear_from(
    agent: &mut CheckpointParticipant,
    master: u64,
    committed: u64,
    word: CoordinatorMessage,
) -> Vec<ParticipantAction> {
    agent.on(ParticipantEvent::From(ToParticipant {
        master: MasterEpoch(master),
        generation: LIFE,
        committed: Some(Epoch(committed)),
        word,
    }))
}

fn told(report: ParticipantReport) -> ParticipantAction {
    ParticipantAction::Send(FromParticipant {
        participant: ME,
        generation: LIFE,
        report,
    })
}

/// Creates a participant that has published the output of the checkpoint that it was restored from.
fn settled() -> CheckpointParticipant {
    let mut agent = agent();
    let commit = ParticipantAction::Commit(Epoch(5));
    assert_eq!(hear(&mut agent, 5, CoordinatorMessage::Committed), [commit]);
    let heard = told(ParticipantReport::CommitDone(Epoch(5)));
    assert_eq!(agent.on(ParticipantEvent::Visible(Epoch(5))), [heard]);
    agent
}

#[test]
fn what_it_was_restored_from_is_made_visible_again() {
    settled();
}

#[test]
fn an_epoch_ends_once_and_what_came_of_its_snapshot_is_said_as_often_as_asked_for() {
    let mut agent = settled();
    let end = ParticipantAction::End(Epoch(7), EpochKind::Usual);
    assert_eq!(hear(&mut agent, 5, end_of(7)), [end]);
    assert_eq!(hear(&mut agent, 5, end_of(7)), []);
    let saved = ParticipantReport::Saved(Epoch(7), receipt(agent.since()));
    let event = ParticipantEvent::Saved(Epoch(7), receipt(agent.since()));
    assert_eq!(agent.on(event), [told(saved.clone())]);
    assert_eq!(hear(&mut agent, 5, end_of(7)), [told(saved)]);
    // An epoch that was overtaken or is over does not end again.
    assert_eq!(hear(&mut agent, 5, end_of(6)), []);
}

#[test]
fn a_commit_is_made_visible_once_and_confirmed_as_often_as_it_is_told() {
    let mut agent = settled();
    let commit = ParticipantAction::Commit(Epoch(7));
    assert_eq!(hear(&mut agent, 7, CoordinatorMessage::Committed), [commit]);
    assert_eq!(hear(&mut agent, 7, CoordinatorMessage::Committed), []);
    let heard = [told(ParticipantReport::CommitDone(Epoch(7)))];
    assert_eq!(agent.on(ParticipantEvent::Visible(Epoch(7))), heard);
    assert_eq!(hear(&mut agent, 7, CoordinatorMessage::Committed), heard);
}

#[test]
fn increments_are_since_what_is_known_to_be_committed_and_never_since_what_was_only_saved() {
    let mut agent = settled();
    hear(&mut agent, 5, end_of(6));
    agent.on(ParticipantEvent::Saved(Epoch(6), receipt(Some(Epoch(5)))));
    assert_eq!(agent.since(), Some(Epoch(5)));
    let aborted = ParticipantAction::Abort(Epoch(6));
    assert_eq!(
        hear(&mut agent, 5, CoordinatorMessage::Aborted(Epoch(6))),
        [aborted]
    );
    assert_eq!(
        hear(&mut agent, 5, CoordinatorMessage::Aborted(Epoch(6))),
        []
    );
    assert_eq!(agent.since(), Some(Epoch(5)));
    // Any message informs the participant of a commit.
    hear(&mut agent, 7, end_of(8));
    assert_eq!(agent.since(), Some(Epoch(7)));
    hear(&mut agent, 5, CoordinatorMessage::Committed);
    assert_eq!(agent.since(), Some(Epoch(7)));
}

#[test]
fn a_late_abort_does_not_affect_the_next_epoch() {
    let mut agent = settled();
    hear(
        &mut agent,
        5,
        CoordinatorMessage::End(Epoch(6), EpochKind::Usual),
    );
    hear(
        &mut agent,
        5,
        CoordinatorMessage::End(Epoch(7), EpochKind::Last),
    );
    assert_eq!(
        hear(&mut agent, 5, CoordinatorMessage::Aborted(Epoch(6))),
        []
    );
    let aborted = ParticipantAction::Abort(Epoch(7));
    assert_eq!(
        hear(&mut agent, 5, CoordinatorMessage::Aborted(Epoch(7))),
        [aborted]
    );
    assert_eq!(
        hear(
            &mut agent,
            5,
            CoordinatorMessage::End(Epoch(7), EpochKind::Last)
        ),
        []
    );
}

#[test]
fn its_end_is_said_for_epochs_behind_its_last_snapshot_and_that_snapshot_for_its_own() {
    let mut agent = settled();
    hear(&mut agent, 5, end_of(6));
    let last = receipt(None);
    let (after, receipt) = (Some(Epoch(6)), last.clone());
    agent.on(ParticipantEvent::Ended { after, receipt });
    // The snapshot of the epoch is not saved yet.
    assert_eq!(hear(&mut agent, 5, end_of(6)), []);
    agent.on(ParticipantEvent::CannotSave(Epoch(6), "disk full".into()));
    let cannot = told(ParticipantReport::CannotSave(Epoch(6), "disk full".into()));
    assert_eq!(hear(&mut agent, 5, end_of(6)), [cannot]);
    let end = ParticipantAction::End(Epoch(9), EpochKind::Usual);
    let receipt = last;
    let ended = told(ParticipantReport::Ended { after, receipt });
    assert_eq!(hear(&mut agent, 5, end_of(9)), [end, ended]);
}

#[test]
fn words_of_other_lives_and_of_masters_that_were_outrun_end_nothing() {
    let mut agent = settled();
    let other = ToParticipant {
        master: MasterEpoch(9),
        generation: Generation(1),
        committed: Some(Epoch(99)),
        word: end_of(100),
    };
    assert_eq!(agent.on(ParticipantEvent::From(other)), []);
    assert_eq!(
        hear_from(&mut agent, 3, 5, CoordinatorMessage::Committed),
        [told(ParticipantReport::CommitDone(Epoch(5)))]
    );
    assert_eq!(hear_from(&mut agent, 2, 5, end_of(8)), []);
    // The committed epoch in a message of an outdated leader is valid.
    let commit = ParticipantAction::Commit(Epoch(7));
    assert_eq!(
        hear_from(&mut agent, 2, 7, CoordinatorMessage::Committed),
        [commit]
    );
}
