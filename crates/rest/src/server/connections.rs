//! The connections of a server, up to a maximum. A new one takes the place of one that waits for
//! its client, and while a new one waits, each connection ends with its next answer: a client that
//! asks for ever keeps no place.

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

/// The time for which a connection that waits for its client is not closed: a new one gets to send
/// its request, and the last answer gets to leave.
const KEPT_WAITING: Duration = Duration::from_millis(200);

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    known: Mutex<Known>,
    /// Notified when a connection ends or begins to wait for its client.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    /// A new connection waits for a place.
    is_full: bool,
    open: BTreeMap<u64, Activity>,
}

/// The state of a connection.
#[derive(Debug)]
struct Activity {
    peer: IpAddr,
    /// The number of complete requests that are being answered. With none, the connection waits
    /// for its client: for a request, or for the rest of one.
    answering: u32,
    waits_since: Instant,
    task: Option<AbortHandle>,
}

impl Activity {
    fn may_be_closed_at(&self) -> Instant {
        self.waits_since + KEPT_WAITING
    }
}

impl Known {
    /// Returns the connection to close: of those that wait for their client, the one that has
    /// waited longest of the client with most connections. If none may be closed yet, it is an
    /// error with the time from which on one may be, if that is known.
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
            known: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Makes room for a new connection of `peer`. At the maximum it closes one that waits for its
    /// client; if none does, it waits until one ends or begins to wait.
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
        let mut known = self.known();
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
    pub(super) fn answered_by(&self, number: u64, task: AbortHandle) {
        if let Some(activity) = self.known().open.get_mut(&number) {
            activity.task = Some(task);
        }
        self.changed.notify_waiters();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    number: u64,
}

impl Connection {
    /// Returns its number, for [`Connections::answered_by`].
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the handle of a request whose head has arrived. The connection still waits for its
    /// client until [`Exchange::received`] is called.
    pub(super) fn begins(&self) -> Arc<Exchange> {
        if let Some(activity) = self.all.known().open.get_mut(&self.number) {
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
        self.all.known().open.remove(&self.number);
        self.all.changed.notify_waiters();
    }
}

/// A request and its answer, from the request's head until the answer has been sent.
#[derive(Debug)]
pub(super) struct Exchange {
    all: Arc<Connections>,
    number: u64,
    is_received: OnceLock<()>,
    long: OnceLock<OwnedSemaphorePermit>,
}

impl Exchange {
    /// Notes that the request is complete. From now on the connection is not closed for another one.
    pub(super) fn received(&self) {
        if self.is_received.set(()).is_ok()
            && let Some(activity) = self.all.known().open.get_mut(&self.number)
        {
            activity.answering += 1;
        }
    }

    /// Returns true if the connection is to end with this answer, since a new one waits for a
    /// place.
    pub(super) fn is_last(&self) -> bool {
        self.all.known().is_full
    }

    /// Keeps a permit for an answer that takes long, until the answer has been sent.
    pub(super) fn takes_long(&self, permit: OwnedSemaphorePermit) {
        // A request has one answer.
        let _ = self.long.set(permit);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(activity) = self.all.known().open.get_mut(&self.number) {
            if self.is_received.get().is_some() {
                activity.answering -= 1;
            }
            activity.waits_since = Instant::now();
        }
        self.all.changed.notify_waiters();
    }
}

/// The body of an answer. It keeps the [`Exchange`] until it has been sent.
pub(super) struct Answering<B> {
    body: B,
    _exchange: Arc<Exchange>,
}

impl<B> Answering<B> {
    pub(super) fn new(body: B, exchange: Arc<Exchange>) -> Self {
        Answering {
            body,
            _exchange: exchange,
        }
    }
}

impl<B: Body + Unpin> Body for Answering<B> {
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

    /// A connection with a task that only ends when it is aborted, and the request that it has begun.
    async fn connect_from(all: &Arc<Connections>, peer: IpAddr) -> (Task, Arc<Exchange>) {
        let connection = all.enter(peer).await;
        let (number, exchange) = (connection.number(), connection.begins());
        let task = tokio::spawn(async move {
            let _connection = connection;
            std::future::pending::<()>().await;
        });
        all.answered_by(number, task.abort_handle());
        (task, exchange)
    }

    /// The same, with a complete request.
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
