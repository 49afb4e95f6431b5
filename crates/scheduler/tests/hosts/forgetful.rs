//! A state manager that does what it is told, and may lose an answer.

use std::sync::atomic::{AtomicU8, Ordering};

use ardea_core::{Error, ErrorCode};
use ardea_state_manager::{
    Expected, Node, Pending, Session, SessionEnding, StateManager, StatePath, Version, Watcher,
};

const ANSWERS: u8 = 0;
const IS_TO_LOSE: u8 = 1;
const HAS_LOST: u8 = 2;

/// One over another.
#[derive(Debug)]
pub struct Forgetful {
    inner: Box<dyn StateManager>,
    answers: AtomicU8,
}

impl Forgetful {
    pub fn of(inner: impl StateManager + 'static) -> Self {
        Forgetful {
            inner: Box::new(inner),
            answers: AtomicU8::new(ANSWERS),
        }
    }

    /// The answer to the next change of a node's value is lost.
    pub fn lose_an_answer(&self) {
        self.answers.store(IS_TO_LOSE, Ordering::SeqCst);
    }

    /// Whether that has happened.
    pub fn has_lost_it(&self) -> bool {
        self.answers.load(Ordering::SeqCst) == HAS_LOST
    }
}

impl StateManager for Forgetful {
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
        Box::pin(async move {
            let answer = self.inner.set(path, value, expected).await;
            let (now, next) = (IS_TO_LOSE, HAS_LOST);
            let seq = Ordering::SeqCst;
            match self.answers.compare_exchange(now, next, seq, seq) {
                Ok(_) => Err(Error::new(ErrorCode::StateUnknown, "the answer is lost")),
                Err(_) => answer,
            }
        })
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        self.inner.delete(path, expected)
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
