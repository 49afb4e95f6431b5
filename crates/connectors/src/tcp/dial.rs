//! Connection attempts in short non-blocking steps, with backoff after failures.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::fd_poll::{TURN, writable};

/// The intervals and the number of connection attempts.
///
/// The wait before an attempt doubles from `first` to `longest`; a successful connection resets the
/// wait to `first`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The number of consecutive failures after which the job fails.
    pub attempts: u32,
}

impl Default for Backoff {
    /// Returns waits from 100 ms to 10 s, without a limit of attempts.
    fn default() -> Self {
        Backoff {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(10),
            attempts: u32::MAX,
        }
    }
}

/// The timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a dialer.
enum State {
    /// Waiting for the next attempt.
    Resting { until: Duration },
    /// Waiting for one of the peer's addresses to answer.
    Connecting {
        socket: Socket,
        deadline: Duration,
        others: VecDeque<SocketAddr>,
    },
}

/// A dialer that connects to one peer, repeatedly if requested.
pub(super) struct Dialer {
    address: String,
    backoff: Option<Backoff>,
    state: State,
    failures: u32,
    wait: Duration,
    clock: Clock,
}

impl Dialer {
    pub fn new(address: String, backoff: Option<Backoff>) -> Self {
        let wait = backoff.map_or(Duration::ZERO, |backoff| backoff.first);
        let state = State::Resting {
            until: Duration::ZERO,
        };
        Dialer {
            address,
            backoff,
            state,
            failures: 0,
            wait,
            clock: Clock::system(),
        }
    }

    pub fn attach(&mut self, clock: &Clock) {
        self.clock = clock.clone();
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn reconnects(&self) -> bool {
        self.backoff.is_some()
    }

    /// Works on the connection for at most one [`TURN`](crate::fd_poll::TURN); returns `None` if it
    /// is not established yet.
    ///
    /// Resolving a host name may take longer than a turn, since the system's resolver cannot be
    /// interrupted.
    pub fn connect(&mut self) -> Result<Option<TcpStream>> {
        match self.advance() {
            Ok(Some(stream)) => {
                self.failures = 0;
                self.wait = self.backoff.map_or(Duration::ZERO, |backoff| backoff.first);
                self.state = State::Resting {
                    until: Duration::ZERO,
                };
                Ok(Some(stream))
            }
            Ok(None) => Ok(None),
            Err(error) => self.failed(error).map(|()| None),
        }
    }

    /// Handles a failed connection or attempt: schedules the next attempt, or returns the error if
    /// no attempt is left.
    pub fn failed(&mut self, error: io::Error) -> Result<()> {
        self.failures += 1;
        let Some(backoff) = self
            .backoff
            .filter(|backoff| self.failures < backoff.attempts)
        else {
            let again = if self.failures > 1 { " repeatedly" } else { "" };
            let what = format!("the connection to {} failed{again}", self.address);
            let hint =
                "check that the peer runs and can be reached, or have it tried again (`reconnect`)";
            return Err(Error::new(ErrorCode::Network, what)
                .because(error)
                .hint(hint));
        };
        self.state = State::Resting {
            until: self.clock.now().saturating_add(self.wait),
        };
        self.wait = self.wait.saturating_mul(2).min(backoff.longest);
        Ok(())
    }

    fn advance(&mut self) -> io::Result<Option<TcpStream>> {
        if let State::Resting { until } = self.state {
            let rest = until.saturating_sub(self.clock.now());
            if !rest.is_zero() {
                std::thread::sleep(rest.min(TURN));
                return Ok(None);
            }
            let addresses: VecDeque<SocketAddr> = self.address.to_socket_addrs()?.collect();
            self.try_next(
                addresses,
                io::Error::other("the name stands for no address"),
            )?;
        }
        let State::Connecting {
            socket,
            deadline,
            others,
        } = &mut self.state
        else {
            return Ok(None);
        };
        let ready = writable(socket, TURN)?;
        let failure = match socket.take_error()? {
            Some(error) => error,
            None if ready => {
                let socket = socket.try_clone()?;
                socket.set_nonblocking(false)?;
                let stream = TcpStream::from(socket);
                keep_alive(&stream)?;
                return Ok(Some(stream));
            }
            None if self.clock.now() < *deadline => return Ok(None),
            None => io::Error::new(io::ErrorKind::TimedOut, "no answer"),
        };
        let others = std::mem::take(others);
        self.try_next(others, failure).map(|()| None)
    }

    /// Starts connecting to the next of `addresses`; returns the error `last` if no address is
    /// left.
    fn try_next(
        &mut self,
        mut addresses: VecDeque<SocketAddr>,
        mut last: io::Error,
    ) -> io::Result<()> {
        while let Some(address) = addresses.pop_front() {
            let socket = Socket::new(
                Domain::for_address(address),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            socket.set_nonblocking(true)?;
            match socket.connect(&address.into()) {
                Err(error) if !in_progress(&error) => last = error,
                _ => {
                    let deadline = self.clock.now() + CONNECT_TIMEOUT;
                    self.state = State::Connecting {
                        socket,
                        deadline,
                        others: addresses,
                    };
                    return Ok(());
                }
            }
        }
        Err(last)
    }
}

fn in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

/// Enables keepalive probes after a minute of silence; a dead peer then ends the connection.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ardea_core::ManualClock;

    use super::*;
    use crate::testing::eventually;

    /// Returns an address without a listener.
    fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    }

    #[test]
    fn a_refused_connection_names_the_peer_when_it_is_aborted() {
        let address = nobody();
        let mut dial = Dialer::new(address.clone(), None);
        let mut outcome = Ok(None);
        eventually("an error", || {
            outcome = dial.connect();
            outcome.is_err()
        });
        let error = outcome.err().unwrap();
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains(&address), "{error}");
    }

    #[test]
    fn waits_double_up_to_the_longest_and_attempts_end() {
        let hand = ManualClock::new();
        let secs = Duration::from_secs;
        let backoff = Backoff {
            first: secs(1),
            longest: secs(3),
            attempts: 5,
        };
        let mut dial = Dialer::new(nobody(), Some(backoff));
        dial.attach(&hand.clock());
        let mut waits = Vec::new();
        while dial.failed(io::Error::other("x")).is_ok() {
            let State::Resting { until } = dial.state else {
                panic!("it rests")
            };
            waits.push(until);
        }
        assert_eq!(waits, [secs(1), secs(2), secs(3), secs(3)]);
    }

    #[test]
    fn a_peer_that_comes_up_later_is_reached() {
        let address = nobody();
        let quick = Backoff {
            first: Duration::from_millis(1),
            ..Backoff::default()
        };
        let mut dial = Dialer::new(address.clone(), Some(quick));
        for _ in 0..5 {
            assert!(dial.connect().unwrap().is_none());
        }
        let _listener = TcpListener::bind(&address).unwrap();
        eventually("a connection", || dial.connect().unwrap().is_some());
    }
}
