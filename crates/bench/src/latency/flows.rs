//! The mean transit time of frames, from byte counts at both ends of a transport.
//!
//! Frames need not be identified: the mean time in transit is the mean number of bytes in transit,
//! divided by the bytes received a second (Little, "A proof for the queuing formula L = λW", 1961).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::Result;
use ardea_network::exchange::{
    AddressScope, Connection, Disconnected, Frame, HEADER_BYTES, Header, Kind, Listener,
    MAX_PAYLOAD_BYTES, NetworkWaker, RingCounts, SendBuffer, Transport,
};

use crate::cluster::Sample;
use crate::usage::monotonic_nanos;

/// Bytes of records at one end of an edge, by edge.
type Ends = Mutex<BTreeMap<u32, Flow>>;

/// The bytes that a container has sent and received, shared by its transport and the bench's
/// handle.
#[derive(Debug, Default)]
pub(super) struct Flows {
    from: AtomicU64,
    until: AtomicU64,
    sent: Ends,
    received: Ends,
}

/// The traffic at one end of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Flow {
    /// Bytes before the measured time, and within it.
    before: u64,
    within: u64,
    /// The sum over all bytes of the measured time that was left when each passed, in nanoseconds.
    left: u128,
}

impl Flow {
    fn note(&mut self, bytes: u64, now: u64, from: u64, until: u64) {
        if now < from {
            self.before += bytes;
        } else if now < until {
            self.within += bytes;
            self.left += u128::from(bytes) * u128::from(until - now);
        }
    }
}

fn lock(ends: &Ends) -> MutexGuard<'_, BTreeMap<u32, Flow>> {
    ends.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flows {
    /// Sets the measured time.
    pub(super) fn count(&self, from: u64, until: u64) {
        self.until.store(until, Ordering::Relaxed);
        self.from.store(from, Ordering::Relaxed);
    }

    fn note(&self, ends: &Ends, edge: u32, bytes: usize) {
        let from = match self.from.load(Ordering::Relaxed) {
            0 => u64::MAX,
            from => from,
        };
        let until = self.until.load(Ordering::Relaxed);
        let mut flows = lock(ends);
        let flow = flows.entry(edge).or_default();
        flow.note(bytes as u64, monotonic_nanos(), from, until);
    }

    /// Returns the counters that [`transit`] uses.
    pub(super) fn numbers(&self) -> BTreeMap<String, u64> {
        let mut numbers = BTreeMap::new();
        for (end, flows) in [("sent", &self.sent), ("received", &self.received)] {
            for (edge, flow) in &*lock(flows) {
                let left = flow.left / u128::from(flow.within.max(1));
                let left = u64::try_from(left).unwrap_or(u64::MAX);
                numbers.insert(format!("{end}_{edge}_before"), flow.before);
                numbers.insert(format!("{end}_{edge}_within"), flow.within);
                numbers.insert(format!("{end}_{edge}_left_ns"), left);
            }
        }
        numbers
    }
}

/// Returns the mean nanoseconds in transit over an edge; zero if the edge does not leave the
/// container.
pub(super) fn transit(samples: &[Sample], edge: u32, measured: Duration) -> f64 {
    // Each end is in one container.
    let sum = |name: String| {
        samples
            .iter()
            .map(|it| i128::from(it.count(&name)))
            .sum::<i128>()
    };
    let nanos = i128::try_from(measured.as_nanos()).unwrap_or(i128::MAX);
    let passed = |end: &str| {
        let within = sum(format!("{end}_{edge}_within"));
        let left = sum(format!("{end}_{edge}_left_ns"));
        let before = sum(format!("{end}_{edge}_before"));
        (within, before * nanos + within * left)
    };
    let ((sent, into), (received, out)) = (passed("sent"), passed("received"));
    match sent > 0 && received > 0 {
        true => ((into - out) as f64 / received as f64).max(0.0),
        false => 0.0,
    }
}

/// A transport that records the traffic of each edge.
pub(super) struct RecordingTransport {
    inner: Box<dyn Transport>,
    flows: Arc<Flows>,
}

impl RecordingTransport {
    pub(super) fn new(inner: Box<dyn Transport>, flows: Arc<Flows>) -> Self {
        RecordingTransport { inner, flows }
    }
}

impl Transport for RecordingTransport {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn scope(&self) -> AddressScope {
        self.inner.scope()
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let connection = self.inner.connect(address)?;
        Ok(watched(connection, &self.flows))
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let listener = self.inner.listen(address)?;
        Ok(Box::new(WatchedListener(listener, Arc::clone(&self.flows))))
    }

    fn waker(&self) -> NetworkWaker {
        self.inner.waker()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.inner.wait(timeout)
    }
}

struct WatchedListener(Box<dyn Listener>, Arc<Flows>);

impl Listener for WatchedListener {
    fn address(&self) -> &str {
        self.0.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let accepted = self.0.accept()?;
        Ok(accepted.map(|connection| watched(connection, &self.1)))
    }
}

fn watched(inner: Box<dyn Connection>, flows: &Arc<Flows>) -> Box<dyn Connection> {
    Box::new(WatchedConnection {
        inner,
        flows: Arc::clone(flows),
        found: Vec::new(),
    })
}

struct WatchedConnection {
    inner: Box<dyn Connection>,
    flows: Arc<Flows>,
    /// Edge and bytes of the frames of records in a parcel.
    found: Vec<(u32, usize)>,
}

/// Adds a frame of records to `found`.
fn find(header: &Header, payload: usize, found: &mut Vec<(u32, usize)>) {
    if header.kind == Kind::Records {
        found.push((header.stream.edge.0, payload));
    }
}

/// Adds the frames of records in a parcel to `found`.
fn find_all(parcel: &SendBuffer, found: &mut Vec<(u32, usize)>) {
    match parcel {
        SendBuffer::Frame(frame) => find(&frame.header, frame.payload.len(), found),
        SendBuffer::Bundle(bytes) => {
            let mut rest = &bytes[..];
            while let Some((head, behind)) = rest.split_first_chunk::<HEADER_BYTES>()
                && let Ok((header, payload)) = Header::decode(head, MAX_PAYLOAD_BYTES)
            {
                find(&header, payload, found);
                rest = behind.get(payload..).unwrap_or_default();
            }
        }
    }
}

impl Connection for WatchedConnection {
    fn peer(&self) -> &str {
        self.inner.peer()
    }

    fn send(&mut self, parcel: SendBuffer) -> std::result::Result<(), SendBuffer> {
        self.found.clear();
        find_all(&parcel, &mut self.found);
        self.inner.send(parcel)?;
        for (edge, bytes) in &self.found {
            self.flows.note(&self.flows.sent, *edge, *bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> std::result::Result<usize, Disconnected> {
        self.inner.flush()
    }

    fn receive(&mut self) -> std::result::Result<Option<Frame>, Disconnected> {
        let frame = self.inner.receive()?;
        if let Some(frame) = frame.as_ref().filter(|it| it.header.kind == Kind::Records) {
            let edge = frame.header.stream.edge.0;
            self.flows
                .note(&self.flows.received, edge, frame.payload.len());
        }
        Ok(frame)
    }

    fn allow(&mut self, most_payload: usize) {
        self.inner.allow(most_payload);
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn may_wait(&mut self) -> bool {
        self.inner.may_wait()
    }

    fn kind(&self) -> Option<&'static str> {
        self.inner.kind()
    }

    fn ring_counts(&self) -> Option<RingCounts> {
        self.inner.ring_counts()
    }
}

#[cfg(test)]
mod tests {
    use ardea_network::exchange::{Payload, StreamId};

    use super::*;

    #[test]
    fn what_is_on_its_way_at_either_end_of_the_measured_time_counts_for_what_of_it_is_within() {
        let (from, until) = (1_000, 2_000);
        let (mut sent, mut received) = (Flow::default(), Flow::default());
        // Ten bytes every 100 ns, each in transit for 150 ns.
        for at in (0..3_000).step_by(100) {
            sent.note(10, at, from, until);
            received.note(10, at + 150, from, until);
        }
        let numbers = |end: &str, flow: Flow| {
            let left = (flow.left / u128::from(flow.within)) as u64;
            [
                (format!("{end}_3_before"), flow.before),
                (format!("{end}_3_within"), flow.within),
                (format!("{end}_3_left_ns"), left),
            ]
        };
        let sample = |numbers: [(String, u64); 3]| Sample {
            numbers: numbers.into(),
            ..Sample::default()
        };
        let samples = [
            sample(numbers("sent", sent)),
            sample(numbers("received", received)),
        ];
        let measured = Duration::from_nanos(until - from);
        assert_eq!(transit(&samples, 3, measured), 150.0);
        assert_eq!(transit(&samples, 4, measured), 0.0);
    }

    #[test]
    fn frames_are_found_alone_and_in_bundles() {
        let header = |kind, edge| Header::new(kind, StreamId::new(1, edge));
        let records = Frame {
            header: header(Kind::Records, 5),
            payload: Payload::copy_of(&[1; 70]),
        };
        let mut bytes = Vec::new();
        for (kind, edge, payload) in [
            (Kind::Records, 2, 9),
            (Kind::Idle, 2, 0),
            (Kind::Records, 3, 4),
        ] {
            bytes.extend(header(kind, edge).encode(payload));
            bytes.extend(vec![0; payload]);
        }
        let mut found = Vec::new();
        find_all(&SendBuffer::Frame(records), &mut found);
        find_all(
            &SendBuffer::Frame(Frame::bare(header(Kind::Idle, 5))),
            &mut found,
        );
        find_all(&SendBuffer::Bundle(Payload::copy_of(&bytes)), &mut found);
        assert_eq!(found, [(5, 70), (2, 9), (3, 4)]);
    }
}
