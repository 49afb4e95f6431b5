//! The connections of a server, up to a maximum. At the maximum, a new connection replaces a
//! connection that waits for its client. While a new connection waits for a place, each connection
//! ends with its next response. So a client with continuous requests can't keep its connection
//! forever.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

/// Minimum time before a connection that waits for its client is closed. The client can send a
/// request or receive the last response within this time.
const MIN_IDLE_TIME: Duration = Duration::from_millis(200);

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    connections: Mutex<ConnectionSet>,
    /// Notified when a connection ends or begins to wait for its client.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionSet {
    next: u64,
    /// True while a new connection waits for a place.
    is_full: bool,
    open: BTreeMap<u64, Activity>,
}

/// The state of a connection.
#[derive(Debug)]
struct Activity {
    peer: IpAddr,
    /// Number of complete requests being answered. At zero, the connection waits for its client to
    /// send a request or the rest of one.
    answering: u32,
    waits_since: Instant,
    task: Option<AbortHandle>,
}

impl Activity {
    fn may_be_closed_at(&self) -> Instant {
        self.waits_since + MIN_IDLE_TIME
    }
}

impl ConnectionSet {
    /// Returns the connection to close. Among the connections that wait for their client, it is the
    /// longest waiting one of the client with most connections. If none may be closed yet, returns
    /// the time from which one may be closed, if known.
    fn to_close(&self, now: Instant) -> Result<u64, Option<Instant>> {
        let mut by_peer: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for one in self.open.values() {
            *by_peer.entry(one.peer).or_default() += 1;
        }
        let waiting = self.open.iter();
        let waiting = waiting.filter(|(_, one)| one.answering == 0 && one.task.is_some());
        let long = waiting
            .clone()
            .filter(|(_, one)| one.may_be_closed_at() <= now);
        let last = long.min_by_key(|(_, one)| {
            let of_its_peer = by_peer.get(&one.peer).copied().unwrap_or_default();
            (std::cmp::Reverse(of_its_peer), one.waits_since)
        });
        let next = || waiting.map(|(_, one)| one.may_be_closed_at()).min();
        last.map(|(number, _)| *number).ok_or_else(next)
    }
}

impl Connections {
    /// Creates a set of at most `most` connections.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Connections {
            most: most.max(1),
            connections: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Makes room for a new connection of `peer`. At the maximum, closes a connection that waits
    /// for its client. If there is none, waits until a connection ends or begins to wait for its
    /// client.
    pub(super) async fn enter(self: &Arc<Self>, peer: IpAddr) -> Connection {
        loop {
            let changed = self.changed.notified();
            match self.take_place(peer) {
                Ok(number) => {
                    return Connection {
                        all: Arc::clone(self),
                        number,
                    };
                }
                Err(Some(at)) => drop(timeout_at(at.into(), changed).await),
                Err(None) => changed.await,
            }
        }
    }

    fn take_place(&self, peer: IpAddr) -> Result<u64, Option<Instant>> {
        let mut known = self.connections();
        if known.open.len() >= self.most {
            known.is_full = true;
            let number = known.to_close(Instant::now())?;
            if let Some(task) = known.open.remove(&number).and_then(|one| one.task) {
                task.abort();
            }
        }
        known.is_full = false;
        let number = known.next;
        known.next += 1;
        let activity = Activity {
            peer,
            answering: 0,
            waits_since: Instant::now(),
            task: None,
        };
        known.open.insert(number, activity);
        Ok(number)
    }

    /// Sets the task that serves a connection, which is aborted when the connection is closed.
    pub(super) fn set_task(&self, number: u64, task: AbortHandle) {
        if let Some(activity) = self.connections().open.get_mut(&number) {
            activity.task = Some(task);
        }
        self.changed.notify_waiters();
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionSet> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    number: u64,
}

impl Connection {
    /// Returns the connection's number, for [`Connections::set_task`].
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the handle of a request whose head has arrived. The connection still counts as
    /// waiting until [`Exchange::received`] is called.
    pub(super) fn begins(&self) -> Arc<Exchange> {
        if let Some(activity) = self.all.connections().open.get_mut(&self.number) {
            activity.waits_since = Instant::now();
        }
        Arc::new(Exchange {
            all: Arc::clone(&self.all),
            number: self.number,
            is_received: OnceLock::new(),
            long: OnceLock::new(),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.connections().open.remove(&self.number);
        self.all.changed.notify_waiters();
    }
}

/// A request and its response, from the request's head until the response has been sent.
#[derive(Debug)]
pub(super) struct Exchange {
    all: Arc<Connections>,
    number: u64,
    is_received: OnceLock<()>,
    long: OnceLock<OwnedSemaphorePermit>,
}

impl Exchange {
    /// Marks the request as complete. Until its response is sent, the connection is not closed for
    /// a new one.
    pub(super) fn received(&self) {
        if self.is_received.set(()).is_ok()
            && let Some(activity) = self.all.connections().open.get_mut(&self.number)
        {
            activity.answering += 1;
        }
    }

    /// Returns true if the connection must end with this response, because a new connection waits
    /// for a place.
    pub(super) fn is_last(&self) -> bool {
        self.all.connections().is_full
    }

    /// Holds a permit for a long-running response until it has been sent.
    pub(super) fn hold_permit(&self, permit: OwnedSemaphorePermit) {
        // A request has one response.
        let _ = self.long.set(permit);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(activity) = self.all.connections().open.get_mut(&self.number) {
            if self.is_received.get().is_some() {
                activity.answering -= 1;
            }
            activity.waits_since = Instant::now();
        }
        self.all.changed.notify_waiters();
    }
}

/// The body of a response. It holds the [`Exchange`] until it has been sent.
pub(super) struct ResponseBody<B> {
    body: B,
    _exchange: Arc<Exchange>,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: B, exchange: Arc<Exchange>) -> Self {
        ResponseBody {
            body,
            _exchange: exchange,
        }
    }
}

impl<B: Body + Unpin> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::task::Waker;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    type Task = tokio::task::JoinHandle<()>;

    /// Creates a connection with a task that only ends when it is aborted, and the request that it
    /// has begun.
    async fn connect_from(all: &Arc<Connections>, peer: IpAddr) -> (Task, Arc<Exchange>) {
        let connection = all.enter(peer).await;
        let (number, exchange) = (connection.number(), connection.begins());
        let task = tokio::spawn(async move {
            let _connection = connection;
            std::future::pending::<()>().await;
        });
        all.set_task(number, task.abort_handle());
        (task, exchange)
    }

    /// Creates such a connection with a complete request.
    async fn connect(all: &Arc<Connections>) -> (Task, Arc<Exchange>) {
        let (task, exchange) = connect_from(all, PEER).await;
        exchange.received();
        (task, exchange)
    }

    #[tokio::test]
    async fn the_longest_idle_one_gives_way_and_none_that_is_being_answered() {
        let all = Connections::new(3);
        let (first, first_busy) = connect(&all).await;
        let (second, second_busy) = connect(&all).await;
        let (third, _third_busy) = connect(&all).await;
        drop(second_busy);
        drop(first_busy);
        let (_fourth, _fourth_busy) = connect(&all).await;
        assert!(second.await.unwrap_err().is_cancelled());
        let (_fifth, _fifth_busy) = connect(&all).await;
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!third.is_finished());
    }

    #[tokio::test]
    async fn where_all_are_being_answered_a_new_one_waits_until_one_is_not() {
        let all = Connections::new(1);
        let (first, busy) = connect(&all).await;
        let mut waiting = Box::pin(all.enter(PEER));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(busy);
        waiting.await;
        assert!(first.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn a_request_that_is_still_coming_keeps_no_connection() {
        let all = Connections::new(2);
        let (slow, _coming) = connect_from(&all, PEER).await;
        let (answered, _busy) = connect(&all).await;
        let (_third, _third_busy) = connect(&all).await;
        assert!(slow.await.unwrap_err().is_cancelled());
        assert!(!answered.is_finished());
    }

    #[tokio::test]
    async fn the_client_with_most_connections_gives_way_first() {
        let all = Connections::new(3);
        let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        let (alone, _one) = connect_from(&all, other).await;
        let (first, _two) = connect_from(&all, PEER).await;
        let (second, _three) = connect_from(&all, PEER).await;
        let (_third, _four) = connect_from(&all, PEER).await;
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!alone.is_finished() && !second.is_finished());
    }
}
