//! Sessions: nodes that are deleted with their owner, and the notification of the session's end.

use crate::{Pending, SessionId, StatePath, Version};
use ardea_core::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The owner of a set of nodes.
///
/// Dropping a session closes it, as soon as the metadata store can be reached;
/// [`close`](Session::close) also waits until the session is closed.
pub trait Session: Send + Sync + fmt::Debug {
    /// Returns the session's name, which is also stored in each of its nodes.
    fn id(&self) -> &SessionId;

    /// Creates a node of this session, and missing ancestors, which are permanent. Its version is a
    /// fencing token for the owner's actions.
    ///
    /// Fails with [`MetastoreConflict`](ardea_core::ErrorCode::MetastoreConflict) if the node
    /// exists, even one of this session, and with
    /// [`SessionEnded`](ardea_core::ErrorCode::SessionEnded) after the session's end. The node is
    /// written and deleted through the [`MetadataStore`](crate::MetadataStore), and can't have
    /// children.
    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version>;

    /// Ends the session; when this returns without an error, its nodes are deleted.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// The reason why a session has ended.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    /// The owner closed or dropped the session.
    Closed,
    /// The session was lost, for the reason in the error, of code
    /// [`SessionEnded`](ardea_core::ErrorCode::SessionEnded). Its nodes are deleted, or will be in
    /// a moment; the owner must not act on their behalf any more.
    Expired(Error),
}

/// A future of the session's end, for its owner: completes once, with the reason.
///
/// It completes not later than any other process can see that the nodes are gone: when a connection
/// is lost, the timeout ends here before it ends on the server. A suspended process may notice
/// later; therefore changes made on behalf of a node carry its version as a fencing token.
#[derive(Debug)]
pub struct SessionEnding(oneshot::Receiver<SessionEnd>);

impl Future for SessionEnding {
    type Output = SessionEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SessionEnd> {
        // A notifier that is dropped unused has closed the session.
        Pin::new(&mut self.0)
            .poll(context)
            .map(|end| end.unwrap_or(SessionEnd::Closed))
    }
}

/// For implementations: the sender of the notification. Of all calls on all clones, the first one
/// counts.
#[derive(Clone, Debug)]
pub struct SessionEndNotifier(Arc<Mutex<Option<oneshot::Sender<SessionEnd>>>>);

impl SessionEndNotifier {
    /// Reports the end; returns false if the end had been reported before.
    pub fn notify(&self, end: SessionEnd) -> bool {
        match self.sender().take() {
            // An owner that has dropped the receiver needs no notification.
            Some(sender) => {
                let _ = sender.send(end);
                true
            }
            None => false,
        }
    }

    /// Returns true if the end has been reported.
    pub fn is_notified(&self) -> bool {
        self.sender().is_none()
    }

    fn sender(&self) -> std::sync::MutexGuard<'_, Option<oneshot::Sender<SessionEnd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For implementations: creates the two ends of the notification.
pub fn session_ending() -> (SessionEndNotifier, SessionEnding) {
    let (sender, receiver) = oneshot::channel();
    (
        SessionEndNotifier(Arc::new(Mutex::new(Some(sender)))),
        SessionEnding(receiver),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreAddress;

    #[tokio::test]
    async fn the_first_of_two_ends_is_reported() {
        let (teller, ending) = session_ending();
        let place = StoreAddress::new("memory");
        assert!(teller.notify(SessionEnd::Expired(
            place.session_ended("the server is silent")
        )));
        assert!(!teller.clone().notify(SessionEnd::Closed));
        assert!(teller.is_notified());
        assert!(matches!(ending.await, SessionEnd::Expired(_)));
    }

    #[tokio::test]
    async fn a_dropped_notifier_has_closed() {
        let (teller, ending) = session_ending();
        drop(teller);
        assert!(matches!(ending.await, SessionEnd::Closed));
    }
}
