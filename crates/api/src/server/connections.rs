//! The connections of a server: as many as it bears, and the longest idle one gives way to a new one.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    known: Mutex<Known>,
    /// Somebody has ended, or become idle.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    open: BTreeMap<u64, Activity>,
}

/// What a connection is doing.
#[derive(Debug)]
struct Activity {
    /// How many of its requests are being answered.
    requests: u32,
    idle_since: Instant,
    task: Option<AbortHandle>,
}

impl Connections {
    /// So many at a time.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Connections {
            most: most.max(1),
            known: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Makes room for a connection that has come: at once if there are fewer than the most, else by closing the one that has been idle
    /// longest, else when one ends or becomes idle.
    pub(super) async fn enter(self: &Arc<Self>) -> Connection {
        loop {
            let changed = self.changed.notified();
            if let Some(number) = self.take_place() {
                return Connection {
                    all: Arc::clone(self),
                    number,
                };
            }
            changed.await;
        }
    }

    fn take_place(&self) -> Option<u64> {
        let mut known = self.known();
        if known.open.len() >= self.most {
            let open = known.open.iter();
            let idle = open.filter(|(_, one)| one.requests == 0 && one.task.is_some());
            let longest = idle.min_by_key(|(_, one)| one.idle_since);
            let number = longest.map(|(number, _)| *number)?;
            if let Some(task) = known.open.remove(&number).and_then(|one| one.task) {
                task.abort();
            }
        }
        let number = known.next;
        known.next += 1;
        let activity = Activity {
            requests: 0,
            idle_since: Instant::now(),
            task: None,
        };
        known.open.insert(number, activity);
        Some(number)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    number: u64,
}

impl Connection {
    /// Which one it is, for whoever starts its task.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A request of it is being answered, until what this gives is dropped.
    pub(super) fn begins(&self) -> Busy {
        if let Some(activity) = self.all.known().open.get_mut(&self.number) {
            activity.requests += 1;
        }
        Busy {
            all: Arc::clone(&self.all),
            number: self.number,
        }
    }
}

impl Connections {
    /// That task answers the connection of this number, and may be ended while it is idle.
    pub(super) fn answered_by(&self, number: u64, task: AbortHandle) {
        if let Some(activity) = self.known().open.get_mut(&number) {
            activity.task = Some(task);
        }
        self.changed.notify_waiters();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.known().open.remove(&self.number);
        self.all.changed.notify_waiters();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy {
    all: Arc<Connections>,
    number: u64,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(activity) = self.all.known().open.get_mut(&self.number) {
            activity.requests -= 1;
            activity.idle_since = Instant::now();
        }
        self.all.changed.notify_waiters();
    }
}

/// The body of an answer, which is being answered until it has been sent.
pub(super) struct Answering<B> {
    body: B,
    _busy: Busy,
}

impl<B> Answering<B> {
    pub(super) fn new(body: B, busy: Busy) -> Self {
        Answering { body, _busy: busy }
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
    use std::task::Waker;

    use super::*;

    /// A connection with a task that only ends when it is ended.
    async fn connect(all: &Arc<Connections>) -> (tokio::task::JoinHandle<()>, Busy) {
        let connection = all.enter().await;
        let (number, busy) = (connection.number(), connection.begins());
        let task = tokio::spawn(async move {
            let _connection = connection;
            std::future::pending::<()>().await;
        });
        all.answered_by(number, task.abort_handle());
        (task, busy)
    }

    #[tokio::test]
    async fn the_longest_idle_one_gives_way_and_no_busy_one() {
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
    async fn where_all_are_busy_a_new_one_waits_until_one_is_not() {
        let all = Connections::new(1);
        let (first, busy) = connect(&all).await;
        let mut waiting = Box::pin(all.enter());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(busy);
        waiting.await;
        assert!(first.await.unwrap_err().is_cancelled());
    }
}
