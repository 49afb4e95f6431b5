//! A stage whose processor goes on from the memory of another one, and one that leaves it that memory.

use ardea_core::{Epoch, Inbox, Watermark};

use super::{Kind, Phase, Stage};
use crate::Keepsakes;
use crate::keepsakes::Keepsake;
use crate::panics::quietly;

impl Stage {
    /// Its processor has taken over what another one remembered at the end of `epoch`, which had been told so much of time.
    pub(crate) fn going_on(mut self, epoch: Epoch, told: Option<Watermark>) -> Self {
        if let Some(desk) = &mut self.cuts {
            desk.committed = Some(epoch);
        }
        // What it had asked to be woken for it asks for again.
        self.owes_wake = true;
        self.resume_time(told);
        self
    }

    /// The epoch at whose end its processor remembered exactly what it remembers now, if it may be ended there and go on elsewhere.
    fn stands_at(&self) -> Option<Epoch> {
        let is_between = self.kind == Kind::Step && self.phase == Phase::Reading;
        let has_nothing = self.inboxes.iter().all(Inbox::is_empty) && self.outbox.is_empty();
        let desk = self.cuts.as_ref()?;
        let stands = is_between && has_nothing && self.is_at_cut && !self.has_ended;
        desk.rests_behind().filter(|_| stands)
    }

    /// Drops it as [`dismantle`](Stage::dismantle) does, but leaves what its processor remembers, if that is what a snapshot has. It is closed.
    pub(crate) fn leave(mut self, keepsakes: &Keepsakes) {
        let (Some(epoch), Some(desk)) = (self.stands_at(), self.cuts.take()) else {
            return self.dismantle();
        };
        let told = Some(self.watermark);
        let told = told.filter(|told| *told > Watermark::NONE && *told != Watermark::END);
        let Stage {
            processor,
            inboxes,
            outbox,
            context,
            ..
        } = self;
        quietly(|| {
            if let Some(memory) = processor.hand_over() {
                let keepsake = Keepsake {
                    epoch,
                    watermark: told,
                    memory,
                };
                keepsakes.leave(desk.name.clone(), keepsake);
            }
        });
        quietly(|| drop(inboxes));
        quietly(|| drop(outbox));
        quietly(|| drop(context));
    }
}
