//! A custom transport: containers of one machine connect over Unix sockets instead of TCP.
//!
//! A socket has an abstract name with the worker's port, without a file: nothing is left behind
//! after a crash. Framing, flow control and authentication are the same for every transport.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as Name;
use std::time::Duration;

use ardea::core::{Error, ErrorCode, Result};
use ardea_network::exchange::*;
use mio::net::{UnixListener, UnixStream};

/// The transport; add it with
/// `Modules::builtin().transport("unix", |_| Ok(Box::new(UnixSockets(Poller::new()?))))`.
#[derive(Debug)]
pub struct UnixSockets(pub Poller);

impl Transport for UnixSockets {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let to = name(parse(address)?.port());
        let stream = to.and_then(|to| UnixStream::connect_addr(&to));
        Ok(connection(stream, address, self.0.sockets()))
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let at = parse(address)?;
        let ports = match at.port() {
            0 => 1..=u16::MAX,
            port => port..=port,
        };
        let failed = |error| failed(&format!("listen at {address}"), error);
        for port in ports {
            let bound = name(port).and_then(|name| UnixListener::bind_addr(&name));
            match bound.and_then(|listener| self.0.sockets().add(listener)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                listener => {
                    let address = SocketAddr::new(at.ip(), port).to_string();
                    let (listener, sockets) = (listener.map_err(failed)?, self.0.sockets().clone());
                    return Ok(Box::new(Listening(listener, sockets, address)));
                }
            }
        }
        Err(failed(ErrorKind::AddrInUse.into()).hint("choose another port, or 0 for any"))
    }

    fn waker(&self) -> NetworkWaker {
        self.0.doorbell()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.0.wait(timeout)
    }
}

/// A listening socket, the poller for its accepted connections, and its address.
struct Listening(Polled<UnixListener>, Sockets, String);

impl Listener for Listening {
    fn address(&self) -> &str {
        &self.2
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        match self.0.try_read(|listener| listener.accept()) {
            Ok((stream, _)) => Ok(Some(connection(Ok(stream), "a Unix socket", &self.1))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(failed("take a connection", error)),
        }
    }
}

/// Creates a connection over a stream. A failed stream returns its error on first use.
fn connection(stream: io::Result<UnixStream>, peer: &str, at: &Sockets) -> Box<dyn Connection> {
    let stream = stream.and_then(|stream| at.add(stream));
    let (peer, config) = (peer.to_string(), FramedConfig::default());
    Box::new(Framed::new(stream, peer, config, MAX_HELLO_BYTES))
}

fn name(port: u16) -> io::Result<Name> {
    Name::from_abstract_name(format!("ardea-worker-{port}"))
}

fn parse(address: &str) -> Result<SocketAddr> {
    let what = |_| Error::new(ErrorCode::InvalidConfig, format!("no address: {address:?}"));
    address.parse().map_err(what)
}

fn failed(what: &str, error: io::Error) -> Error {
    let what = format!("cannot {what} over Unix sockets");
    Error::new(ErrorCode::Network, what).because(error)
}
