//! A watcher: the current state of a node or a list of children, followed by newer ones.
//!
//! It stores only the latest state, not a queue. A slow reader misses intermediate states but never
//! the last one, and an unread watcher uses no additional memory.

use ardea_core::Error;
use ardea_core::Result;
use tokio::sync::watch as channel;

/// The last event of a feed.
#[derive(Clone, Debug)]
enum LastEvent<T> {
    /// No event yet.
    Nothing,
    /// The current state.
    State(T),
    /// The end of the feed.
    End(Error),
}

/// A reader of the states of a node or a list of children. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher<T>(channel::Receiver<LastEvent<T>>);

impl<T: Clone> Watcher<T> {
    /// Returns the next state: the first call returns the current one at once; later calls wait for
    /// a newer one.
    ///
    /// While the server is unreachable this waits; the current state follows if it has changed
    /// meanwhile. Cancel safe: a state that was not returned is returned by the next call. Fails
    /// permanently if the metadata store was dropped or can't continue.
    pub async fn next(&mut self) -> Result<T> {
        loop {
            // A feed reports its end before it is dropped; otherwise the whole process is ending.
            if self.0.changed().await.is_err() {
                return match &*self.0.borrow() {
                    LastEvent::End(error) => Err(error.clone()),
                    _ => Err(crate::StoreAddress::new("the metadata store").closed()),
                };
            }
            match &*self.0.borrow_and_update() {
                LastEvent::Nothing => {}
                LastEvent::State(state) => return Ok(state.clone()),
                LastEvent::End(error) => return Err(error.clone()),
            }
        }
    }
}

/// For implementations: the sender of a [`Watcher`].
#[derive(Debug)]
pub struct WatchFeed<T>(channel::Sender<LastEvent<T>>);

impl<T: PartialEq> WatchFeed<T> {
    /// Sends a state, unless it is equal to the last one.
    pub fn send(&self, state: T) {
        self.0.send_if_modified(|said| match said {
            LastEvent::State(before) if *before == state => false,
            _ => {
                *said = LastEvent::State(state);
                true
            }
        });
    }

    /// Ends the watcher with this error.
    pub fn end(&self, error: Error) {
        self.0.send_replace(LastEvent::End(error));
    }

    /// Returns true if the watcher was dropped.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Completes when the watcher is dropped.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// For implementations: creates a watcher and its feed.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
/// # runtime.block_on(async {
/// let (feed, mut watcher) = ardea_metastore::watch();
/// feed.send("up");
/// assert_eq!(watcher.next().await?, "up");
/// feed.send("down");
/// feed.send("up again");
/// assert_eq!(watcher.next().await?, "up again");
/// # Ok::<(), ardea_core::Error>(())
/// # });
/// ```
pub fn watch<T>() -> (WatchFeed<T>, Watcher<T>) {
    let (sender, receiver) = channel::channel(LastEvent::Nothing);
    (WatchFeed(sender), Watcher(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreAddress;
    use ardea_core::ErrorCode;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_waiting<T: Clone>(watcher: &mut Watcher<T>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(watcher.next()).poll(&mut context).is_pending()
    }

    #[test]
    fn the_same_state_twice_is_told_once() {
        let (feed, mut watcher) = watch();
        assert!(is_waiting(&mut watcher));
        feed.send(1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(
            pin!(watcher.next()).poll(&mut context),
            Poll::Ready(Ok(1))
        ));
        feed.send(1);
        assert!(is_waiting(&mut watcher));
    }

    #[tokio::test]
    async fn an_end_is_told_with_its_reason_as_often_as_asked() {
        let (feed, mut watcher) = watch::<u8>();
        feed.end(StoreAddress::new("memory").closed());
        drop(feed);
        for _ in 0..2 {
            let error = watcher.next().await.expect_err("it has ended");
            assert_eq!(error.code(), ErrorCode::Cancelled);
        }
    }

    #[tokio::test]
    async fn a_feed_detects_a_dropped_watcher() {
        let (feed, watcher) = watch::<u8>();
        assert!(!feed.is_closed());
        drop(watcher);
        feed.closed().await;
        assert!(feed.is_closed());
    }
}
