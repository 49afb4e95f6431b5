//! The watchers and sessions of one process: looks at the tree when the bell rings, and tells them what is new.

use super::bell::Bell;
use super::lives::Life;
use super::tree::Tree;
use crate::{EndTeller, Node, SessionEnd, StatePath, WatchFeed, Watcher, watch};
use ardea_core::{Error, ErrorCode, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What somebody wants to know.
#[derive(Debug)]
enum Wish {
    Node(StatePath, WatchFeed<Option<Node>>),
    Children(StatePath, WatchFeed<Vec<String>>),
}

impl Wish {
    fn is_forsaken(&self) -> bool {
        match self {
            Wish::Node(_, feed) => feed.is_forsaken(),
            Wish::Children(_, feed) => feed.is_forsaken(),
        }
    }

    fn end(&self, error: Error) {
        match self {
            Wish::Node(_, feed) => feed.end(error),
            Wish::Children(_, feed) => feed.end(error),
        }
    }
}

/// Whether waiting does not mend it.
fn is_lasting(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::StateCorrupt | ErrorCode::StateRefused)
}

/// A session of this process.
#[derive(Debug)]
struct Own {
    life: Weak<Life>,
    teller: EndTeller,
}

#[derive(Debug, Default)]
struct Listeners {
    wishes: Vec<Wish>,
    sessions: Vec<Own>,
}

/// The watchers and sessions of one process, below one root.
#[derive(Debug)]
pub(super) struct Hub {
    tree: Arc<Tree>,
    // Held while the tree is read for the watchers, so that an older state is never told after a newer one.
    listeners: Mutex<Listeners>,
}

impl Hub {
    /// A hub without watchers.
    pub(super) fn new(tree: Arc<Tree>) -> Arc<Self> {
        Arc::new(Hub {
            tree,
            listeners: Mutex::default(),
        })
    }

    /// Watches a node.
    pub(super) fn watch_node(&self, path: StatePath) -> Result<Watcher<Option<Node>>> {
        let (feed, watcher) = watch();
        self.add(Wish::Node(path, feed))?;
        Ok(watcher)
    }

    /// Watches the children of a node.
    pub(super) fn watch_children(&self, path: StatePath) -> Result<Watcher<Vec<String>>> {
        let (feed, watcher) = watch();
        self.add(Wish::Children(path, feed))?;
        Ok(watcher)
    }

    fn add(&self, wish: Wish) -> Result<()> {
        let mut listeners = self.listeners();
        self.grant(&wish)?;
        listeners.wishes.push(wish);
        Ok(())
    }

    /// Tells the owner of this session if somebody else ends it.
    pub(super) fn guard(&self, life: &Arc<Life>, teller: EndTeller) {
        let life = Arc::downgrade(life);
        self.listeners().sessions.push(Own { life, teller });
    }

    /// Looks at all that somebody wants to know, and clears away what the dead left. Blocks on the disk.
    fn look(&self) {
        let mut listeners = self.listeners();
        listeners.sessions.retain(|own| self.is_well(own));
        listeners.wishes.retain(|wish| {
            if wish.is_forsaken() {
                return false;
            }
            match self.grant(wish) {
                // No look later on would find anything else.
                Err(error) if is_lasting(error.code()) => {
                    wish.end(error);
                    false
                }
                // What can't be read now is read at the next look; nothing is told that was not seen.
                _ => true,
            }
        });
        drop(listeners);
        // Nodes of dead sessions are invisible already: this only makes room, and whoever holds the lock does it, too.
        if self.tree.lives().dead().is_ok_and(|dead| !dead.is_empty())
            && let Ok(Some(held)) = self.tree.try_hold()
        {
            let _ = held.bury_the_dead();
        }
    }

    /// Tells all watchers that there will be no more.
    pub(super) fn end_watchers(&self) {
        for wish in self.listeners().wishes.drain(..) {
            wish.end(self.tree.place().closed());
        }
    }

    fn grant(&self, wish: &Wish) -> Result<()> {
        match wish {
            Wish::Node(path, feed) => feed.tell(self.tree.get(path)?),
            Wish::Children(path, feed) => feed.tell(self.tree.children(path)?),
        }
        Ok(())
    }

    fn is_well(&self, own: &Own) -> bool {
        let Some(life) = own.life.upgrade() else {
            return false;
        };
        if life.is_known().unwrap_or(true) {
            return true;
        }
        let error = self.tree.place().session_ended("its file was deleted");
        own.teller.tell(SessionEnd::Expired(error));
        false
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks whenever the bell rings, as long as the hub is there. Costs a look at a few files a second at rest.
pub(super) async fn attend(hub: Weak<Hub>, mut bell: Bell) {
    loop {
        bell.ring().await;
        let Some(hub) = hub.upgrade() else { return };
        // The task ends with the runtime; a look that panicked would have shown itself.
        if tokio::task::spawn_blocking(move || hub.look())
            .await
            .is_err()
        {
            return;
        }
    }
}
