//! A session: nodes that go with their owner, and the one message that says that it has ended.

use crate::{Pending, SessionId, StatePath, Version};
use ardea_core::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The nodes that one owner is answerable for.
///
/// Dropping a session closes it, as soon as the state manager can be reached; [`close`](Session::close) waits for that.
pub trait Session: Send + Sync + fmt::Debug {
    /// The session's name, which is also in each of its nodes.
    fn id(&self) -> &SessionId;

    /// Makes a node that goes with this session, and missing ancestors, which don't. Its version is a fencing token for
    /// what the owner does in its name.
    ///
    /// Fails with [`StateConflict`](ardea_core::ErrorCode::StateConflict) if the node exists, whoever made it, and with
    /// [`SessionEnded`](ardea_core::ErrorCode::SessionEnded) after the session's end. The node is written and deleted
    /// through the [`StateManager`](crate::StateManager), and can't have children.
    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version>;

    /// Ends the session; when this returns without an error, its nodes are gone.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// Why a session has ended.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    /// Its owner closed or dropped it.
    Closed,
    /// It was lost: the error, of code [`SessionEnded`](ardea_core::ErrorCode::SessionEnded), says how. Its nodes are
    /// gone, or will be in a moment; their owner must not act in their name any more.
    Expired(Error),
}

/// The end of a session, as a future of its owner: ready once, with the reason.
///
/// An owner learns it not later than anybody else can see that the nodes are gone: when a connection is lost, the time
/// runs out here before it runs out on the server. (Unless the whole process is held up: against that, changes made in
/// the name of a node carry its version as a fencing token.)
#[derive(Debug)]
pub struct SessionEnding(oneshot::Receiver<SessionEnd>);

impl Future for SessionEnding {
    type Output = SessionEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SessionEnd> {
        // Who drops the teller without a word has closed the session.
        Pin::new(&mut self.0)
            .poll(context)
            .map(|end| end.unwrap_or(SessionEnd::Closed))
    }
}

/// For implementations: says that a session has ended. Of all that is said by all clones, the first reaches the owner.
#[derive(Clone, Debug)]
pub struct EndTeller(Arc<Mutex<Option<oneshot::Sender<SessionEnd>>>>);

impl EndTeller {
    /// Says it; `false` if it had been said before.
    pub fn tell(&self, end: SessionEnd) -> bool {
        match self.sender().take() {
            // That the owner does not listen changes nothing.
            Some(sender) => {
                let _ = sender.send(end);
                true
            }
            None => false,
        }
    }

    /// Whether it has been said.
    pub fn has_told(&self) -> bool {
        self.sender().is_none()
    }

    fn sender(&self) -> std::sync::MutexGuard<'_, Option<oneshot::Sender<SessionEnd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For implementations: the two ends of the message that a session has ended.
pub fn session_ending() -> (EndTeller, SessionEnding) {
    let (sender, receiver) = oneshot::channel();
    (
        EndTeller(Arc::new(Mutex::new(Some(sender)))),
        SessionEnding(receiver),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    #[tokio::test]
    async fn of_two_ends_the_first_is_told() {
        let (teller, ending) = session_ending();
        let place = Place::new("memory");
        assert!(teller.tell(SessionEnd::Expired(
            place.session_ended("the server is silent")
        )));
        assert!(!teller.clone().tell(SessionEnd::Closed));
        assert!(teller.has_told());
        assert!(matches!(ending.await, SessionEnd::Expired(_)));
    }

    #[tokio::test]
    async fn a_teller_that_is_dropped_has_closed() {
        let (teller, ending) = session_ending();
        drop(teller);
        assert!(matches!(ending.await, SessionEnd::Closed));
    }
}
