//! The watchers and sessions of one process: reads the tree after notifications, and reports
//! changes.

use super::change_notifier::ChangeNotifier;
use super::session_locks::SessionLock;
use super::tree::Tree;
use crate::{Node, SessionEnd, SessionEndNotifier, StatePath, WatchFeed, Watcher, watch};
use ardea_core::{Error, ErrorCode, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A watched node or list of children, with its feed.
#[derive(Debug)]
enum Subscription {
    Node(StatePath, WatchFeed<Option<Node>>),
    Children(StatePath, WatchFeed<Vec<String>>),
}

impl Subscription {
    fn is_forsaken(&self) -> bool {
        match self {
            Subscription::Node(_, feed) => feed.is_closed(),
            Subscription::Children(_, feed) => feed.is_closed(),
        }
    }

    fn end(&self, error: Error) {
        match self {
            Subscription::Node(_, feed) => feed.end(error),
            Subscription::Children(_, feed) => feed.end(error),
        }
    }
}

/// Returns true if the error is permanent.
fn is_lasting(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MetastoreCorrupt | ErrorCode::MetastoreRefused
    )
}

/// A session of this process.
#[derive(Debug)]
struct OwnSession {
    life: Weak<SessionLock>,
    teller: SessionEndNotifier,
}

#[derive(Debug, Default)]
struct Listeners {
    subscriptions: Vec<Subscription>,
    sessions: Vec<OwnSession>,
}

/// The watchers and sessions of one process, below one root.
#[derive(Debug)]
pub(super) struct Hub {
    tree: Arc<Tree>,
    // Locked while the tree is read for the watchers, so that an older state is never reported
    // after a newer one.
    listeners: Mutex<Listeners>,
}

impl Hub {
    /// Creates a hub without watchers.
    pub(super) fn new(tree: Arc<Tree>) -> Arc<Self> {
        Arc::new(Hub {
            tree,
            listeners: Mutex::default(),
        })
    }

    /// Watches a node.
    pub(super) fn watch_node(&self, path: StatePath) -> Result<Watcher<Option<Node>>> {
        let (feed, watcher) = watch();
        self.add(Subscription::Node(path, feed))?;
        Ok(watcher)
    }

    /// Watches the children of a node.
    pub(super) fn watch_children(&self, path: StatePath) -> Result<Watcher<Vec<String>>> {
        let (feed, watcher) = watch();
        self.add(Subscription::Children(path, feed))?;
        Ok(watcher)
    }

    fn add(&self, wish: Subscription) -> Result<()> {
        let mut listeners = self.listeners();
        self.publish(&wish)?;
        listeners.subscriptions.push(wish);
        Ok(())
    }

    /// Registers a session, whose owner is notified if another process ends it.
    pub(super) fn add_session(&self, life: &Arc<SessionLock>, teller: SessionEndNotifier) {
        let life = Arc::downgrade(life);
        self.listeners().sessions.push(OwnSession { life, teller });
    }

    /// Checks all sessions and watched states, and removes nodes of dead sessions. Blocks on the
    /// disk.
    fn check(&self) {
        let mut listeners = self.listeners();
        listeners.sessions.retain(|own| self.check_session(own));
        listeners.subscriptions.retain(|wish| {
            if wish.is_forsaken() {
                return false;
            }
            match self.publish(wish) {
                // The error is permanent.
                Err(error) if is_lasting(error.code()) => {
                    wish.end(error);
                    false
                }
                // After a temporary error the next check reads again; nothing is reported
                // meanwhile.
                _ => true,
            }
        });
        drop(listeners);
        // Nodes of dead sessions are invisible already, so this only frees space. Another holder of
        // the lock does the same.
        if self
            .tree
            .session_locks()
            .dead()
            .is_ok_and(|dead| !dead.is_empty())
            && let Ok(Some(held)) = self.tree.try_acquire()
        {
            let _ = held.remove_dead_sessions();
        }
    }

    /// Ends all watchers.
    pub(super) fn end_watchers(&self) {
        for wish in self.listeners().subscriptions.drain(..) {
            wish.end(self.tree.place().closed());
        }
    }

    fn publish(&self, wish: &Subscription) -> Result<()> {
        match wish {
            Subscription::Node(path, feed) => feed.send(self.tree.get(path)?),
            Subscription::Children(path, feed) => feed.send(self.tree.children(path)?),
        }
        Ok(())
    }

    fn check_session(&self, own: &OwnSession) -> bool {
        let Some(life) = own.life.upgrade() else {
            return false;
        };
        if life.is_known().unwrap_or(true) {
            return true;
        }
        let error = self.tree.place().session_ended("its file was deleted");
        own.teller.notify(SessionEnd::Expired(error));
        false
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks after each notification, as long as the hub exists. At rest this reads a few files per
/// second.
pub(super) async fn run(hub: Weak<Hub>, mut bell: ChangeNotifier) {
    loop {
        bell.wait_for_check().await;
        let Some(hub) = hub.upgrade() else { return };
        // The task ends with the runtime, or after a panic of a check.
        if tokio::task::spawn_blocking(move || hub.check())
            .await
            .is_err()
        {
            return;
        }
    }
}
