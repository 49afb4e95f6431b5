//! A state manager that can be away for a while, and whose changes can be lost on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{Error, ErrorCode};
use ardea_state_manager::{
    Expected, Node, Pending, Session, SessionEnding, StateManager, StatePath, Version, Watcher,
};

#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn StateManager>,
    away: AtomicBool,
}

impl Flaky {
    pub fn new(inner: Arc<dyn StateManager>) -> Self {
        Flaky {
            inner,
            away: AtomicBool::new(false),
        }
    }

    /// From now on nobody answers; or somebody does again.
    pub fn away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn unless_away<'a, T: 'a>(&'a self, call: Pending<'a, T>) -> Pending<'a, T> {
        match self.away.load(Ordering::SeqCst) {
            false => call,
            true => Box::pin(async { Err(Error::new(ErrorCode::StateUnavailable, "away")) }),
        }
    }
}

impl StateManager for Flaky {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        self.unless_away(self.inner.get(path))
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        self.unless_away(self.inner.set(path, value, expected))
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        self.unless_away(self.inner.delete(path, expected))
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        self.unless_away(self.inner.children(path))
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        self.unless_away(self.inner.watch_node(path))
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        self.unless_away(self.inner.watch_children(path))
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        self.unless_away(self.inner.open_session())
    }
}
