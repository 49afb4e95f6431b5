//! A state manager whose disk can be full: it reads, and takes no change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_state_manager::{
    Expected, Node, Pending, Place, Session, SessionEnding, StateManager, StatePath, Version,
    Watcher,
};

#[derive(Debug)]
pub struct Full {
    inner: Arc<dyn StateManager>,
    is_full: AtomicBool,
}

impl Full {
    pub fn new(inner: Arc<dyn StateManager>) -> Self {
        let is_full = AtomicBool::new(false);
        Full { inner, is_full }
    }

    /// From now on the disk is full; or has room again.
    pub fn full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    fn unless_full<'a, T: 'a>(&'a self, path: &StatePath, call: Pending<'a, T>) -> Pending<'a, T> {
        if !self.is_full.load(Ordering::SeqCst) {
            return call;
        }
        // What the system says then: error 28.
        let why = io::Error::from_raw_os_error(28);
        let error = Place::new(self.inner.place()).unavailable(format!("write {path}"), why);
        Box::pin(async { Err(error) })
    }
}

impl StateManager for Full {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        self.inner.get(path)
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        self.unless_full(path, self.inner.set(path, value, expected))
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        self.unless_full(path, self.inner.delete(path, expected))
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        self.inner.children(path)
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        self.inner.watch_node(path)
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        self.inner.watch_children(path)
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        self.inner.open_session()
    }
}
