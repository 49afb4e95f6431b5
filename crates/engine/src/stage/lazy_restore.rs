//! A stage with a lazy restore: it processes records before all of its state is restored.
//!
//! Records and watermarks are delivered as usual; the processor itself decides what it can process.
//! Ends of epochs and of inputs wait until the restore is complete. Idleness is deferred as well:
//! downstream would not wait for the output of this stage.

use ardea_core::{Marker, OutboxRuntime, Progress, Result, Watermark};

use super::{Phase, ProcessorStage};
use crate::channels::input::Event;

/// The state of a lazy restore, and the events deferred until it is complete.
#[derive(Default)]
pub(crate) struct LazyRestore {
    /// True if all state is restored.
    pub(super) is_over: bool,
    /// True if state was restored since the processor has last caught up with records that it had
    /// set aside.
    pub(super) must_catch_up: bool,
    /// True if the watermark was repeated to the processor.
    is_told: bool,
    /// True if all inputs are idle.
    is_idle: bool,
    /// A deferred event; no input is read after it.
    held: Option<Event>,
}

impl ProcessorStage {
    /// Returns true if the restore is not complete.
    pub(crate) fn is_restoring(&self) -> bool {
        self.lazy_restore.as_ref().is_some_and(|it| !it.is_over)
    }

    /// Continues the deferred work, one item per call. Returns `None` if the stage may process its
    /// input as usual.
    pub(super) fn continue_restore(&mut self) -> Option<Result<bool>> {
        if self.lazy_restore.as_ref()?.must_catch_up {
            match self.catch_up() {
                Ok(false) => {}
                moved => return Some(moved),
            }
        }
        let returning = self.lazy_restore.as_mut()?;
        if !returning.is_over {
            let is_held = returning.held.is_some() && self.waiting_input().is_none();
            return is_held.then_some(Ok(false));
        }
        if !returning.is_told {
            // Before any record: the state that was restored last may have due timers.
            returning.is_told = true;
            if self.watermark > Watermark::NONE {
                self.phase = Phase::Watermark(self.watermark);
                return Some(self.call());
            }
        }
        if self.waiting_input().is_some() {
            return None;
        }
        let returning = self.lazy_restore.take()?;
        self.at = None;
        if returning.is_idle {
            self.outbox.marker(Marker::Idle);
        }
        let event = returning.held?;
        Some(self.accept(event))
    }

    /// Lets the processor process records that it had set aside; returns true if anything moved.
    fn catch_up(&mut self) -> Result<bool> {
        // An error here does not concern a record, but the pending records remain.
        let at = self.at.take();
        let processor = self.code.processor();
        let progress = processor.map_or(Ok(Progress::DONE), |it| it.catch_up(&mut self.outbox))?;
        self.at = at;
        if let Some(returning) = &mut self.lazy_restore {
            returning.must_catch_up = !progress.done;
        }
        Ok(progress.made || !self.outbox.is_empty())
    }

    /// Returns the event if it may be processed now, otherwise defers it.
    pub(super) fn defer_until_restored(&mut self, event: Event) -> Option<Event> {
        let Some(returning) = self.lazy_restore.as_mut().filter(|it| !it.is_over) else {
            return Some(event);
        };
        match event {
            Event::Barrier(..) | Event::EdgeDone { .. } => {
                returning.held = Some(event);
                None
            }
            Event::Idle => {
                returning.is_idle = true;
                None
            }
            Event::Chunk(..) | Event::Watermark(_) => {
                returning.is_idle = false;
                Some(event)
            }
            // Micro-batches exclude a lazy restore.
            Event::BatchEnd(..) | Event::Latency(_) => Some(event),
        }
    }

    /// After records: requests the partitions that the processor waits for.
    #[cold]
    pub(super) fn hurry(&mut self) {
        let restoring = self
            .snapshots
            .as_mut()
            .and_then(|desk| desk.restoring.as_mut());
        if let Some(restoring) = restoring {
            restoring.hurry(self.code.state());
        }
    }
}
