//! The seam between a job's edges and whatever carries them to other processes.

use ardea_core::{EdgeId, Processor, Result};

use crate::Site;

/// Makes the ends of edges that lead to other processes, or come from there.
///
/// The engine runs both ends as tasklets of their own, one for each edge and other process, joined to the instances here by the same
/// queues as instances are joined to each other. So routing, batching and backpressure are the same wherever a consumer lives.
///
/// Neither is polled: it is called when something comes from this side, when the [`Waker`](ardea_core::Waker) of its context is woken,
/// and when the time has come that it asked for by [`Outbox::wake_at`](ardea_core::Outbox::wake_at). An error of one fails the job.
/// Both are made on the thread that starts or changes the job, and may not block.
///
/// While the layout of the job changes, their inputs and outputs may become more. An end that was told to end by `on_drain` may be
/// needed again, also after that has returned done: then the other calls come as before.
pub trait Crossings: Send + Sync {
    /// Takes what instances here send over `edge` to instances at `to`. Its input *i* holds what is for the consumer's instance *i*;
    /// watermarks, idleness and ends of epochs are merged over all producers here, and are for all its instances there.
    ///
    /// * `on_watermark`: to be passed on, also [`Watermark::NONE`](ardea_core::Watermark::NONE), which says that a stream begins, or that
    ///   producers come. When the other process was started again, or the connection was cut, this one and the latest one are to be sent
    ///   before anything else.
    /// * `on_idle`: to be passed on.
    /// * `on_edge_done(i)`: nobody here routes to instance *i* any more. The other end is to be told, so that it
    ///   [leaves](ardea_core::Outbox::leave) its output *i*. Records may come on the input again, when the routes change once more.
    /// * `complete`: all producers here have ended. The other end is to be told, so that it writes the marker
    ///   [`Done`](ardea_core::Marker::Done), and again when the other process was started again. Whatever is sent after that is a new
    ///   beginning, which has to be ended by the same marker. Returns [`Progress::NONE`](ardea_core::Progress::NONE) then, never done.
    /// * `on_drain`, in place of `complete`: this end is not needed any more. As `complete`, but returns done as soon as all that it holds
    ///   is on its way, or can't be sent because the other process is gone for good.
    /// * `on_slice_end`: what was gathered over several calls goes on its way.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>>;

    /// Gives out what comes over `edge` from `from`. Its output *i* leads to the consumer's instance *i*, if that is here. It has no
    /// inputs, but is no source: it is not paused, and it passes epochs on as they come.
    ///
    /// * `complete`: gives out what has come. When the stream has ended it writes the marker [`Done`](ardea_core::Marker::Done), and
    ///   goes on, as it may begin anew. What is for an instance that is not here is given out all the same: it is counted and
    ///   dropped. What is for an output beyond those that there are was sent by routes of before this process was started: it is dropped
    ///   and [counted](ardea_core::Outbox::count_misrouted).
    /// * When a stream begins anew, as the other process was started again or the connection was cut, it says so by
    ///   [`begin_anew`](ardea_core::Outbox::begin_anew).
    /// * `on_drain`, in place of `complete`: nobody needs it any more. Gives out what still comes, until the stream has ended or was
    ///   cut, and then returns done.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>>;
}
