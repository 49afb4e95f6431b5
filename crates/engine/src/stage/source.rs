//! The stage of a source: held back, paused, drained, and requested to end an epoch.

use super::{DrainMode, Kind, ProcessorStage};

impl ProcessorStage {
    /// Starts a source that was held back.
    pub(crate) fn begin(&mut self) {
        if let Kind::Source { is_kept_back, .. } = &mut self.kind {
            *is_kept_back = false;
        }
    }

    /// Returns true if the stage is a source of the job.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self.kind, Kind::Source { .. })
    }

    /// Returns true if the stage is a source or receives records from another process.
    pub(crate) fn reads_from_outside(&self) -> bool {
        matches!(self.kind, Kind::Source { .. } | Kind::Receiver)
    }

    /// Returns true if the stage is a source that must end an epoch, or drain.
    pub(crate) fn has_request(&self) -> bool {
        let signals = &self.context.signals;
        self.is_source() && (self.is_drained() || signals.next_epoch(self.epochs_ended).is_some())
    }

    /// Returns whether the stage is a source that is held back, and whether it is stopped.
    pub(crate) fn source_state(&self) -> (bool, bool) {
        let is_kept_back = matches!(
            self.kind,
            Kind::Source {
                is_kept_back: true,
                ..
            }
        );
        (is_kept_back, self.is_dismissed)
    }

    /// Returns true if the stage is a source that must not be called at the moment.
    pub(super) fn rests(&self) -> bool {
        let Kind::Source { is_kept_back, .. } = self.kind else {
            return false;
        };
        let is_paused = self.context.signals.is_paused() && !self.pauses_itself;
        (is_kept_back || is_paused) && !self.is_drained()
    }

    /// Returns true if the stage must end as if its input had ended.
    pub(super) fn is_drained(&self) -> bool {
        match self.kind {
            // Read once per call, so that the processor sees the same value.
            Kind::Source { at_drain, .. } => {
                at_drain == DrainMode::Stops && self.context.signals.notify_draining()
                    || self.is_dismissed
            }
            _ => self.is_dismissed,
        }
    }
}
