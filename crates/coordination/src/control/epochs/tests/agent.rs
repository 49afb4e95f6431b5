//! A participant that hears words late, twice and not at all.

use super::*;

const ME: ParticipantId = ParticipantId(3);
const LIFE: Generation = Generation(2);

fn agent() -> EpochsAgent {
    EpochsAgent::new(ME, LIFE, Some(Epoch(5)))
}

fn hear(agent: &mut EpochsAgent, committed: u64, word: EpochWord) -> Vec<EpochsAgentAction> {
    hear_from(agent, 1, committed, word)
}

fn hear_from(
    agent: &mut EpochsAgent,
    master: u64,
    committed: u64,
    word: EpochWord,
) -> Vec<EpochsAgentAction> {
    agent.on(EpochsAgentEvent::From(ToParticipant {
        master: MasterEpoch(master),
        generation: LIFE,
        committed: Some(Epoch(committed)),
        word,
    }))
}

fn told(report: Report) -> EpochsAgentAction {
    EpochsAgentAction::Tell(FromParticipant {
        participant: ME,
        generation: LIFE,
        report,
    })
}

/// One that has made visible what it was restored with.
fn settled() -> EpochsAgent {
    let mut agent = agent();
    let commit = EpochsAgentAction::Commit(Epoch(5));
    assert_eq!(hear(&mut agent, 5, EpochWord::Committed), [commit]);
    let heard = told(Report::Heard(Epoch(5)));
    assert_eq!(agent.on(EpochsAgentEvent::Visible(Epoch(5))), [heard]);
    agent
}

#[test]
fn what_it_was_restored_from_is_made_visible_again() {
    settled();
}

#[test]
fn an_epoch_ends_once_and_what_came_of_its_cut_is_said_as_often_as_asked_for() {
    let mut agent = settled();
    let end = EpochsAgentAction::End(Epoch(7), EpochKind::Usual);
    assert_eq!(hear(&mut agent, 5, end_of(7)), [end]);
    assert_eq!(hear(&mut agent, 5, end_of(7)), []);
    let saved = Report::Saved(Epoch(7), receipt(agent.since()));
    let event = EpochsAgentEvent::Saved(Epoch(7), receipt(agent.since()));
    assert_eq!(agent.on(event), [told(saved.clone())]);
    assert_eq!(hear(&mut agent, 5, end_of(7)), [told(saved)]);
    // One that has been overtaken, or is over, ends no more.
    assert_eq!(hear(&mut agent, 5, end_of(6)), []);
}

#[test]
fn a_commit_is_made_visible_once_and_confirmed_as_often_as_it_is_told() {
    let mut agent = settled();
    let commit = EpochsAgentAction::Commit(Epoch(7));
    assert_eq!(hear(&mut agent, 7, EpochWord::Committed), [commit]);
    assert_eq!(hear(&mut agent, 7, EpochWord::Committed), []);
    let heard = [told(Report::Heard(Epoch(7)))];
    assert_eq!(agent.on(EpochsAgentEvent::Visible(Epoch(7))), heard);
    assert_eq!(hear(&mut agent, 7, EpochWord::Committed), heard);
}

#[test]
fn increments_are_since_what_is_known_to_be_committed_and_never_since_what_was_only_saved() {
    let mut agent = settled();
    hear(&mut agent, 5, end_of(6));
    agent.on(EpochsAgentEvent::Saved(Epoch(6), receipt(Some(Epoch(5)))));
    assert_eq!(agent.since(), Some(Epoch(5)));
    let given_up = EpochsAgentAction::GivenUp(Epoch(6));
    assert_eq!(
        hear(&mut agent, 5, EpochWord::GivenUp(Epoch(6))),
        [given_up]
    );
    assert_eq!(hear(&mut agent, 5, EpochWord::GivenUp(Epoch(6))), []);
    assert_eq!(agent.since(), Some(Epoch(5)));
    // It learns of a commit from whatever word comes first.
    hear(&mut agent, 7, end_of(8));
    assert_eq!(agent.since(), Some(Epoch(7)));
    hear(&mut agent, 5, EpochWord::Committed);
    assert_eq!(agent.since(), Some(Epoch(7)));
}

#[test]
fn that_an_epoch_is_given_up_which_another_has_followed_says_nothing_of_that_one() {
    let mut agent = settled();
    hear(&mut agent, 5, EpochWord::End(Epoch(6), EpochKind::Usual));
    hear(&mut agent, 5, EpochWord::End(Epoch(7), EpochKind::Last));
    assert_eq!(hear(&mut agent, 5, EpochWord::GivenUp(Epoch(6))), []);
    let given_up = EpochsAgentAction::GivenUp(Epoch(7));
    assert_eq!(
        hear(&mut agent, 5, EpochWord::GivenUp(Epoch(7))),
        [given_up]
    );
    assert_eq!(
        hear(&mut agent, 5, EpochWord::End(Epoch(7), EpochKind::Last)),
        []
    );
}

#[test]
fn its_end_is_said_for_epochs_behind_its_last_cut_and_that_cut_for_its_own() {
    let mut agent = settled();
    hear(&mut agent, 5, end_of(6));
    let last = receipt(None);
    let (after, receipt) = (Some(Epoch(6)), last.clone());
    agent.on(EpochsAgentEvent::Ended { after, receipt });
    // Its cut is not saved yet.
    assert_eq!(hear(&mut agent, 5, end_of(6)), []);
    agent.on(EpochsAgentEvent::CannotSave(Epoch(6), "disk full".into()));
    let cannot = told(Report::CannotSave(Epoch(6), "disk full".into()));
    assert_eq!(hear(&mut agent, 5, end_of(6)), [cannot]);
    let end = EpochsAgentAction::End(Epoch(9), EpochKind::Usual);
    let receipt = last;
    let ended = told(Report::Ended { after, receipt });
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
    assert_eq!(agent.on(EpochsAgentEvent::From(other)), []);
    assert_eq!(
        hear_from(&mut agent, 3, 5, EpochWord::Committed),
        [told(Report::Heard(Epoch(5)))]
    );
    assert_eq!(hear_from(&mut agent, 2, 5, end_of(8)), []);
    // What it says of commits is true all the same.
    let commit = EpochsAgentAction::Commit(Epoch(7));
    assert_eq!(hear_from(&mut agent, 2, 7, EpochWord::Committed), [commit]);
}
