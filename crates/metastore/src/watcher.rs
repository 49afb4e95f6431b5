//! A watcher: the present state of something, and then each newer one.
//!
//! It holds one state, the latest, not a queue: who reads slowly misses states between, never the last, and a watcher
//! that nobody reads costs no memory.

use ardea_core::Error;
use ardea_core::Result;
use tokio::sync::watch as channel;

/// What a feed last said.
#[derive(Clone, Debug)]
enum Said<T> {
    /// Nothing yet.
    Nothing,
    /// That this is how things are.
    State(T),
    /// That there will be no more.
    End(Error),
}

/// Reads the states of a node or of a list of children. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher<T>(channel::Receiver<Said<T>>);

impl<T: Clone> Watcher<T> {
    /// The next state: at the first call the present one, at once; then, when there is one, a newer one than the last.
    ///
    /// While the server is away this waits; a state that was missed meanwhile follows. Cancel-safe: a state that was
    /// not returned is returned by the next call. Fails, for good, when the state manager was dropped or can't go on.
    pub async fn next(&mut self) -> Result<T> {
        loop {
            // The feed says why it ends before it goes; without a word it was the whole process that ended.
            if self.0.changed().await.is_err() {
                return match &*self.0.borrow() {
                    Said::End(error) => Err(error.clone()),
                    _ => Err(crate::Place::new("the state manager").closed()),
                };
            }
            match &*self.0.borrow_and_update() {
                Said::Nothing => {}
                Said::State(state) => return Ok(state.clone()),
                Said::End(error) => return Err(error.clone()),
            }
        }
    }
}

/// For implementations: tells a [`Watcher`] how things are.
#[derive(Debug)]
pub struct WatchFeed<T>(channel::Sender<Said<T>>);

impl<T: PartialEq> WatchFeed<T> {
    /// This is how things are; if it was so before, nothing is told.
    pub fn tell(&self, state: T) {
        self.0.send_if_modified(|said| match said {
            Said::State(before) if *before == state => false,
            _ => {
                *said = Said::State(state);
                true
            }
        });
    }

    /// There will be no more, because of this.
    pub fn end(&self, error: Error) {
        self.0.send_replace(Said::End(error));
    }

    /// Whether the watcher was dropped.
    pub fn is_forsaken(&self) -> bool {
        self.0.is_closed()
    }

    /// Ready when the watcher was dropped.
    pub async fn forsaken(&self) {
        self.0.closed().await;
    }
}

/// For implementations: a watcher and its feed.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
/// # runtime.block_on(async {
/// let (feed, mut watcher) = ardea_metastore::watch();
/// feed.tell("up");
/// assert_eq!(watcher.next().await?, "up");
/// feed.tell("down");
/// feed.tell("up again");
/// assert_eq!(watcher.next().await?, "up again");
/// # Ok::<(), ardea_core::Error>(())
/// # });
/// ```
pub fn watch<T>() -> (WatchFeed<T>, Watcher<T>) {
    let (sender, receiver) = channel::channel(Said::Nothing);
    (WatchFeed(sender), Watcher(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
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
        feed.tell(1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(
            pin!(watcher.next()).poll(&mut context),
            Poll::Ready(Ok(1))
        ));
        feed.tell(1);
        assert!(is_waiting(&mut watcher));
    }

    #[tokio::test]
    async fn an_end_is_told_with_its_reason_as_often_as_asked() {
        let (feed, mut watcher) = watch::<u8>();
        feed.end(Place::new("memory").closed());
        drop(feed);
        for _ in 0..2 {
            let error = watcher.next().await.expect_err("it has ended");
            assert_eq!(error.code(), ErrorCode::Cancelled);
        }
    }

    #[tokio::test]
    async fn a_feed_learns_that_nobody_listens() {
        let (feed, watcher) = watch::<u8>();
        assert!(!feed.is_forsaken());
        drop(watcher);
        feed.forsaken().await;
        assert!(feed.is_forsaken());
    }
}
