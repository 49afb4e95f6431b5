//! Bytes and files over a Unix stream socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The maximum number of received files that were not used; further ones are closed.
const MAX_FILES: usize = 2;

/// Receives bytes, and appends a file that came with them.
pub(crate) fn receive(
    socket: &UnixStream,
    space: &mut [u8],
    files: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut ancillary_space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut ancillary_space);
    let mut pieces = [IoSliceMut::new(space)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket.as_fd(), &mut pieces, &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    files.truncate(MAX_FILES);
    Ok(received.bytes)
}

/// Sends bytes in two pieces, and a file with the first of them. Returns the number of bytes sent.
pub(crate) fn send(
    socket: &UnixStream,
    (first, second): (&[u8], &[u8]),
    file: Option<&OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL;
    let pieces = [IoSlice::new(first), IoSlice::new(second)];
    Ok(sendmsg(socket.as_fd(), &pieces, &mut ancillary, flags)?)
}
