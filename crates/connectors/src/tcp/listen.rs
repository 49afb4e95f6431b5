//! Takes records from many TCP clients.

use std::fmt;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{
    Error, ErrorCode, Instance, InstanceContext, Isolation, Lane, Ordinal, Outbox, Processor,
    Progress, Result, Source, Unbounded,
};
use rustix::event::{PollFd, PollFlags};

use super::dial::keep_alive;
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::format::{Decode, Lines};
use crate::intake::{Intake, Reading, reading_options};
use crate::ready::{TURN, not_now, wait_any};

/// What is read from a client at a time, until its lines are longer.
const CLIENT_READ_SIZE: usize = 16 << 10;

/// The longest line of a client unless the source says otherwise: smaller than that of files, since each client has a
/// buffer of its own.
const CLIENT_MAX_LINE: usize = 1 << 20;

/// How long no client is accepted after the system refused one, for want of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Lines of text from all clients that connect to `address`: a port (`"9000"`), which is bound on the loopback
/// interface, or an address with a port. Port 0 means any free one; ask [`ListenSource::address`] which it is.
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

/// A source that listens on a port and takes records from every client.
///
/// * Anyone who can reach the port can send, so it is bound to the loopback interface; see [`expose`](Self::expose).
/// * Each client's records keep their order. A client that closes in good order may leave out the last newline; half a
///   line of one that breaks off is a bad record. No client can fail the job, unless bad records do, or
///   [`on_damage`](Self::on_damage) is set to `Fail`: then one that breaks off within a line does.
/// * When the job can't keep up, nothing is read, and the clients' sends wait.
/// * Lines of more than 1 MiB are bad records unless [`max_line`](Self::max_line) says otherwise. Memory is bounded by
///   that, times [`max_clients`](Self::max_clients).
/// * A client that is silent for more than a minute is asked by the system whether it is still there.
/// * What has been read can't be read again, so a job that keeps its state can't have it.
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

    /// Allows an address that other hosts can reach. Nothing is asked of who connects.
    pub fn expose(mut self) -> Self {
        self.server.exposed = true;
        self
    }

    /// Sets how many clients are served at a time, 256 by default; further ones wait until one leaves.
    pub fn max_clients(mut self, clients: usize) -> Self {
        self.server.max_clients = clients.max(1);
        self
    }

    /// Closes the connection of a client that has sent nothing for that long. Never by default.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.server.idle_timeout = Some(timeout);
        self
    }

    /// Tells the address that the source is bound to, once its job runs.
    pub fn address(&self) -> BoundAddress {
        self.server.bound.clone()
    }

    /// The source, for a pipeline.
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

/// The address that a [`ListenSource`] is bound to, known once its job runs.
#[derive(Clone, Default)]
pub struct BoundAddress(Arc<(Mutex<Option<SocketAddr>>, Condvar)>);

impl BoundAddress {
    /// The address, if the source is bound by now.
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address, waited for at most `timeout`.
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
                "listening on {address} would let other hosts send, and it is not asked who they are"
            ))
            .hint("listen on 127.0.0.1, or say `expose` if that is what you want"));
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

/// One client's connection.
struct Client<T, D> {
    stream: TcpStream,
    intake: Intake<T, D>,
    state: ClientState,
    heard_at: Duration,
    on_damage: Option<OnDamage>,
}

enum ClientState {
    /// It may send more.
    Open,
    /// It closed in good order; its last records are still to be delivered.
    Closed,
    /// It broke off, or is given up; its whole lines are still to be delivered.
    Broken(String),
    /// As `Broken`, where that fails the job if it comes within a record.
    Damaged(Damage),
    /// All is delivered.
    Gone,
}

impl<T: Send + 'static, D: Decode<T>> Client<T, D> {
    fn read(&mut self, now: Duration) {
        match self.intake.fill(&mut self.stream) {
            Ok(0) => {
                self.intake.end();
                self.state = ClientState::Closed;
            }
            Ok(_) => self.heard_at = now,
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
            Some(OnDamage::Keep) | None => ClientState::Broken(damage.told),
        }
    }

    /// Delivers what is there; true if that is all for now.
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
            ClientState::Broken(reason) => self.intake.break_off(reason)?,
            ClientState::Damaged(damage) if self.intake.has_partial() => {
                self.intake.damage(damage)?;
            }
            ClientState::Damaged(_) => {}
        }
        self.state = ClientState::Gone;
        Ok(true)
    }
}

/// Serves all clients on one thread.
struct ListenP<T, D> {
    server: Server,
    listener: Option<TcpListener>,
    reading: Reading<D>,
    clients: Vec<Client<T, D>>,
    /// No client is accepted before this.
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

    /// Delivers what the clients have sent; true if nothing whole is left of any.
    fn deliver(&mut self, lane: &mut Lane<'_, T>) -> Result<bool> {
        let mut all = true;
        for client in &mut self.clients {
            all &= client.deliver(lane)?;
        }
        self.clients
            .retain(|client| !matches!(client.state, ClientState::Gone));
        if !all {
            // Who was left out comes first next time.
            self.clients.rotate_left(1);
        }
        Ok(all)
    }

    /// Waits a turn for the clients, reads once from each that has sent, and accepts new ones.
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
            // A client that is gone already fails here; there is nothing of it to lose.
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
                heard_at: now,
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
            let silent = now.saturating_sub(client.heard_at) >= timeout;
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

    fn forgets(&self) -> Option<&'static str> {
        Some(
            "what its clients have sent, who can't be asked for it again (have a file or a queue such as Kafka keep it, and read that)",
        )
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // What has been read and not delivered can't be put back.
        self.complete(outbox)
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
}

#[cfg(test)]
mod tests;
