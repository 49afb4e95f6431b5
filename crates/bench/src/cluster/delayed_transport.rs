//! A transport that adds a delay to each frame from another host, as a longer network would.
//!
//! The delay is added where the frame is received. Frames stay in order, and the throughput of the
//! connection is not limited. Frames within a host are not delayed.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ardea::cluster::Modules;
use ardea_core::Result;
use ardea_network::exchange::{
    AddressScope, Connection, Disconnected, Frame, Listener, NetworkWaker, RingCounts, SendBuffer,
    Transport,
};
use ardea_worker::Transports;

use crate::usage::monotonic_nanos;

/// The time at which no frame is due.
const NEVER: u64 = u64::MAX;

/// Returns modules whose transports add this delay.
pub(crate) fn delayed_modules(delay: Duration) -> Modules {
    let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let mut modules = Modules::builtin();
    for name in ["auto", "tcp"] {
        modules = modules.transport(name, move |setup| {
            Ok(Box::new(DelayedTransport {
                inner: Transports::builtin().make(name, setup)?,
                shared: Arc::new(Shared {
                    own: OnceLock::new(),
                    delay,
                    due: AtomicU64::new(NEVER),
                }),
            }))
        });
    }
    modules
}

/// The state of a transport that its connections use.
struct Shared {
    /// The address of this worker in the network.
    own: OnceLock<IpAddr>,
    delay: u64,
    /// The time at which the first delayed frame is due.
    due: AtomicU64,
}

impl Shared {
    /// Returns true if an address is that of another host.
    fn is_far(&self, address: &str) -> bool {
        let ip = address.parse::<SocketAddr>().map(|address| address.ip());
        ip.is_ok_and(|ip| self.own.get().is_some_and(|own| *own != ip))
    }

    fn delayed(self: &Arc<Self>, inner: Box<dyn Connection>) -> Box<dyn Connection> {
        if !self.is_far(inner.peer()) {
            return inner;
        }
        Box::new(DelayedConnection {
            inner,
            shared: Arc::clone(self),
            arrived: VecDeque::new(),
        })
    }
}

struct DelayedTransport {
    inner: Box<dyn Transport>,
    shared: Arc<Shared>,
}

impl Transport for DelayedTransport {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn scope(&self) -> AddressScope {
        self.inner.scope()
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        Ok(self.shared.delayed(self.inner.connect(address)?))
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let inner = self.inner.listen(address)?;
        if let Ok(own) = inner.address().parse::<SocketAddr>() {
            // Further listeners have the same address.
            let _ = self.shared.own.set(own.ip());
        }
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(DelayedListener { inner, shared }))
    }

    fn waker(&self) -> NetworkWaker {
        self.inner.waker()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        // All connections are read after each wait, and set the next time.
        let due = self.shared.due.swap(NEVER, Ordering::Relaxed);
        let left = Duration::from_nanos(due.saturating_sub(monotonic_nanos()));
        self.inner.wait(timeout.min(left))
    }
}

struct DelayedListener {
    inner: Box<dyn Listener>,
    shared: Arc<Shared>,
}

impl Listener for DelayedListener {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let accepted = self.inner.accept()?;
        Ok(accepted.map(|connection| self.shared.delayed(connection)))
    }
}

struct DelayedConnection {
    inner: Box<dyn Connection>,
    shared: Arc<Shared>,
    /// Received frames, each with the time at which it is due.
    arrived: VecDeque<(u64, Frame)>,
}

impl Connection for DelayedConnection {
    fn peer(&self) -> &str {
        self.inner.peer()
    }

    fn send(&mut self, parcel: SendBuffer) -> std::result::Result<(), SendBuffer> {
        self.inner.send(parcel)
    }

    fn flush(&mut self) -> std::result::Result<usize, Disconnected> {
        self.inner.flush()
    }

    fn receive(&mut self) -> std::result::Result<Option<Frame>, Disconnected> {
        let now = monotonic_nanos();
        loop {
            match self.inner.receive() {
                Ok(Some(frame)) => self.arrived.push_back((now + self.shared.delay, frame)),
                Ok(None) => break,
                Err(gone) if self.arrived.is_empty() => return Err(gone),
                // The frames before the end come first.
                Err(_) => break,
            }
        }
        match self.arrived.front() {
            Some((due, _)) if *due <= now => Ok(self.arrived.pop_front().map(|it| it.1)),
            Some((due, _)) => {
                self.shared.due.fetch_min(*due, Ordering::Relaxed);
                Ok(None)
            }
            None => Ok(None),
        }
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
    use super::*;

    #[test]
    fn only_other_hosts_are_far() {
        let shared = Shared {
            own: OnceLock::from("10.100.0.1".parse::<IpAddr>().unwrap()),
            delay: 0,
            due: AtomicU64::new(NEVER),
        };
        assert!(shared.is_far("10.100.0.2:4000"));
        assert!(!shared.is_far("10.100.0.1:4000"));
        assert!(!shared.is_far("/tmp/worker.socket"));
    }
}
