//! The callbacks of a processor, as named in reports.

use std::fmt;

use ardea_core::{Epoch, Watermark};

/// A callback of a processor, with its input, watermark or epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Callback {
    Init,
    Process(usize),
    Watermark(Watermark),
    Epoch(Epoch),
    EdgeDone(usize),
    Complete,
    Drain,
    Wake,
    TakeSnapshot(Epoch),
    DriveSnapshot,
    Restore,
    CatchUp,
    Close,
    HandOver,
    TakeOver,
}

impl fmt::Display for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callback::Init => f.write_str("init"),
            Callback::Process(input) => write!(f, "process(input {input})"),
            Callback::Watermark(watermark) => write!(f, "on_watermark({:?})", watermark.0),
            Callback::Epoch(epoch) => write!(f, "on_epoch({})", epoch.0),
            Callback::EdgeDone(input) => write!(f, "on_edge_done(input {input})"),
            Callback::Complete => f.write_str("complete"),
            Callback::Drain => f.write_str("on_drain"),
            Callback::Wake => f.write_str("on_wake"),
            Callback::TakeSnapshot(epoch) => write!(f, "take_snapshot({})", epoch.0),
            Callback::DriveSnapshot => f.write_str("write_snapshot, or what came of an epoch"),
            Callback::Restore => f.write_str("restore"),
            Callback::CatchUp => f.write_str("catch_up"),
            Callback::Close => f.write_str("close"),
            Callback::HandOver => f.write_str("hand_over"),
            Callback::TakeOver => f.write_str("take_over"),
        }
    }
}

/// One recorded call, for the trace of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) callback: Callback,
    /// The number of records that each lane was allowed to hold.
    pub(crate) budget: usize,
    /// The number of records in the inbox before and after the call.
    pub(crate) waiting: Option<(usize, usize)>,
    /// The number of records written to all outputs; `None` if the call failed.
    pub(crate) written: Option<usize>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: room for {}", self.callback, self.budget)?;
        if let Some((before, after)) = self.waiting {
            write!(f, ", inbox {before} -> {after}")?;
        }
        match self.written {
            Some(written) => write!(f, ", wrote {written}"),
            None => f.write_str(", failed"),
        }
    }
}
