//! The callbacks of a processor, as a report names them.

use std::fmt;

use ardea_core::{Epoch, Watermark};

/// Which callback was called.
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
    TakeCut(Epoch),
    TendCut,
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
            Callback::TakeCut(epoch) => write!(f, "take_cut({})", epoch.0),
            Callback::TendCut => f.write_str("write_cut, or what came of an epoch"),
            Callback::Restore => f.write_str("restore"),
            Callback::CatchUp => f.write_str("catch_up"),
            Callback::Close => f.write_str("close"),
            Callback::HandOver => f.write_str("hand_over"),
            Callback::TakeOver => f.write_str("take_over"),
        }
    }
}

/// One call, for the trace of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) callback: Callback,
    /// How many records each lane was allowed to hold.
    pub(crate) budget: usize,
    /// How many records waited in the inbox, before and after.
    pub(crate) waiting: Option<(usize, usize)>,
    /// How many records were written, over all outputs; unknown of a call that failed.
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
