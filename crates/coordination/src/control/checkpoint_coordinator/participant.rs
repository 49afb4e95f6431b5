//! The participant's side of checkpoints, robust against late, duplicated and lost messages.

use ardea_core::Epoch;

use super::message::{
    CoordinatorMessage, EpochKind, FromParticipant, Generation, ParticipantId, ParticipantReport,
    SnapshotAck, ToParticipant,
};
use crate::control::MasterEpoch;

/// An event for a participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParticipantEvent {
    /// A message of the coordinator.
    From(ToParticipant),
    /// The snapshot of this epoch is durable.
    Saved(Epoch, SnapshotAck),
    /// The snapshot of this epoch cannot be saved, for this reason.
    CannotSave(Epoch, String),
    /// The participant has completed, and its final snapshot is durable.
    Ended {
        /// The last epoch for which the participant took a regular snapshot in this attempt,
        /// durable or not.
        after: Option<Epoch>,
        /// The acknowledgement of the final snapshot.
        receipt: SnapshotAck,
    },
    /// The output of all epochs up to this one is visible, as [`ParticipantAction::Commit`] has
    /// requested.
    Visible(Epoch),
}

/// An action requested by a participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParticipantAction {
    /// End this epoch at the sources. After an epoch that [holds
    /// sources](EpochKind::holds_sources), the sources read nothing until the next action.
    End(Epoch, EpochKind),
    /// Make the output of all epochs up to this one visible, then report
    /// [`ParticipantEvent::Visible`]. The output may be visible already, from this attempt or an
    /// earlier one.
    Commit(Epoch),
    /// This epoch is aborted: sources that the epoch has paused continue to read.
    Abort(Epoch),
    /// Send this message to the coordinator; it may be lost.
    Send(FromParticipant),
}

/// A participant in the checkpoints of one execution attempt, which was restored from a checkpoint
/// or started without state.
///
/// A participant has no clock: the coordinator repeats messages that were not confirmed.
///
/// ```
/// use ardea_coordination::control::*;
/// use ardea_core::Epoch;
///
/// let mut agent = CheckpointParticipant::new(ParticipantId(3), Generation(2), Some(Epoch(7)));
/// let (master, generation) = (MasterEpoch(1), Generation(2));
/// let word = CoordinatorMessage::End(Epoch(9), EpochKind::Usual);
/// let end = ToParticipant { master, generation, committed: Some(Epoch(8)), word };
/// let actions = agent.on(ParticipantEvent::From(end));
/// assert_eq!(actions, [
///     ParticipantAction::Commit(Epoch(8)),
///     ParticipantAction::End(Epoch(9), EpochKind::Usual),
/// ]);
/// // The snapshot of epoch 9 contains the changes since epoch 8.
/// assert_eq!(agent.since(), Some(Epoch(8)));
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointParticipant {
    id: ParticipantId,
    generation: Generation,
    /// The newest leader that has sent a message.
    master: MasterEpoch,
    /// The newest epoch that is known to be committed.
    since: Option<Epoch>,
    /// The newest epoch whose commit was requested in this attempt.
    commit_requested: Option<Epoch>,
    visible: Option<Epoch>,
    ending: Option<Epoch>,
    aborted: Option<Epoch>,
    /// The epoch of the newest settled snapshot, and its outcome.
    newest: Option<(Epoch, ParticipantReport)>,
    ended: Option<(Option<Epoch>, SnapshotAck)>,
}

impl CheckpointParticipant {
    /// Creates a participant of the attempt `generation`, restored from the checkpoint of the epoch
    /// `restored_from`, if any.
    pub fn new(id: ParticipantId, generation: Generation, restored_from: Option<Epoch>) -> Self {
        CheckpointParticipant {
            id,
            generation,
            master: MasterEpoch::default(),
            since: restored_from,
            commit_requested: None,
            visible: None,
            ending: None,
            aborted: None,
            newest: None,
            ended: None,
        }
    }

    /// Returns the attempt of the participant.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the base epoch of increments: the newest epoch known to be committed, not only
    /// saved. Changes before it need not be tracked any more.
    pub fn since(&self) -> Option<Epoch> {
        self.since
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, event: ParticipantEvent) -> Vec<ParticipantAction> {
        let mut actions = Vec::new();
        match event {
            ParticipantEvent::From(message) if message.generation == self.generation => {
                self.heard(message, &mut actions);
            }
            ParticipantEvent::From(_) => {}
            ParticipantEvent::Saved(epoch, receipt) => {
                self.settled(
                    epoch,
                    ParticipantReport::Saved(epoch, receipt),
                    &mut actions,
                );
            }
            ParticipantEvent::CannotSave(epoch, why) => {
                self.settled(
                    epoch,
                    ParticipantReport::CannotSave(epoch, why),
                    &mut actions,
                );
            }
            ParticipantEvent::Ended { after, receipt } => {
                self.ended = Some((after, receipt.clone()));
                actions.push(self.tell(ParticipantReport::Ended { after, receipt }));
            }
            ParticipantEvent::Visible(epoch) => {
                self.visible = self.visible.max(Some(epoch));
                actions.push(self.tell(ParticipantReport::CommitDone(epoch)));
            }
        }
        actions
    }

    /// Records that the snapshot of `epoch` is saved, or cannot be saved. Only one epoch is
    /// pending, so outcomes of earlier epochs are not needed.
    fn settled(
        &mut self,
        epoch: Epoch,
        report: ParticipantReport,
        actions: &mut Vec<ParticipantAction>,
    ) {
        if self
            .newest
            .as_ref()
            .is_none_or(|(newest, _)| *newest <= epoch)
        {
            self.newest = Some((epoch, report.clone()));
            actions.push(self.tell(report));
        }
    }

    fn heard(&mut self, message: ToParticipant, actions: &mut Vec<ParticipantAction>) {
        let committed = message.committed;
        self.since = self.since.max(committed);
        if let Some(epoch) = committed.filter(|epoch| self.commit_requested < Some(*epoch)) {
            self.commit_requested = committed;
            actions.push(ParticipantAction::Commit(epoch));
        }
        let is_outrun = message.master < self.master;
        self.master = self.master.max(message.master);
        match message.word {
            // The commit is confirmed only if the newest requested one is carried out.
            CoordinatorMessage::Committed => {
                let visible = self
                    .visible
                    .filter(|_| self.visible == self.commit_requested);
                actions
                    .extend(visible.map(|epoch| self.tell(ParticipantReport::CommitDone(epoch))));
            }
            CoordinatorMessage::End(..) if is_outrun => {}
            CoordinatorMessage::End(epoch, kind) => self.end(epoch, kind, actions),
            // If a later epoch has been triggered, the abort is already known.
            CoordinatorMessage::Aborted(epoch) => {
                let is_news = self.aborted < Some(epoch) && self.ending <= Some(epoch);
                if is_news && self.since < Some(epoch) {
                    self.aborted = Some(epoch);
                    actions.push(ParticipantAction::Abort(epoch));
                }
            }
        }
    }

    fn end(&mut self, epoch: Epoch, kind: EpochKind, actions: &mut Vec<ParticipantAction>) {
        let is_over = self.since.max(self.aborted) >= Some(epoch);
        if self.ending < Some(epoch) && !is_over {
            self.ending = Some(epoch);
            actions.push(ParticipantAction::End(epoch, kind));
        }
        if let Some((newest, report)) = &self.newest
            && *newest == epoch
        {
            actions.push(self.tell(report.clone()));
        } else if let Some((after, receipt)) = self.ended.clone()
            && after < Some(epoch)
        {
            actions.push(self.tell(ParticipantReport::Ended { after, receipt }));
        }
    }

    fn tell(&self, report: ParticipantReport) -> ParticipantAction {
        ParticipantAction::Send(FromParticipant {
            participant: self.id,
            generation: self.generation,
            report,
        })
    }
}
