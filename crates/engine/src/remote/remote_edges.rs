//! The interface to the transport of edges between processes.

use ardea_core::{EdgeId, Processor, Result};

use crate::Site;

/// A factory for the ends of edges to and from other processes.
///
/// Each end runs as a tasklet, one per edge and other process, connected to the instances here by
/// ordinary queues. So routing, batching and backpressure do not depend on the location of a
/// consumer.
///
/// Ends are not polled: they are called when input arrives, when the [`Waker`](ardea_core::Waker)
/// of their context is woken, and at the deadline requested by
/// [`Outbox::wake_at`](ardea_core::Outbox::wake_at). An error fails the job. Both kinds of ends are
/// created on the thread that starts or changes the job, and must not block.
///
/// The number of inputs and outputs may grow when the layout of the job changes. An end that was
/// stopped by `on_drain` may be needed again, even after that has returned done; then the other
/// calls resume.
pub trait RemoteEdges: Send + Sync {
    /// Creates the sending end for the records of instances here over `edge` to instances at `to`.
    /// Its input *i* carries the records for the consumer's instance *i*. Watermarks, idleness and
    /// barriers are merged over all producers here, and apply to all consumers there.
    ///
    /// * `on_watermark`: send the watermark, also [`Watermark::NONE`](ardea_core::Watermark::NONE),
    ///   which marks the start of a stream or of further producers. After the other process
    ///   restarted or the connection was cut, send `NONE` and the latest watermark first.
    /// * `on_idle`: send the idle marker.
    /// * `on_edge_done(i)`: no producer here routes to instance *i* any more. Signal that to the
    ///   other end, so that it [leaves](ardea_core::OutboxRuntime::signal_producers_left) its
    ///   output *i*. Records may arrive on the input again after another change of the routing.
    /// * `complete`: all producers here have ended. Signal that to the other end, so that it writes
    ///   the marker [`Done`](ardea_core::Marker::Done), and repeat it if the other process
    ///   restarts. Return [`Progress::NONE`](ardea_core::Progress::NONE) then, never done. Anything
    ///   sent afterwards starts a new stream, whose end must be signalled again.
    /// * `on_drain`, instead of `complete`: this end is not needed any more. Like `complete`, but
    ///   return done as soon as all buffered data is sent, or can't be sent because the other
    ///   process is lost.
    /// * `on_slice_end`: flush batches.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>>;

    /// Creates the receiving end for the records over `edge` from `from`. Its output *i* leads to
    /// the consumer's instance *i*, if that is here. It has no inputs, but is not treated as a
    /// source: it is not paused, and passes barriers on as they arrive.
    ///
    /// * `complete`: emit received data. At the end of the stream, write the marker
    ///   [`Done`](ardea_core::Marker::Done) and go on, since the stream may restart. Emit records
    ///   for instances that are not here as well; they are counted and dropped. Drop and
    ///   [count](ardea_core::OutboxRuntime::count_misrouted) records for outputs that do not exist;
    ///   they were sent by a routing older than the start of this process.
    /// * When a stream restarts because the other process restarted or the connection was cut, call
    ///   [`signal_restart`](ardea_core::OutboxRuntime::signal_restart).
    /// * `on_drain`, instead of `complete`: this end is not needed any more. Emit received data
    ///   until the stream has ended or the connection is cut, then return done.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>>;
}
