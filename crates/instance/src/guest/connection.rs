//! The connection of an instance to its host.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Waker;

use super::GuestError;
use crate::fd_socket;
use crate::protocol::{FrameBuffer, FrameHead, FrameType, InstanceFrame, MAX_FRAME_BYTES};
use crate::rings::PayloadRing;

/// The connection to the host, with blocking reads and writes.
pub(super) struct HostConnection {
    socket: UnixStream,
    /// The socket for frames, each of which is written as a whole.
    sending: Arc<Mutex<UnixStream>>,
    buffer: FrameBuffer,
    /// Received files that were not used.
    files: VecDeque<OwnedFd>,
    rings: PayloadRing,
    /// The space of a read.
    bytes: Vec<u8>,
}

impl HostConnection {
    /// Creates the connection over a socket.
    ///
    /// # Errors
    /// If the process has no more file descriptors.
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(HostConnection {
            sending: Arc::new(Mutex::new(socket.try_clone()?)),
            socket,
            buffer: FrameBuffer::default(),
            files: VecDeque::new(),
            rings: PayloadRing::default(),
            bytes: vec![0; 1 << 16],
        })
    }

    /// Returns a waker that asks the host for the next request to a spout.
    pub(super) fn waker(&self) -> Waker {
        let sending = Arc::clone(&self.sending);
        Waker::new(move || {
            let bytes = InstanceFrame::empty(FrameType::Wake, 0).to_bytes();
            // A host that is gone needs no request.
            let _ = lock(&sending).write_all(&bytes);
        })
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// A payload that is too large for a frame, or if the host is gone.
    pub(super) fn send(&mut self, frame: &InstanceFrame) -> Result<(), GuestError> {
        let (name, length) = (frame.head.kind.as_str(), frame.payload.len());
        if length > MAX_FRAME_BYTES {
            return Err(GuestError::failed(format!(
                "a {name} of {length} bytes exceeds {MAX_FRAME_BYTES} bytes: a result, a tuple or an entry of the state is too large"
            )));
        }
        let bytes = self.rings.send(frame);
        Ok(lock(&self.sending).write_all(&bytes)?)
    }

    /// Offers a ring for the payloads of the host. Without memory for it they come over the socket.
    pub(super) fn offer_ring(&mut self) -> io::Result<()> {
        let Ok((description, file)) = self.rings.offer() else {
            return Ok(());
        };
        let head = FrameHead::new(FrameType::Ring, 0);
        let bytes = InstanceFrame::new(head, description).to_bytes();
        let mut socket = lock(&self.sending);
        let sent = fd_socket::send(&socket, (&bytes, &[]), Some(&file))?;
        socket.write_all(&bytes[sent..])
    }

    /// Returns the next frame; `None` if the host is gone.
    pub(super) fn next_frame(&mut self) -> Result<Option<InstanceFrame>, GuestError> {
        loop {
            match self.buffer.take()? {
                Some(frame) if frame.head.kind == FrameType::Ring => {
                    self.rings.accept(&frame.payload, self.files.pop_front())?;
                    continue;
                }
                Some(frame) => return Ok(Some(self.rings.receive(frame)?)),
                None => {}
            }
            match fd_socket::receive(&self.socket, &mut self.bytes, &mut self.files) {
                Ok(0) => return Ok(None),
                Ok(read) => self.buffer.push(&self.bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn lock(socket: &Mutex<UnixStream>) -> MutexGuard<'_, UnixStream> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}
