//! A source that receives records from many TCP clients.

use std::fmt;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{
    Error, ErrorCode, Instance, InstanceContext, Isolation, Lane, Ordinal, Outbox, Processor,
    Progress, Result, Source, SourceControl, Unbounded,
};
use rustix::event::{PollFd, PollFlags};

use super::dial::keep_alive;
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::fd_poll::{TURN, not_now, wait_any};
use crate::format::{Decode, Lines};
use crate::record_reader::{Intake, Reading, reading_options};

/// The initial read size of a client, which grows for longer lines.
const CLIENT_READ_SIZE: usize = 16 << 10;

/// The default maximum line length of a client. It is smaller than the default for files, since
/// each client has its own buffer.
const CLIENT_MAX_LINE: usize = 1 << 20;

/// The pause after the system has refused to accept a client, for example without free file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Returns a source of lines of text from all clients that connect to `address`: a port (`"9000"`)
/// on the loopback interface, or an address with a port. Port 0 selects a free port; see
/// [`ListenSource::address`].
pub fn listen(address: impl Into<String>) -> ListenSource<String, Lines> {
    let reading = Reading {
        max_line: CLIENT_MAX_LINE,
        ..Reading::new(Lines)
    };
    ListenSource {
        server: Server {
            address: address.into(),
            exposed: false,
            max_clients: 256,
            idle_timeout: None,
            bound: BoundAddress::default(),
        },
        reading,
        record: PhantomData,
    }
}

/// A source that listens on a port and receives records from every client.
///
/// * Clients are not authenticated, so the port is bound to the loopback interface; see
///   [`expose`](Self::expose).
/// * The records of each client keep their order. A client that closes in an orderly way may omit
///   the last newline; a partial line of a broken connection is a bad record. A client can fail the
///   job only by bad records, if they fail it, or by a connection that breaks within a line, if
///   [`on_damage`](Self::on_damage) is `Fail`.
/// * If the job cannot keep up, the source stops reading, and the clients block in their sends.
/// * Lines of more than 1 MiB, or of [`max_line`](Self::max_line), are bad records. The maximum
///   line length times [`max_clients`](Self::max_clients) bounds the memory.
/// * Keepalive probes are sent to a client that is silent for more than a minute.
/// * A job with state cannot use this source, since the data cannot be read again.
#[derive(Debug)]
pub struct ListenSource<T, D> {
    server: Server,
    reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

/// The settings of the server.
#[derive(Clone, Debug)]
struct Server {
    address: String,
    exposed: bool,
    max_clients: usize,
    idle_timeout: Option<Duration>,
    bound: BoundAddress,
}

impl<T: Send + 'static, D: Decode<T>> ListenSource<T, D> {
    reading_options!();

    /// Sets the format.
    pub fn decode<U: Send + 'static, E: Decode<U>>(self, decoder: E) -> ListenSource<U, E> {
        let ListenSource {
            server, reading, ..
        } = self;
        ListenSource {
            server,
            reading: reading.decode(decoder),
            record: PhantomData,
        }
    }

    /// Allows an address that other hosts can reach. Clients are not authenticated.
    pub fn expose(mut self) -> Self {
        self.server.exposed = true;
        self
    }

    /// Sets the maximum number of concurrent clients, 256 by default. Further clients wait until a
    /// client disconnects.
    pub fn max_clients(mut self, clients: usize) -> Self {
        self.server.max_clients = clients.max(1);
        self
    }

    /// Closes the connection of a client that has sent nothing for `timeout`. By default there is
    /// no timeout.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.server.idle_timeout = Some(timeout);
        self
    }

    /// Returns a handle to the bound address, which is set once the job runs.
    pub fn address(&self) -> BoundAddress {
        self.server.bound.clone()
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let ListenSource {
            server, reading, ..
        } = self;
        let name = format!("listen {}", server.address);
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let listener = if instance.owns(0) {
                Some(server.bind()?)
            } else {
                None
            };
            Ok(Box::new(ListenP::<T, D>::new(
                server.clone(),
                listener,
                reading.clone(),
            )))
        };
        Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<ListenSource<T, D>> for Source<T, Unbounded> {
    fn from(source: ListenSource<T, D>) -> Self {
        source.build()
    }
}

/// The address that a [`ListenSource`] is bound to, set once its job runs.
#[derive(Clone, Default)]
pub struct BoundAddress(Arc<(Mutex<Option<SocketAddr>>, Condvar)>);

impl BoundAddress {
    /// Returns the address if the source is bound; otherwise `None`.
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address; waits at most `timeout` until the source is bound, and then returns
    /// `None`.
    pub fn wait(&self, timeout: Duration) -> Option<SocketAddr> {
        let address = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .1
            .wait_timeout_while(address, timeout, |address| address.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self, address: Option<SocketAddr>) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
        self.0.1.notify_all();
    }
}

impl fmt::Debug for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundAddress({:?})", self.get())
    }
}

impl Server {
    fn resolve(&self) -> Result<SocketAddr> {
        let port = self
            .address
            .strip_prefix(':')
            .unwrap_or(&self.address)
            .parse::<u16>();
        let name = self
            .address
            .strip_prefix("localhost:")
            .map(str::parse::<u16>);
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let invalid = |what: String| Error::new(ErrorCode::InvalidConfig, what);
        let address = match (port, name) {
            (Ok(port), _) | (_, Some(Ok(port))) => loopback(port),
            _ => self.address.parse::<SocketAddr>().map_err(|error| {
                invalid(format!("cannot listen on {:?}", self.address))
                    .because(error)
                    .hint(
                        "write a port, such as \"9000\", or an address, such as \"127.0.0.1:9000\"",
                    )
            })?,
        };
        if !address.ip().is_loopback() && !self.exposed {
            return Err(invalid(format!(
                "listening on {address} would let other hosts send data without authentication"
            ))
            .hint("listen on 127.0.0.1, or call `expose` to allow it"));
        }
        Ok(address)
    }

    fn bind(&self) -> Result<TcpListener> {
        let address = self.resolve()?;
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => format!(
                    "port {port} is taken: end the program that has it (`ss -ltnp 'sport = :{port}'` names it), or \
                     choose another port, 0 for any",
                    port = address.port()
                ),
                ErrorKind::PermissionDenied => "choose a port above 1023".to_string(),
                _ => "check that the address is one of this host's".to_string(),
            };
            Error::new(ErrorCode::Network, format!("cannot listen on {address}"))
                .because(error)
                .hint(hint)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        self.bound.set(Some(listener.local_addr().map_err(failed)?));
        Ok(listener)
    }
}

/// The connection of a client.
struct Client<T, D> {
    stream: TcpStream,
    intake: Intake<T, D>,
    state: ClientState,
    last_read_at: Duration,
    on_damage: Option<OnDamage>,
}

enum ClientState {
    /// The client may send more.
    Open,
    /// The client has closed in an orderly way; its last records are still to be emitted.
    Closed,
    /// The connection is broken or timed out; its complete lines are still to be emitted.
    Broken(String),
    /// The connection is broken; the job fails if a record is incomplete.
    Damaged(Damage),
    /// All records have been emitted.
    Gone,
}

impl<T: Send + 'static, D: Decode<T>> Client<T, D> {
    fn read(&mut self, now: Duration) {
        match self.intake.fill(&mut self.stream) {
            Ok(0) => {
                self.intake.end();
                self.state = ClientState::Closed;
            }
            Ok(_) => self.last_read_at = now,
            Err(error) if not_now(&error) => {}
            Err(error) => {
                let told = format!("the connection broke: {error}");
                self.state = self.broken(Damage::transient(told));
            }
        }
    }

    fn broken(&self, damage: Damage) -> ClientState {
        match self.on_damage {
            Some(OnDamage::Fail) => ClientState::Damaged(damage),
            Some(OnDamage::Keep) | None => ClientState::Broken(damage.reason),
        }
    }

    /// Emits the complete records; returns false if the lane is full.
    fn deliver(&mut self, lane: &mut Lane<'_, T>) -> Result<bool> {
        if !self.intake.deliver(lane)? {
            return Ok(false);
        }
        if let Some(damage) = self.intake.bad_header() {
            self.state = self.broken(damage.clone());
        }
        match &self.state {
            ClientState::Open => return Ok(true),
            ClientState::Closed | ClientState::Gone => {}
            ClientState::Broken(reason) => self.intake.report_partial(reason)?,
            ClientState::Damaged(damage) if self.intake.has_partial() => {
                self.intake.damage(damage)?;
            }
            ClientState::Damaged(_) => {}
        }
        self.state = ClientState::Gone;
        Ok(true)
    }
}

/// The processor that serves all clients on one thread.
struct ListenP<T, D> {
    server: Server,
    listener: Option<TcpListener>,
    reading: Reading<D>,
    clients: Vec<Client<T, D>>,
    /// The time before which no client is accepted.
    accept_from: Duration,
    context: Option<InstanceContext>,
}

impl<T: Send + 'static, D: Decode<T>> ListenP<T, D> {
    fn new(server: Server, listener: Option<TcpListener>, reading: Reading<D>) -> Self {
        ListenP {
            server,
            listener,
            reading,
            clients: Vec::new(),
            accept_from: Duration::ZERO,
            context: None,
        }
    }

    /// Emits the records of the clients; returns false if complete records are left.
    fn deliver(&mut self, lane: &mut Lane<'_, T>) -> Result<bool> {
        let mut all = true;
        for client in &mut self.clients {
            all &= client.deliver(lane)?;
        }
        self.clients
            .retain(|client| !matches!(client.state, ClientState::Gone));
        if !all {
            // Rotates the clients, so that those left out come first next time.
            self.clients.rotate_left(1);
        }
        Ok(all)
    }

    /// Waits one turn, reads once from each client that has sent data, and accepts new clients.
    fn read(&mut self, context: &InstanceContext) -> Result<bool> {
        let now = context.clock.now();
        let may_accept = self.clients.len() < self.server.max_clients && now >= self.accept_from;
        let listener = self.listener.as_ref().filter(|_| may_accept);
        let mut fds: Vec<PollFd<'_>> = self
            .clients
            .iter()
            .map(|client| PollFd::new(&client.stream, PollFlags::IN))
            .collect();
        fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let failed = |error| {
            Error::new(ErrorCode::Network, "cannot wait for clients")
                .because(error)
                .hint("raise the limit of open files (ulimit -n), or lower `max_clients`")
        };
        wait_any(&mut fds, TURN).map_err(failed)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let now = context.clock.now();
        for (client, _) in self
            .clients
            .iter_mut()
            .zip(&ready)
            .filter(|(_, ready)| **ready)
        {
            client.read(now);
        }
        if may_accept && ready.last().is_some_and(|ready| *ready) {
            self.accept(context, now);
        }
        self.drop_idle(now);
        Ok(ready.contains(&true))
    }

    fn accept(&mut self, context: &InstanceContext, now: Duration) {
        let Some(listener) = &self.listener else {
            return;
        };
        while self.clients.len() < self.server.max_clients {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if not_now(&error) => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.accept_from = now + ACCEPT_PAUSE;
                    return;
                }
            };
            // This fails for a client that has already disconnected; no data is lost.
            if stream
                .set_nonblocking(true)
                .and_then(|()| keep_alive(&stream))
                .is_err()
            {
                continue;
            }
            let mut intake = Intake::new(&self.reading, CLIENT_READ_SIZE);
            intake.attach(context);
            intake.begin(peer.to_string());
            self.clients.push(Client {
                stream,
                intake,
                state: ClientState::Open,
                last_read_at: now,
                on_damage: self.reading.on_damage,
            });
        }
    }

    fn stop_listening(&mut self) {
        if self.listener.take().is_some() {
            self.server.bound.set(None);
        }
    }

    fn drop_idle(&mut self, now: Duration) {
        let Some(timeout) = self.server.idle_timeout else {
            return;
        };
        for client in &mut self.clients {
            let silent = now.saturating_sub(client.last_read_at) >= timeout;
            if silent && matches!(client.state, ClientState::Open) {
                let reason =
                    format!("the client was silent for {timeout:?} in the middle of this line");
                client.state = ClientState::Broken(reason);
            }
        }
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for ListenP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = Some(context.clone());
        Ok(())
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        Some(
            "data sent by its clients, which can't be requested again (store it in a file or a queue such as Kafka, and read that)",
        )
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let Some(context) = self.context.clone() else {
            return Ok(Progress::DONE);
        };
        if context.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if self.listener.is_some() && context.signals.is_draining() {
            self.stop_listening();
            for client in &mut self.clients {
                if matches!(client.state, ClientState::Open) {
                    let reason = "the job was drained in the middle of this line";
                    client.state = ClientState::Broken(reason.to_string());
                }
            }
        }
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        let before = lane.room();
        let emptied = self.deliver(&mut lane)?;
        if self.listener.is_none() {
            return Ok(Progress::done_if(emptied));
        }
        if !emptied || lane.room() < before {
            return Ok(Progress::MADE);
        }
        let heard = self.read(&context)?;
        Ok(if heard {
            Progress::MADE
        } else {
            Progress::NONE
        })
    }

    fn close(&mut self) {
        self.clients.clear();
        self.stop_listening();
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: Send + 'static, D: Decode<T>> SourceControl for ListenP<T, D> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // Data already read cannot be read again.
        self.complete(outbox)
    }
}

#[cfg(test)]
mod tests;
