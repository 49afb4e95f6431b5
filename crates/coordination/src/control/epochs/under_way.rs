//! The epoch that is under way: who has saved its cut.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_core::Epoch;

use super::attendance::Attendance;
use super::message::{EpochKind, Generation, ParticipantId, Receipt};
use super::record::{RecordedCut, RecordedSnapshot};
use crate::control::CommandId;

/// The epoch that is under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) epoch: Epoch,
    pub(super) kind: EpochKind,
    pub(super) begun_at: Duration,
    /// When those who have not reported are asked again.
    pub(super) repeat_at: Duration,
    pub(super) saved: BTreeMap<ParticipantId, Receipt>,
    /// Who has not saved its cut, and had not ended before.
    pub(super) missing: BTreeSet<ParticipantId>,
    /// Whether people were told that it is slow.
    pub(super) slow_told: bool,
    /// Who wants to know what comes of it.
    pub(super) asked_by: Vec<CommandId>,
}

impl UnderWay {
    /// A participant has saved its cut; of two receipts the first counts.
    pub(super) fn has_saved(&mut self, from: ParticipantId, receipt: Receipt) {
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

    /// The snapshot, of what has been saved and the last states of those who have ended.
    pub(super) fn snapshot(
        &self,
        generation: Generation,
        over: Option<Epoch>,
        members: &Attendance,
    ) -> RecordedSnapshot {
        let cuts = members.iter().filter_map(|(id, member)| {
            // Its own cut comes first: it is the earlier state.
            let own = self.saved.get(&id).map(|receipt| (receipt, false));
            let last = member.last_state(self.epoch).map(|receipt| (receipt, true));
            let (receipt, has_ended) = own.or(last)?;
            let receipt = receipt.clone();
            Some((id, RecordedCut { receipt, has_ended }))
        });
        RecordedSnapshot {
            epoch: self.epoch,
            generation,
            over,
            // What a stopped job may be started from again is nobody's to collect either.
            is_savepoint: self.kind.is_kept(),
            cuts: cuts.collect(),
        }
    }
}
