//! Forwarding of frames between connections without decoding them.
//!
//! A forwarded payload is never decoded and never copied. The header is rewritten for its
//! destination; the payload is sent from the memory it was read into.
//!
//! The forwarder itself has no windows. Grants pass through it in the other direction, so a window
//! spans the whole path and bounds the forwarder's queues. Without windows the caller must stop
//! reading the sources of a full destination: see [`is_full`](Forwarder::is_full).

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::exchange::disconnect::Disconnected;
use crate::exchange::frame::{Frame, SendBuffer};
use crate::exchange::header::{Header, Kind};
use crate::exchange::ids::{InstanceNumber, StreamId};
use crate::exchange::transport::Connection;

/// The key of a routing table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteKey {
    /// The stream on which the frames arrive.
    pub stream: StreamId,
    /// The instance that the frames are for.
    pub target: InstanceNumber,
    /// True for grants, which travel in the other direction.
    pub is_grant: bool,
}

impl RouteKey {
    fn of(header: &Header) -> Self {
        RouteKey {
            stream: header.stream,
            target: header.target,
            is_grant: header.kind == Kind::Grant,
        }
    }
}

/// The destination of frames, and the ids written to their headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Index of the forwarder's destination.
    pub destination: usize,
    /// The stream at the destination.
    pub stream: StreamId,
    /// The instance at the destination.
    pub target: InstanceNumber,
}

#[derive(Debug, Default)]
struct Destination {
    queue: VecDeque<SendBuffer>,
    queued_bytes: usize,
}

/// A routing table, and a queue per destination.
///
/// ```
/// use ardea_network::exchange::{Forwarder, Frame, Header, InstanceNumber, Kind, Route, RouteKey, StreamId};
///
/// let mut forwarder = Forwarder::new(1, 1 << 20);
/// let (stream, target) = (StreamId::new(7, 2), InstanceNumber(5));
/// forwarder.route(
///     RouteKey { stream, target, is_grant: false },
///     Route { destination: 0, stream, target: InstanceNumber(0) },
/// );
/// let mut header = Header::new(Kind::Done, stream);
/// assert!(forwarder.forward(Frame::bare(header)).is_err(), "it is for all, and only 5 is known");
/// header.target = target;
/// assert!(forwarder.forward(Frame::bare(header)).is_ok());
/// ```
#[derive(Debug)]
pub struct Forwarder {
    routes: HashMap<RouteKey, Route, FixedState>,
    destinations: Vec<Destination>,
    max_queued_bytes: usize,
}

impl Forwarder {
    /// Creates a forwarder with this number of destinations. Each is [full](Self::is_full) once
    /// `most_queued_bytes` are queued for it.
    pub fn new(destinations: usize, most_queued_bytes: usize) -> Self {
        Forwarder {
            routes: HashMap::default(),
            destinations: (0..destinations).map(|_| Destination::default()).collect(),
            max_queued_bytes: most_queued_bytes,
        }
    }

    /// Adds or replaces the route for frames with this `key`.
    pub fn route(&mut self, key: RouteKey, route: Route) {
        self.routes.insert(key, route);
    }

    /// Removes the route for frames with this `key`.
    pub fn forget(&mut self, key: &RouteKey) {
        self.routes.remove(key);
    }

    /// Queues a frame for its destination.
    ///
    /// # Errors
    /// The unchanged frame, if there is no route for it.
    pub fn forward(&mut self, mut frame: Frame) -> Result<(), Box<Frame>> {
        let route = self.routes.get(&RouteKey::of(&frame.header));
        let Some((route, destination)) =
            route.and_then(|route| Some((route, self.destinations.get_mut(route.destination)?)))
        else {
            return Err(Box::new(frame));
        };
        frame.header.stream = route.stream;
        frame.header.target = route.target;
        destination.queued_bytes += frame.wire_bytes();
        destination.queue.push_back(SendBuffer::Frame(frame));
        Ok(())
    }

    /// Moves queued frames of `destination` to `connection` until that is full, and flushes it.
    /// Returns the number of bytes moved by the flush.
    ///
    /// # Errors
    /// The destination is disconnected.
    pub fn drain(
        &mut self,
        destination: usize,
        connection: &mut dyn Connection,
    ) -> Result<usize, Disconnected> {
        let Some(destination) = self.destinations.get_mut(destination) else {
            return Ok(0);
        };
        while let Some(parcel) = destination.queue.pop_front() {
            let bytes = parcel.wire_bytes();
            if let Err(refused) = connection.send(parcel) {
                destination.queue.push_front(refused);
                break;
            }
            destination.queued_bytes -= bytes;
        }
        connection.flush()
    }

    /// Returns true if the maximum number of bytes is queued for `destination`: the caller should
    /// then not read from the sources of its frames.
    pub fn is_full(&self, destination: usize) -> bool {
        self.destinations
            .get(destination)
            .is_some_and(|it| it.queued_bytes >= self.max_queued_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::frame::Payload;
    use crate::exchange::memory::MemoryNetwork;
    use crate::exchange::transport::Transport;

    const HERE: StreamId = StreamId::new(7, 2);
    const THERE: StreamId = StreamId::new(7, 9);

    fn frame(kind: Kind, target: u32, bytes: &[u8]) -> Frame {
        let mut header = Header::new(kind, HERE);
        header.target = InstanceNumber(target);
        Frame {
            header,
            payload: Payload::copy_of(bytes),
        }
    }

    fn route(forwarder: &mut Forwarder, is_grant: bool, destination: usize) {
        let key = RouteKey {
            stream: HERE,
            target: InstanceNumber(5),
            is_grant,
        };
        let route = Route {
            destination,
            stream: THERE,
            target: InstanceNumber(0),
        };
        forwarder.route(key, route);
    }

    #[test]
    fn what_is_passed_on_lies_where_it_was_and_only_its_header_is_another() {
        let network = MemoryNetwork::default();
        let mut there = network.transport();
        let mut listener = there.listen("there").unwrap();
        let mut connection = network.transport().connect("there").unwrap();
        let mut accepted = listener.accept().unwrap().unwrap();
        accepted.allow(1 << 20);

        let mut forwarder = Forwarder::new(1, 1 << 20);
        route(&mut forwarder, false, 0);
        // No codec writes such bytes, so decoding them would fail.
        let sent = frame(Kind::Records, 5, &[0xff; 10_000]);
        let place = sent.payload.as_ptr();
        forwarder.forward(sent).unwrap();
        assert!(forwarder.drain(0, &mut *connection).unwrap() > 10_000);
        let came = accepted.receive().unwrap().unwrap();
        assert_eq!(came.payload.as_ptr(), place);
        assert_eq!(
            (came.header.stream, came.header.target),
            (THERE, InstanceNumber(0))
        );
    }

    #[test]
    fn grants_go_their_own_way_and_what_has_none_is_given_back_as_it_came() {
        let mut forwarder = Forwarder::new(2, 1 << 20);
        route(&mut forwarder, false, 0);
        route(&mut forwarder, true, 1);
        forwarder.forward(frame(Kind::Records, 5, &[1])).unwrap();
        forwarder.forward(frame(Kind::Grant, 5, &[2; 16])).unwrap();
        let queued = |at: usize| forwarder.destinations[at].queue.len();
        assert_eq!([queued(0), queued(1)], [1, 1]);

        let stray = frame(Kind::Records, 6, &[3]);
        assert_eq!(*forwarder.forward(stray.clone()).unwrap_err(), stray);
        forwarder.forget(&RouteKey::of(&frame(Kind::Records, 5, &[]).header));
        assert!(forwarder.forward(frame(Kind::Records, 5, &[])).is_err());
        // There is no destination 2.
        route(&mut forwarder, false, 2);
        assert!(forwarder.forward(frame(Kind::Records, 5, &[])).is_err());
    }

    #[test]
    fn a_destination_is_full_until_its_connection_has_taken_enough() {
        let network = MemoryNetwork::default();
        let mut there = network.transport();
        let _listener = there.listen("there").unwrap();
        let mut connection = network.transport().connect("there").unwrap();
        let mut forwarder = Forwarder::new(1, 100_000);
        route(&mut forwarder, false, 0);
        let mut count = 0;
        while !forwarder.is_full(0) {
            forwarder
                .forward(frame(Kind::Records, 5, &[0; 1_000]))
                .unwrap();
            count += 1;
        }
        assert_eq!(count, 100_000_usize.div_ceil(1_048));
        forwarder.drain(0, &mut *connection).unwrap();
        assert!(!forwarder.is_full(0));
        assert!(
            !forwarder.is_full(1),
            "an unknown destination is never full"
        );
    }
}
