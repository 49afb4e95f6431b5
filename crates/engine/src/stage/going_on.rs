//! A stage whose processor goes on from the memory of another one, and one that leaves it that memory.

use std::thread;

use ardea_core::{Epoch, Inbox, Processor, Watermark};

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
        let has_all = self.returning.is_none();
        let stands = is_between && has_all && has_nothing && self.is_at_cut && !self.has_ended;
        desk.rests_behind().filter(|_| stands)
    }

    /// Drops the processor and all that waits in the boxes.
    pub(crate) fn dismantle(self) {
        self.take_apart(drop);
    }

    /// Drops it as [`dismantle`](Stage::dismantle) does, but what its processor remembers on a thread of its own, as another life is
    /// about to begin here, and to drop much state takes long.
    fn dismantle_aside(self) {
        self.take_apart(|processor| {
            if let Some(memory) = processor.hand_over() {
                let aside = thread::Builder::new().name("ardea-left".into());
                // Without a thread it is dropped here.
                let _ = aside.spawn(move || quietly(|| drop(memory)));
            }
        });
    }

    /// Drops it as [`dismantle`](Stage::dismantle) does, but leaves what its processor remembers, if that is what a snapshot has. It is closed.
    pub(crate) fn leave(mut self, keepsakes: &Keepsakes) {
        let (Some(epoch), Some(desk)) = (self.stands_at(), self.cuts.take()) else {
            return self.dismantle_aside();
        };
        let told = Some(self.watermark);
        let told = told.filter(|told| *told > Watermark::NONE && *told != Watermark::END);
        self.take_apart(|processor| {
            if let Some(memory) = processor.hand_over() {
                let keepsake = Keepsake {
                    epoch,
                    watermark: told,
                    memory,
                };
                keepsakes.leave(desk.name.clone(), keepsake);
            }
        });
    }

    /// Does that with its processor, and drops all that waits in the boxes: what of it panics keeps nothing else from being dropped.
    fn take_apart(self, end: impl FnOnce(Box<dyn Processor>)) {
        let Stage {
            processor,
            inboxes,
            outbox,
            context,
            ..
        } = self;
        quietly(|| end(processor));
        for inbox in inboxes {
            quietly(|| drop(inbox));
        }
        quietly(|| drop(outbox));
        quietly(|| drop(context));
    }
}
