//! The end of a source before the end of its input.

use crate::{Outbox, Progress, Result};

/// The control of a source by the runtime: drain and pause.
pub trait SourceControl {
    /// Ends a source as if its input had ended: emits the records that were already read, and no
    /// more.
    ///
    /// Called instead of [`complete`](crate::Processor::complete), until it returns done. It is the
    /// only notification of draining: [`is_draining`](crate::JobSignals::is_draining) is false in
    /// every call of `complete`, so a `complete` that returns done means the end of the input.
    ///
    /// Not called for a source upstream of an urgent input (see [`Priority`](crate::Priority)),
    /// which runs to its end. The default ends at once, which is right for a source that buffers no
    /// input.
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Returns true if a source whose [`on_drain`](Self::on_drain) is done had reached the end of
    /// its input anyway. If all sources had, the drained job counts as completed.
    ///
    /// The default is false.
    fn is_at_end(&self) -> bool {
        false
    }

    /// Returns true if this source is also called while the job is paused, and then stops reading
    /// by itself; see [`is_paused`](crate::JobSignals::is_paused). By default the runtime does not
    /// call [`complete`](crate::Processor::complete) while paused. Asked once.
    fn pauses_itself(&self) -> bool {
        false
    }
}

/// The control of a source that buffers no input, and may stop at any call.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoControl;

impl SourceControl for NoControl {}
