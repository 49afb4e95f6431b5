//! Where a sender or receiver of an edge meets the link that it shares with others.
//!
//! The link lives on the thread that polls the network, its ports on the threads of their tasklets; between them are two
//! wait-free queues. A receiver that is slow has its frames wait behind its queue, up to its window, and nobody else's.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ardea_core::Waker;
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::exchange::doorbell::{Doorbell, RingAtEnd};
use crate::exchange::frame::{Frame, Parcel, Payload};
use crate::exchange::gone::{PeerGone, Why};

/// How much memory beyond their own the frames of a slow port may hold, in bytes.
const SPARE_BYTES: usize = 1 << 20;

/// Which end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// That which sends records and is granted windows.
    Sender,
    /// That which receives records and grants windows.
    Receiver,
}

#[derive(Debug)]
struct Shared {
    ending: OnceLock<Ending>,
    /// Frames wait on the link's side for room in the queue.
    has_waiting: AtomicBool,
    /// The port found its queue full, and wants to be woken.
    is_full: AtomicBool,
    /// Bytes that have come for the port and that it has not taken.
    queued_bytes: AtomicUsize,
    owner: Waker,
    link: Doorbell,
    peer: String,
}

/// Why the peer is gone, and the frames of it that had no room in the queue.
#[derive(Debug)]
struct Ending {
    gone: PeerGone,
    rest: Mutex<VecDeque<Frame>>,
}

impl Ending {
    fn rest(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a sender or receiver. When it is dropped the link takes what it sent, and forgets it.
#[derive(Debug)]
pub struct Port {
    out: Producer<Parcel>,
    into: Consumer<Frame>,
    shared: Arc<Shared>,
    _farewell: RingAtEnd,
}

/// The link's end.
#[derive(Debug)]
pub(crate) struct PortEnd {
    out: Consumer<Parcel>,
    into: Producer<Frame>,
    shared: Arc<Shared>,
    waiting: VecDeque<Frame>,
    memory: Memory,
    _farewell: WakeAtEnd,
}

/// What the frames that wait hold, since none was waiting.
#[derive(Debug, Default)]
struct Memory {
    last_block: usize,
    held: usize,
    used: usize,
}

impl Memory {
    /// Takes account of a payload, and copies it to memory of its own if those that wait hold far more than they are: small frames
    /// of a slow edge must not keep whole blocks of a busy one.
    fn admit(&mut self, payload: &mut Payload) {
        let Some((block, bytes)) = payload.block() else {
            return;
        };
        if block != self.last_block {
            if self.held + bytes > 4 * self.used + SPARE_BYTES && payload.len() < bytes / 4 {
                *payload = Payload::copy_of(payload);
                return;
            }
            self.last_block = block;
            self.held += bytes;
        }
        self.used += payload.len();
    }
}

/// A port and its other end. `owner` is woken when there is something for the port; `link` when there is something for the link.
pub(crate) fn port(
    frames: usize,
    parcels: usize,
    peer: String,
    owner: Waker,
    link: Doorbell,
) -> (Port, PortEnd) {
    let (parcels_in, parcels_out) = ring(Capacity::clamped(parcels));
    let (frames_in, frames_out) = ring(Capacity::clamped(frames));
    let shared = Arc::new(Shared {
        ending: OnceLock::new(),
        has_waiting: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        queued_bytes: AtomicUsize::new(0),
        owner,
        link,
        peer,
    });
    (
        Port {
            out: parcels_in,
            into: frames_out,
            _farewell: RingAtEnd(shared.link.clone()),
            shared: Arc::clone(&shared),
        },
        PortEnd {
            out: parcels_out,
            into: frames_in,
            _farewell: WakeAtEnd(shared.owner.clone()),
            shared,
            waiting: VecDeque::new(),
            memory: Memory::default(),
        },
    )
}

impl Port {
    /// Gives a parcel to the link, or gets it back if the link has enough; the owner is woken when there is room.
    pub(crate) fn send(&mut self, parcel: Parcel) -> Result<(), Parcel> {
        let refused = match self.out.push(parcel) {
            Ok(()) => {
                self.shared.link.ring();
                return Ok(());
            }
            // The link is gone: nobody will miss it, and `gone` says so.
            Err(PushError::Gone(_)) => return Ok(()),
            Err(PushError::Full(parcel)) => parcel,
        };
        self.shared.is_full.store(true, Ordering::SeqCst);
        // Pairs with the fence in `PortEnd::wake_sender`: either it sees the flag, or room is seen here.
        fence(Ordering::SeqCst);
        match self.out.push(refused) {
            Ok(()) => {
                self.shared.link.ring();
                Ok(())
            }
            Err(PushError::Gone(_)) => Ok(()),
            Err(PushError::Full(parcel)) => Err(parcel),
        }
    }

    /// The next frame for this port.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let Some(frame) = self.into.pop() else {
            // What is left when the queue has ended lies in the open.
            let ended = self.into.is_finished();
            let ending = self.shared.ending.get().filter(|_| ended)?;
            return ending.rest().pop_front();
        };
        self.shared
            .queued_bytes
            .fetch_sub(frame.wire_bytes(), Ordering::Relaxed);
        // Pairs with the fence in `PortEnd::forward`.
        fence(Ordering::SeqCst);
        if self.shared.has_waiting.load(Ordering::Relaxed) {
            self.shared.link.ring();
        }
        Some(frame)
    }

    /// Bytes that have come and were not taken.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Asks to be woken when the link has let go of memory; the caller then looks once more whether it has meanwhile.
    pub(crate) fn wants_room(&self) {
        self.shared.is_full.store(true, Ordering::SeqCst);
        // Pairs with the fence in `PortEnd::wake_sender`: either it sees the flag, or the memory is seen to be free.
        fence(Ordering::SeqCst);
    }

    /// Why the peer is gone, once it is and all its frames have been taken.
    pub fn gone(&mut self) -> Option<&PeerGone> {
        let ending = self.shared.ending.get()?;
        let is_over = self.into.is_finished() && ending.rest().is_empty();
        is_over.then_some(&ending.gone)
    }

    /// The peer's name, for messages.
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }
}

impl PortEnd {
    /// The next parcel that the port wants to send.
    pub(crate) fn next_parcel(&mut self) -> Option<Parcel> {
        self.out.pop()
    }

    /// Whether the port is gone and all that it sent has been taken.
    pub(crate) fn is_over(&mut self) -> bool {
        self.out.is_finished()
    }

    /// Wakes the port's owner if it waits for room; called when there may be some.
    pub(crate) fn wake_sender(&self) {
        fence(Ordering::SeqCst);
        if self.shared.is_full.load(Ordering::Relaxed) {
            self.shared.is_full.store(false, Ordering::SeqCst);
            self.shared.owner.wake();
        }
    }

    /// Bytes that the port has not taken.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Hands a frame to the port, behind those that wait. Never refuses: the caller has looked at `queued_bytes`.
    pub(crate) fn deliver(&mut self, mut frame: Frame) {
        self.shared
            .queued_bytes
            .fetch_add(frame.wire_bytes(), Ordering::Relaxed);
        if self.waiting.is_empty() {
            match self.into.push(frame) {
                Ok(()) => return self.shared.owner.wake(),
                Err(PushError::Gone(_)) => return,
                Err(PushError::Full(refused)) => frame = refused,
            }
            self.memory = Memory::default();
        }
        self.memory.admit(&mut frame.payload);
        self.waiting.push_back(frame);
        self.forward();
    }

    /// Moves frames that wait on to the port's queue; whether there were any to move.
    pub(crate) fn forward(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.shared.has_waiting.store(true, Ordering::SeqCst);
        // Pairs with the fence in `Port::receive`: either it sees the flag, or room is seen here.
        fence(Ordering::SeqCst);
        let mut moved = false;
        while let Some(frame) = self.waiting.pop_front() {
            match self.into.push(frame) {
                Ok(()) => moved = true,
                Err(PushError::Gone(_)) => self.waiting.clear(),
                Err(PushError::Full(frame)) => {
                    self.waiting.push_front(frame);
                    break;
                }
            }
        }
        if self.waiting.is_empty() {
            self.shared.has_waiting.store(false, Ordering::SeqCst);
        }
        if moved {
            self.shared.owner.wake();
        }
        moved
    }

    /// Tells the port that the peer is gone, behind all the frames that have come.
    pub(crate) fn end(mut self, gone: &PeerGone) {
        self.close(gone.clone());
    }

    fn close(&mut self, gone: PeerGone) {
        let rest = Mutex::new(std::mem::take(&mut self.waiting));
        let _ = self.shared.ending.set(Ending { gone, rest });
    }
}

impl Drop for PortEnd {
    fn drop(&mut self) {
        if self.shared.ending.get().is_none() {
            self.close(PeerGone::new(self.shared.peer.clone(), Why::Dropped));
        }
    }
}

/// Wakes a port's owner when the link's end is gone: stands behind the queues.
#[derive(Debug)]
struct WakeAtEnd(Waker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::block::BlockPool;
    use crate::exchange::header::{Header, Kind};
    use crate::exchange::ids::StreamId;

    fn ends() -> (Port, PortEnd) {
        let bell = Doorbell::new(Waker::none());
        port(4, 2, "worker 2".into(), Waker::none(), bell)
    }

    fn frame(payload: Payload) -> Frame {
        Frame {
            header: Header::new(Kind::Records, StreamId::new(1, 1)),
            payload,
        }
    }

    /// The memory that waiting frames keep from being used again.
    fn held_bytes(end: &PortEnd) -> usize {
        let mut blocks: Vec<_> = end
            .waiting
            .iter()
            .filter_map(|it| it.payload.block())
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn small_frames_that_wait_do_not_hold_the_blocks_of_others() {
        let (mut port, mut end) = ends();
        let mut pool = BlockPool::new(256 << 10, 4);
        for _ in 0..1000 {
            let block = pool.take();
            end.deliver(frame(Payload::in_block(&block, 0, 500)));
        }
        assert!(held_bytes(&end) < 2 << 20, "{}", held_bytes(&end));
        assert_eq!(
            end.queued_bytes(),
            1000 * (500 + crate::exchange::header::HEADER_BYTES)
        );
        let mut taken = 0;
        while port.receive().is_some() {
            taken += 1;
            end.forward();
        }
        assert_eq!((taken, end.queued_bytes()), (1000, 0));
    }

    #[test]
    fn frames_that_fill_their_blocks_wait_where_they_are() {
        let (_port, mut end) = ends();
        let mut pool = BlockPool::new(256 << 10, 4);
        for _ in 0..100 {
            let block = pool.take();
            for at in 0..6 {
                end.deliver(frame(Payload::in_block(&block, at * 40_000, 40_000)));
            }
        }
        let in_place = |frame: &&Frame| {
            frame
                .payload
                .block()
                .is_some_and(|(_, bytes)| bytes > 200_000)
        };
        assert_eq!(
            end.waiting.iter().filter(in_place).count(),
            end.waiting.len()
        );
    }

    #[test]
    fn what_waited_when_the_peer_went_is_taken_before_its_end() {
        let (mut port, mut end) = ends();
        for _ in 0..10 {
            end.deliver(frame(Payload::EMPTY));
        }
        end.end(&PeerGone::new("worker 2", Why::Closed));
        for _ in 0..10 {
            assert!(port.gone().is_none());
            assert!(port.receive().is_some());
        }
        assert!(matches!(
            port.gone().map(|gone| &gone.why),
            Some(Why::Closed)
        ));
    }

    #[test]
    fn a_refused_parcel_makes_the_link_wake_the_owner_when_there_is_room() {
        use std::sync::atomic::AtomicU32;
        let woken = Arc::new(AtomicU32::new(0));
        let owner = Waker::new({
            let woken = Arc::clone(&woken);
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        });
        let bell = Doorbell::new(Waker::none());
        let (mut port, mut end) = port(4, 2, "worker 2".into(), owner, bell);
        let parcel = || Parcel::Bundle(Payload::EMPTY);
        while port.send(parcel()).is_ok() {}
        end.wake_sender();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        end.wake_sender();
        assert_eq!(woken.load(Ordering::SeqCst), 1, "it is woken once");
        assert!(end.next_parcel().is_some());
        assert!(port.send(parcel()).is_ok());
    }
}
