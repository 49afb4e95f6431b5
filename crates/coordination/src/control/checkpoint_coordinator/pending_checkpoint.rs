//! The pending checkpoint: the snapshots saved so far.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_core::Epoch;

use super::message::{EpochKind, Generation, ParticipantId, SnapshotAck};
use super::participants::Participants;
use super::record::{RecordedCheckpoint, RecordedSnapshot};
use crate::control::CommandId;

#[derive(Debug)]
pub(super) struct PendingCheckpoint {
    pub(super) epoch: Epoch,
    pub(super) kind: EpochKind,
    pub(super) begun_at: Duration,
    /// The time at which the request to end the epoch is repeated to participants in `missing`.
    pub(super) repeat_at: Duration,
    pub(super) saved: BTreeMap<ParticipantId, SnapshotAck>,
    /// Participants that have neither saved their snapshot nor completed before.
    pub(super) missing: BTreeSet<ParticipantId>,
    /// True if the slowness of the checkpoint has been reported.
    pub(super) slow_reported: bool,
    /// The commands that wait for the outcome of the checkpoint.
    pub(super) requested_by: Vec<CommandId>,
}

impl PendingCheckpoint {
    /// Records the snapshot of a participant; the first of two acknowledgements counts.
    pub(super) fn has_saved(&mut self, from: ParticipantId, receipt: SnapshotAck) {
        if self.missing.remove(&from) {
            self.saved.insert(from, receipt);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    pub(super) fn waiting_for(&self) -> Vec<ParticipantId> {
        self.missing.iter().copied().collect()
    }

    /// Creates the checkpoint from the saved snapshots and the final snapshots of completed
    /// participants. `over` is the checkpoint that increments are based on.
    pub(super) fn checkpoint(
        &self,
        generation: Generation,
        over: Option<Epoch>,
        members: &Participants,
    ) -> RecordedCheckpoint {
        let snapshots = members.iter().filter_map(|(id, member)| {
            // A regular snapshot takes precedence over the final one, since it has the earlier
            // state.
            let own = self.saved.get(&id).map(|receipt| (receipt, false));
            let last = member.last_state(self.epoch).map(|receipt| (receipt, true));
            let (receipt, has_ended) = own.or(last)?;
            let receipt = receipt.clone();
            Some((id, RecordedSnapshot { receipt, has_ended }))
        });
        RecordedCheckpoint {
            epoch: self.epoch,
            generation,
            over,
            // A final checkpoint is retained too, since the stopped job may be restarted from it.
            is_savepoint: self.kind.is_kept(),
            snapshots: snapshots.collect(),
        }
    }
}
