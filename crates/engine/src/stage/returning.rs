//! A stage that has begun before all of its state is back.
//!
//! Records are given to it as ever, and so is time; it knows by itself what it can do. Ends of epochs and of inputs wait until all
//! is back, and that all inputs are silent is not told before: who hears it would not wait for what this stage has to say.

use ardea_core::{Marker, Result, Watermark};

use super::{Phase, Stage};
use crate::input::Event;

/// What waits until all state is back.
#[derive(Default)]
pub(crate) struct Returning {
    /// All of it is.
    pub(super) is_over: bool,
    /// Some has come back since the processor was done with what it had put aside.
    pub(super) owes: bool,
    /// The processor has been told again of time.
    is_told: bool,
    /// All inputs are silent.
    is_idle: bool,
    /// What has come, behind which nothing is read.
    held: Option<Event>,
}

impl Stage {
    /// Whether it waits for state that is not back.
    pub(crate) fn is_returning(&self) -> bool {
        self.returning.as_ref().is_some_and(|it| !it.is_over)
    }

    /// Whether it reads on; none if it does as ever. If all is back it does what has waited for that, one thing a call.
    pub(super) fn go_on_returning(&mut self) -> Option<Result<bool>> {
        if self.returning.as_ref()?.owes {
            match self.catch_up() {
                Ok(false) => {}
                moved => return Some(moved),
            }
        }
        let returning = self.returning.as_mut()?;
        if !returning.is_over {
            let is_held = returning.held.is_some() && self.waiting_input().is_none();
            return is_held.then_some(Ok(false));
        }
        if !returning.is_told {
            // Before any record: of what came back last something may be due.
            returning.is_told = true;
            if self.watermark > Watermark::NONE {
                self.phase = Phase::Watermark(self.watermark);
                return Some(self.call());
            }
        }
        if self.waiting_input().is_some() {
            return None;
        }
        let returning = self.returning.take()?;
        self.at = None;
        if returning.is_idle {
            self.outbox.marker(Marker::Idle);
        }
        let event = returning.held?;
        Some(self.accept(event))
    }

    /// Lets the processor deal with what it has put aside; whether anything moved.
    fn catch_up(&mut self) -> Result<bool> {
        // Not in the name of a record, but the records that wait are still there.
        let at = self.at.take();
        let progress = self.processor.catch_up(&mut self.outbox)?;
        self.at = at;
        if let Some(returning) = &mut self.returning {
            returning.owes = !progress.done;
        }
        Ok(progress.made || !self.outbox.is_empty())
    }

    /// The event, if it is to be dealt with now.
    pub(super) fn holds_until_back(&mut self, event: Event) -> Option<Event> {
        let Some(returning) = self.returning.as_mut().filter(|it| !it.is_over) else {
            return Some(event);
        };
        match event {
            Event::EpochEnd(..) | Event::EdgeDone { .. } => {
                returning.held = Some(event);
                None
            }
            Event::Idle => {
                returning.is_idle = true;
                self.processor.on_idle();
                None
            }
            Event::Chunk(..) | Event::Watermark(_) => {
                returning.is_idle = false;
                Some(event)
            }
            Event::Latency(_) => Some(event),
        }
    }

    /// After records: what it waits for comes next.
    #[cold]
    pub(super) fn hurry(&mut self) {
        let restoring = self.cuts.as_mut().and_then(|desk| desk.restoring.as_mut());
        if let Some(restoring) = restoring {
            restoring.hurry(&mut *self.processor);
        }
    }
}
