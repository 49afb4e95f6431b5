//! The connection of a sender or receiver of an edge to its link.
//!
//! The link runs on the thread that polls the network, its ports on the threads of their tasklets;
//! two wait-free queues connect them. Frames of a slow receiver are buffered behind its queue, up
//! to its window, and delay no other port.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ardea_core::Waker;
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::exchange::disconnect::{DisconnectReason, Disconnected};
use crate::exchange::frame::{Frame, Payload, SendBuffer};
use crate::exchange::network_waker::{NetworkWaker, WakeOnDrop};

/// Memory, in bytes, that the frames of a slow port may keep alive beyond their own size.
const SPARE_BYTES: usize = 1 << 20;

/// One end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The end that sends records and receives grants.
    Sender,
    /// The end that receives records and sends grants.
    Receiver,
}

#[derive(Debug)]
struct Shared {
    closure: OnceLock<PortClosure>,
    /// True while frames are buffered on the link's side because the queue is full.
    has_waiting: AtomicBool,
    /// True if the port found its queue full and must be woken.
    is_full: AtomicBool,
    /// Number of bytes received for the port and not taken by it.
    queued_bytes: AtomicUsize,
    owner: Waker,
    link: NetworkWaker,
    peer: String,
}

/// The reason of the disconnection, and the frames that had no room in the queue.
#[derive(Debug)]
struct PortClosure {
    gone: Disconnected,
    rest: Mutex<VecDeque<Frame>>,
}

impl PortClosure {
    fn rest(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a port held by a sender or receiver. When it is dropped, the link sends the queued
/// buffers, then removes the port.
#[derive(Debug)]
pub struct Port {
    out: Producer<SendBuffer>,
    into: Consumer<Frame>,
    shared: Arc<Shared>,
    _farewell: WakeOnDrop,
}

/// The link's end of a port.
#[derive(Debug)]
pub(crate) struct PortEnd {
    out: Consumer<SendBuffer>,
    into: Producer<Frame>,
    shared: Arc<Shared>,
    waiting: VecDeque<Frame>,
    memory: RetainedMemory,
    _farewell: WakeOnClose,
}

/// Memory kept alive by the buffered frames, since the buffer was last empty.
#[derive(Debug, Default)]
struct RetainedMemory {
    last_block: usize,
    held: usize,
    used: usize,
}

impl RetainedMemory {
    /// Accounts for a payload. Copies it if the buffered payloads keep far more memory alive than
    /// their own size: small frames of a slow edge must not keep whole blocks of a busy one.
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

/// Creates a port and the link's end of it. `owner` is woken when there is something for the port,
/// `link` when there is something for the link.
pub(crate) fn port(
    frames: usize,
    parcels: usize,
    peer: String,
    owner: Waker,
    link: NetworkWaker,
) -> (Port, PortEnd) {
    let (parcels_in, parcels_out) = ring(Capacity::clamped(parcels));
    let (frames_in, frames_out) = ring(Capacity::clamped(frames));
    let shared = Arc::new(Shared {
        closure: OnceLock::new(),
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
            _farewell: WakeOnDrop(shared.link.clone()),
            shared: Arc::clone(&shared),
        },
        PortEnd {
            out: parcels_out,
            into: frames_in,
            _farewell: WakeOnClose(shared.owner.clone()),
            shared,
            waiting: VecDeque::new(),
            memory: RetainedMemory::default(),
        },
    )
}

impl Port {
    /// Queues a buffer for the link, or returns it if the queue is full; the owner is then woken
    /// when there is room.
    pub(crate) fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        let refused = match self.out.push(parcel) {
            Ok(()) => {
                self.shared.link.notify();
                return Ok(());
            }
            // The link is gone, which `disconnected` reports; the buffer is dropped.
            Err(PushError::Gone(_)) => return Ok(()),
            Err(PushError::Full(parcel)) => parcel,
        };
        self.shared.is_full.store(true, Ordering::SeqCst);
        // Pairs with the fence in `PortEnd::wake_sender`: either that side sees the flag, or this
        // side sees the room.
        fence(Ordering::SeqCst);
        match self.out.push(refused) {
            Ok(()) => {
                self.shared.link.notify();
                Ok(())
            }
            Err(PushError::Gone(_)) => Ok(()),
            Err(PushError::Full(parcel)) => Err(parcel),
        }
    }

    /// Returns the next frame for this port.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let Some(frame) = self.into.pop() else {
            // After the end of the queue, the remaining frames are in `closure`.
            let ended = self.into.is_finished();
            let ending = self.shared.closure.get().filter(|_| ended)?;
            return ending.rest().pop_front();
        };
        self.shared
            .queued_bytes
            .fetch_sub(frame.wire_bytes(), Ordering::Relaxed);
        // Pairs with the fence in `PortEnd::forward`.
        fence(Ordering::SeqCst);
        if self.shared.has_waiting.load(Ordering::Relaxed) {
            self.shared.link.notify();
        }
        Some(frame)
    }

    /// Returns the number of bytes received and not taken.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Requests a wake-up when the link has released memory. The caller must then check once more
    /// for memory released meanwhile.
    pub(crate) fn wait_for_room(&self) {
        self.shared.is_full.store(true, Ordering::SeqCst);
        // Pairs with the fence in `PortEnd::wake_sender`: either that side sees the flag, or this
        // side sees the free memory.
        fence(Ordering::SeqCst);
    }

    /// Returns the reason of the disconnection, once the peer is gone and all its frames have been
    /// taken.
    pub fn disconnected(&mut self) -> Option<&Disconnected> {
        let ending = self.shared.closure.get()?;
        let is_over = self.into.is_finished() && ending.rest().is_empty();
        is_over.then_some(&ending.gone)
    }

    /// Returns the peer's name, for messages.
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }
}

impl PortEnd {
    /// Returns the next buffer that the port sends.
    pub(crate) fn next_parcel(&mut self) -> Option<SendBuffer> {
        self.out.pop()
    }

    /// Returns true if the port is dropped and all its buffers have been taken.
    pub(crate) fn is_over(&mut self) -> bool {
        self.out.is_finished()
    }

    /// Wakes the port's owner if it waits for room. Called when there may be room.
    pub(crate) fn wake_sender(&self) {
        fence(Ordering::SeqCst);
        if self.shared.is_full.load(Ordering::Relaxed) {
            self.shared.is_full.store(false, Ordering::SeqCst);
            self.shared.owner.wake();
        }
    }

    /// Returns the number of bytes that the port has not taken.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Queues a frame for the port, behind the buffered ones. Never fails: the caller has checked
    /// [`queued_bytes`](Self::queued_bytes).
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
            self.memory = RetainedMemory::default();
        }
        self.memory.admit(&mut frame.payload);
        self.waiting.push_back(frame);
        self.forward();
    }

    /// Moves buffered frames to the port's queue; returns true if any were moved.
    pub(crate) fn forward(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.shared.has_waiting.store(true, Ordering::SeqCst);
        // Pairs with the fence in `Port::receive`: either that side sees the flag, or this side
        // sees the room.
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

    /// Reports to the port that the peer is disconnected, after all received frames.
    pub(crate) fn end(mut self, gone: &Disconnected) {
        self.close(gone.clone());
    }

    fn close(&mut self, gone: Disconnected) {
        let rest = Mutex::new(std::mem::take(&mut self.waiting));
        let _ = self.shared.closure.set(PortClosure { gone, rest });
    }
}

impl Drop for PortEnd {
    fn drop(&mut self) {
        if self.shared.closure.get().is_none() {
            self.close(Disconnected::new(
                self.shared.peer.clone(),
                DisconnectReason::ClosedLocally,
            ));
        }
    }
}

/// Wakes a port's owner when the link's end is dropped. Declared after the queues.
#[derive(Debug)]
struct WakeOnClose(Waker);

impl Drop for WakeOnClose {
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
        let bell = NetworkWaker::new(Waker::none());
        port(4, 2, "worker 2".into(), Waker::none(), bell)
    }

    fn frame(payload: Payload) -> Frame {
        Frame {
            header: Header::new(Kind::Records, StreamId::new(1, 1)),
            payload,
        }
    }

    /// Returns the memory that the buffered frames keep alive.
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
        end.end(&Disconnected::new("worker 2", DisconnectReason::Closed));
        for _ in 0..10 {
            assert!(port.disconnected().is_none());
            assert!(port.receive().is_some());
        }
        assert!(matches!(
            port.disconnected().map(|gone| &gone.reason),
            Some(DisconnectReason::Closed)
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
        let bell = NetworkWaker::new(Waker::none());
        let (mut port, mut end) = port(4, 2, "worker 2".into(), owner, bell);
        let parcel = || SendBuffer::Bundle(Payload::EMPTY);
        while port.send(parcel()).is_ok() {}
        end.wake_sender();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        end.wake_sender();
        assert_eq!(woken.load(Ordering::SeqCst), 1, "it is woken once");
        assert!(end.next_parcel().is_some());
        assert!(port.send(parcel()).is_ok());
    }
}
