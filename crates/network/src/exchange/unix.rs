//! Unix sockets between the workers of one host: named by worker, restricted to one user, with
//! files as ancillary data.
//!
//! A socket has an abstract name, so a crash leaves nothing behind. A process can connect to it
//! exactly if it shares the network namespace of its owner, which is then on the same host. No
//! address, host name or boot id has to be compared.
//!
//! Every process of a network namespace can use abstract names, also one of another user. Both
//! sides therefore check that the other one runs as their own user, before any byte is sent.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use ardea_core::{Error, ErrorCode, Result};
use mio::net::{UnixListener, UnixStream};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::exchange::handshake::Identity;
use crate::exchange::ids::WorkerNumber;
use crate::exchange::polling::{Polled, Sockets};
use crate::exchange::transport::ByteStream;

/// The beginning of addresses that are names on this host.
const SCHEME: &str = "unix:";

/// Maximum number of received files that were not taken.
const MAX_FILES: usize = 4;

/// Returns the address at which a worker is reached from its own host. `port` is that of the
/// worker's address in the network, so two workers never have the same.
///
/// ```
/// use ardea_network::exchange::{WorkerNumber, host_address};
///
/// let address = host_address("harbour", WorkerNumber(2), 7, 7400);
/// assert!(address.starts_with("unix:ardea-exchange-") && address.ends_with("-2-7-7400"));
/// ```
pub fn host_address(cluster: &str, worker: WorkerNumber, incarnation: u64, port: u16) -> String {
    let cluster = xxh3_64(cluster.as_bytes());
    let worker = worker.0;
    format!("{SCHEME}ardea-exchange-{cluster:016x}-{worker}-{incarnation}-{port}")
}

impl Identity {
    /// Returns the address at which this worker is reached from its own host.
    pub fn host_address(&self, port: u16) -> String {
        host_address(&self.cluster, self.worker, self.incarnation, port)
    }
}

/// Returns true if an address is a name on this host, and not one of the network.
pub(crate) fn is_host_address(address: &str) -> bool {
    address.starts_with(SCHEME)
}

fn abstract_name(address: &str) -> io::Result<SocketAddr> {
    let name = address.strip_prefix(SCHEME).unwrap_or(address);
    SocketAddr::from_abstract_name(name)
}

/// Connects to the worker of this address.
///
/// # Errors
/// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if no process of this network namespace
/// has the name; [`PermissionDenied`](io::ErrorKind::PermissionDenied) if that process runs as
/// another user.
pub(crate) fn connect(address: &str, sockets: &Sockets) -> io::Result<UnixSocket> {
    let stream = UnixStream::connect_addr(&abstract_name(address)?)?;
    check_user(&stream)?;
    Ok(UnixSocket::new(sockets.add(stream)?))
}

/// Fails if the process at the other end runs as another user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (theirs, ours) = (socket_peercred(stream)?.uid, rustix::process::geteuid());
    if theirs == ours {
        return Ok(());
    }
    let what = format!(
        "it runs as user {}, and this worker as user {}",
        theirs.as_raw(),
        ours.as_raw()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct UnixSocketListener {
    listener: Polled<UnixListener>,
    sockets: Sockets,
    address: String,
}

impl UnixSocketListener {
    /// Listens at this address.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if another process has the name.
    pub(crate) fn bind(address: &str, sockets: &Sockets) -> Result<Self> {
        let listener = abstract_name(address)
            .and_then(|name| UnixListener::bind_addr(&name))
            .and_then(|listener| sockets.add(listener));
        let listener = listener.map_err(|error| {
            Error::new(ErrorCode::Network, format!("cannot listen at {address}"))
                .because(error)
                .hint("end the process that listens there, or set worker.transport=tcp")
        })?;
        Ok(UnixSocketListener {
            listener,
            sockets: sockets.clone(),
            address: address.to_string(),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the next connection of a process of the same user, with a name for messages; `None`
    /// if there is none.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if this process can open no more sockets.
    pub(crate) fn accept(&mut self) -> Result<Option<(UnixSocket, String)>> {
        loop {
            let accepted = self.listener.try_read(|listener| listener.accept());
            let opened = match accepted {
                Ok((stream, _)) if check_user(&stream).is_err() => continue,
                Ok((stream, _)) => {
                    let pid = socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_pid());
                    let stream = self.sockets.add(stream);
                    stream.map(|stream| (stream, format!("process {pid} of this host")))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let (stream, peer) = opened.map_err(|error| {
                let what = format!("cannot take a connection at {}", self.address);
                Error::new(ErrorCode::Network, what)
                    .because(error)
                    .hint("raise the limit of open files for this process")
            })?;
            return Ok(Some((UnixSocket::new(stream), peer)));
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    stream: Polled<UnixStream>,
    /// Received files that were not taken.
    files: VecDeque<OwnedFd>,
    /// Files that go with the next bytes.
    attached: VecDeque<OwnedFd>,
}

impl UnixSocket {
    fn new(stream: Polled<UnixStream>) -> Self {
        UnixSocket {
            stream,
            files: VecDeque::new(),
            attached: VecDeque::new(),
        }
    }

    /// Sends a file with the next bytes, so it arrives before the bytes that follow them.
    pub(crate) fn attach(&mut self, file: OwnedFd) {
        self.attached.push_back(file);
    }

    /// Returns the first received file that was not taken.
    pub(crate) fn take_file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }
}

/// Receives bytes, and up to one file.
fn receive(
    stream: &UnixStream,
    space: &mut [u8],
    files: &mut VecDeque<OwnedFd>,
) -> io::Result<(usize, bool)> {
    let mut ancillary_space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut ancillary_space);
    let received = retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(space)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        recvmsg(stream.as_fd(), &mut pieces, &mut ancillary, flags)
    })?;
    let mut has_files = false;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            has_files = true;
            files.extend(received);
        }
    }
    Ok((received.bytes, has_files))
}

fn send(stream: &UnixStream, pieces: &[IoSlice<'_>], file: Option<&OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = retry_on_intr(|| sendmsg(stream.as_fd(), pieces, &mut ancillary, flags))?;
    Ok(sent)
}

impl ByteStream for UnixSocket {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let wanted = space.len();
        let files = &mut self.files;
        let (bytes, has_files) = self
            .stream
            .try_read(|stream| receive(stream, space, files))?;
        if self.files.len() > MAX_FILES {
            let what = "it sent files that nothing asked for";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // A read ends at bytes with files, even if more bytes have arrived.
        if bytes < wanted && !has_files {
            self.stream.note_short_read();
        }
        Ok(bytes)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let file = self.attached.front();
        let sent = self.stream.try_write(|stream| send(stream, pieces, file))?;
        self.attached.pop_front();
        Ok(sent)
    }

    fn is_connected(&self) -> bool {
        true
    }
}
