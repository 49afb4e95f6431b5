//! The handoff of a stage's in-memory state to its successor in the next attempt.

use std::thread;

use ardea_core::{Epoch, Inbox, OutboxRuntime, Watermark};

use super::{Code, Kind, Phase, ProcessorStage};
use crate::StateHandoff;
use crate::panics::quietly;
use crate::snapshotting::HandedOffState;

impl ProcessorStage {
    /// Marks the stage as resumed at the end of `epoch` from the in-memory state of its
    /// predecessor; `told` is the predecessor's watermark.
    pub(crate) fn resumed_at(mut self, epoch: Epoch, told: Option<Watermark>) -> Self {
        if let Some(desk) = &mut self.snapshots {
            desk.committed = Some(epoch);
        }
        // Replaces the wake-up that the predecessor had requested.
        self.owes_wake = true;
        self.repeat_watermark(told);
        self
    }

    /// Returns the epoch whose end state equals the current state of the processor, if the stage
    /// may be stopped there and its state handed over.
    fn handoff_epoch(&self) -> Option<Epoch> {
        let is_between = self.kind == Kind::Step && self.phase == Phase::Reading;
        let has_nothing = self.inboxes.iter().all(Inbox::is_empty) && self.outbox.is_empty();
        let desk = self.snapshots.as_ref()?;
        let has_all = self.lazy_restore.is_none();
        let stands = is_between && has_all && has_nothing && self.is_at_snapshot && !self.has_ended;
        desk.resumable_epoch().filter(|_| stands)
    }

    /// Drops the processor, the inboxes and the outbox.
    pub(crate) fn dismantle(self) {
        self.take_apart(drop);
    }

    /// Drops the stage like [`dismantle`](ProcessorStage::dismantle), but the state of its
    /// processor on a separate thread. Dropping large state takes long and would delay the next
    /// attempt.
    fn dismantle_aside(self) {
        self.take_apart(|code| {
            if let Code::Processor(processor) = code
                && let Some(memory) = processor.hand_over_state()
            {
                let aside = thread::Builder::new().name("ardea-left".into());
                // Without a thread it is dropped here.
                let _ = aside.spawn(move || quietly(|| drop(memory)));
            }
        });
    }

    /// Drops the closed stage like [`dismantle`](ProcessorStage::dismantle), but hands its state
    /// over if it equals a snapshot.
    pub(crate) fn hand_off(mut self, keepsakes: &StateHandoff) {
        let (Some(epoch), Some(desk)) = (self.handoff_epoch(), self.snapshots.take()) else {
            return self.dismantle_aside();
        };
        let told = Some(self.watermark);
        let told = told.filter(|told| *told > Watermark::NONE && *told != Watermark::END);
        self.take_apart(|code| {
            if let Code::Processor(processor) = code
                && let Some(memory) = processor.hand_over_state()
            {
                let keepsake = HandedOffState {
                    epoch,
                    watermark: told,
                    memory,
                };
                keepsakes.put(desk.name.clone(), keepsake);
            }
        });
    }

    /// Passes the processor to `end`, and drops inboxes and outbox. A panic does not prevent the
    /// other drops.
    fn take_apart(self, end: impl FnOnce(Code)) {
        let ProcessorStage {
            code,
            inboxes,
            outbox,
            context,
            ..
        } = self;
        quietly(|| end(code));
        for inbox in inboxes {
            quietly(|| drop(inbox));
        }
        quietly(|| drop(outbox));
        quietly(|| drop(context));
    }
}
