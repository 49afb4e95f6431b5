//! A participant's side of the epochs: what it makes of words that come late, twice or not at all.

use ardea_core::Epoch;

use super::message::{
    EpochKind, EpochWord, FromParticipant, Generation, ParticipantId, Receipt, Report,
    ToParticipant,
};
use crate::control::MasterEpoch;

/// What happens to a participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EpochsAgentEvent {
    /// A word from whoever is master.
    From(ToParticipant),
    /// The cut at this epoch's end is durable.
    Saved(Epoch, Receipt),
    /// The cut at this epoch's end can't be saved, for this reason.
    CannotSave(Epoch, String),
    /// It has come to its end for good, and its last state is durable.
    Ended {
        /// The last epoch that it has taken a cut of, in this life; whether that is saved yet doesn't matter.
        after: Option<Epoch>,
        /// Its last state.
        receipt: Receipt,
    },
    /// What [`EpochsAgentAction::Commit`] asked for is done.
    Visible(Epoch),
}

/// What a participant wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EpochsAgentAction {
    /// Sources end this epoch; behind one that [holds them](EpochKind::holds_sources) they read nothing until another word comes.
    End(Epoch, EpochKind),
    /// Make what belongs to epochs up to this one visible, then say [`EpochsAgentEvent::Visible`]. It may have been done before, in this life or an
    /// earlier one.
    Commit(Epoch),
    /// This epoch is given up: sources that it has paused go on.
    GivenUp(Epoch),
    /// Say this to whoever is master; it may be lost.
    Tell(FromParticipant),
}

/// A participant of one life of a job, restored from a snapshot or begun with nothing.
///
/// It has no clock: whoever conducts asks again for what it has not heard.
///
/// ```
/// use ardea_coordination::control::*;
/// use ardea_core::Epoch;
///
/// let mut agent = EpochsAgent::new(ParticipantId(3), Generation(2), Some(Epoch(7)));
/// let (master, generation) = (MasterEpoch(1), Generation(2));
/// let word = EpochWord::End(Epoch(9), EpochKind::Usual);
/// let end = ToParticipant { master, generation, committed: Some(Epoch(8)), word };
/// let actions = agent.on(EpochsAgentEvent::From(end));
/// assert_eq!(actions, [
///     EpochsAgentAction::Commit(Epoch(8)),
///     EpochsAgentAction::End(Epoch(9), EpochKind::Usual),
/// ]);
/// // What it saves at the end of epoch 9 is what has changed since then.
/// assert_eq!(agent.since(), Some(Epoch(8)));
/// ```
#[derive(Clone, Debug)]
pub struct EpochsAgent {
    id: ParticipantId,
    generation: Generation,
    /// The newest master that it has heard of.
    master: MasterEpoch,
    /// The newest epoch that it knows to be committed.
    since: Option<Epoch>,
    /// The newest epoch that it was told to make visible, in this life.
    told: Option<Epoch>,
    visible: Option<Epoch>,
    ending: Option<Epoch>,
    given_up: Option<Epoch>,
    /// What came of the newest cut.
    newest: Option<(Epoch, Report)>,
    ended: Option<(Option<Epoch>, Receipt)>,
}

impl EpochsAgent {
    /// A participant of that life, restored from that epoch's snapshot.
    pub fn new(id: ParticipantId, generation: Generation, restored_from: Option<Epoch>) -> Self {
        EpochsAgent {
            id,
            generation,
            master: MasterEpoch::default(),
            since: restored_from,
            told: None,
            visible: None,
            ending: None,
            given_up: None,
            newest: None,
            ended: None,
        }
    }

    /// Which life of the job it belongs to.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The epoch since whose end an increment has to hold what has changed: the newest one that is known to be committed, and never one that
    /// was only saved. What changed before it may be forgotten.
    pub fn since(&self) -> Option<Epoch> {
        self.since
    }

    /// Deals with an event.
    pub fn on(&mut self, event: EpochsAgentEvent) -> Vec<EpochsAgentAction> {
        let mut actions = Vec::new();
        match event {
            EpochsAgentEvent::From(message) if message.generation == self.generation => {
                self.heard(message, &mut actions);
            }
            EpochsAgentEvent::From(_) => {}
            EpochsAgentEvent::Saved(epoch, receipt) => {
                self.settled(epoch, Report::Saved(epoch, receipt), &mut actions);
            }
            EpochsAgentEvent::CannotSave(epoch, why) => {
                self.settled(epoch, Report::CannotSave(epoch, why), &mut actions);
            }
            EpochsAgentEvent::Ended { after, receipt } => {
                self.ended = Some((after, receipt.clone()));
                actions.push(self.tell(Report::Ended { after, receipt }));
            }
            EpochsAgentEvent::Visible(epoch) => {
                self.visible = self.visible.max(Some(epoch));
                actions.push(self.tell(Report::Heard(epoch)));
            }
        }
        actions
    }

    /// A cut is saved, or can't be. Only one epoch is under way, so what came of earlier ones is asked for by nobody.
    fn settled(&mut self, epoch: Epoch, report: Report, actions: &mut Vec<EpochsAgentAction>) {
        if self
            .newest
            .as_ref()
            .is_none_or(|(newest, _)| *newest <= epoch)
        {
            self.newest = Some((epoch, report.clone()));
            actions.push(self.tell(report));
        }
    }

    fn heard(&mut self, message: ToParticipant, actions: &mut Vec<EpochsAgentAction>) {
        let committed = message.committed;
        self.since = self.since.max(committed);
        if let Some(epoch) = committed.filter(|epoch| self.told < Some(*epoch)) {
            self.told = committed;
            actions.push(EpochsAgentAction::Commit(epoch));
        }
        let is_outrun = message.master < self.master;
        self.master = self.master.max(message.master);
        match message.word {
            // Whether that is done is known if it is the newest that was told.
            EpochWord::Committed => {
                let visible = self.visible.filter(|_| self.visible == self.told);
                actions.extend(visible.map(|epoch| self.tell(Report::Heard(epoch))));
            }
            EpochWord::End(..) if is_outrun => {}
            EpochWord::End(epoch, kind) => self.end(epoch, kind, actions),
            // Of an epoch that another one has followed by now it was known before.
            EpochWord::GivenUp(epoch) => {
                let is_news = self.given_up < Some(epoch) && self.ending <= Some(epoch);
                if is_news && self.since < Some(epoch) {
                    self.given_up = Some(epoch);
                    actions.push(EpochsAgentAction::GivenUp(epoch));
                }
            }
        }
    }

    fn end(&mut self, epoch: Epoch, kind: EpochKind, actions: &mut Vec<EpochsAgentAction>) {
        let is_over = self.since.max(self.given_up) >= Some(epoch);
        if self.ending < Some(epoch) && !is_over {
            self.ending = Some(epoch);
            actions.push(EpochsAgentAction::End(epoch, kind));
        }
        if let Some((newest, report)) = &self.newest
            && *newest == epoch
        {
            actions.push(self.tell(report.clone()));
        } else if let Some((after, receipt)) = self.ended.clone()
            && after < Some(epoch)
        {
            actions.push(self.tell(Report::Ended { after, receipt }));
        }
    }

    fn tell(&self, report: Report) -> EpochsAgentAction {
        EpochsAgentAction::Tell(FromParticipant {
            participant: self.id,
            generation: self.generation,
            report,
        })
    }
}
