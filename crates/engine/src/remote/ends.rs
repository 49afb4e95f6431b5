//! The interfaces of the ends of edges between processes.

use std::time::Duration;

use ardea_core::{Chunk, Marker, Result, Waker};

/// The sending end of an edge to another process. No call blocks; an error fails the job.
pub trait SendEnd: Send {
    /// Connects the end to its tasklet. Called once, before all other methods. Later the end wakes
    /// the tasklet when it can continue.
    fn open(&mut self, waker: Waker);

    /// Sends records from the front of `chunk` to the consumer's instance `target`; the rest stays.
    /// Returns true if no record is left in `chunk`.
    fn send(&mut self, target: u32, chunk: &mut Chunk) -> Result<bool>;

    /// Sends a marker to all of the consumer's instances there. Returns false if it cannot be sent
    /// now; the same marker follows again, except a latency marker, which is dropped.
    ///
    /// [`Watermark::NONE`](ardea_core::Watermark::NONE) marks the start of a stream or of further
    /// producers. After the other process restarted or the connection was cut, the end sends `NONE`
    /// and the latest watermark first.
    fn mark(&mut self, marker: Marker) -> Result<bool>;

    /// Signals that no producer here sends to the consumer's instance `target` any more. Returns
    /// false if the signal cannot be sent now. Records for this instance may follow after another
    /// change of the routing.
    fn leave(&mut self, target: u32) -> Result<bool>;

    /// Ends the stream: all producers here have ended. Called again until something else is sent,
    /// which starts a new stream. The end is repeated if the other process restarts. Returns true
    /// if nothing is pending, or if it cannot be sent because the other process is lost.
    fn finish(&mut self) -> Result<bool>;

    /// Sends batched data, at the end of a slice.
    fn flush(&mut self) -> Result<()>;

    /// Disconnects the end from its tasklet. Called once, last.
    fn close(&mut self) {}
}

/// The receiving end of an edge from another process. No call blocks; an error fails the job.
pub trait ReceiveEnd: Send {
    /// Connects the end to its tasklet. Called once, before all other methods. Later the end wakes
    /// the tasklet when there is an item.
    fn open(&mut self, waker: Waker);

    /// Returns the next item, if there is one. Records are put into `chunk`, which is empty before.
    /// The consumer has the instances below `instances` here, and others may be elsewhere.
    fn receive(
        &mut self,
        now: Duration,
        instances: usize,
        chunk: &mut Chunk,
    ) -> Result<Option<RemoteItem>>;

    /// Returns the state of the stream; `None` while the end is not available. Called when there is
    /// no item.
    fn stream_state(&mut self) -> Option<StreamState>;

    /// Disconnects the end from its tasklet. Called once, last.
    fn close(&mut self) {}
}

/// An item that arrives over an edge from another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteItem {
    /// Records for an instance of the consumer, in the caller's chunk.
    Records {
        /// The index of the instance. It may be one that does not exist, if the sender used a
        /// routing older than the start of this process.
        target: u32,
    },
    /// A marker for all instances.
    Marker(Marker),
    /// No producer there sends to this instance at the moment.
    ProducersLeft {
        /// The index of the instance.
        target: u32,
    },
    /// The sending process has restarted, or the connection was cut. Earlier items about the ends
    /// of streams, and about leaving or expected producers, are void.
    Restarted,
}

/// The state of a stream from another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamState {
    /// The latest time of the next call without a wake-up, if there is one.
    pub next_call: Option<Duration>,
    /// True if an item has arrived over the present connection.
    pub has_begun: bool,
    /// True if there is no connection at the moment.
    pub is_disconnected: bool,
    /// True if the other process is gone permanently.
    pub is_aborted: bool,
}
