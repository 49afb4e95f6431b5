//! A state manager over another one that fails as it is told to, for tests of those who rely on one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::{
    Expected, Node, Pending, Place, Session, SessionEnding, StateManager, StatePath, Version,
    Watcher,
};

/// What is wrong with a [`Faulty`] state manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// It answers nothing.
    Away,
    /// Its disk is full: it reads, and takes no change.
    Full,
    /// The next node is written, and the answer is lost. After that nothing is wrong any more.
    LosesAnswer,
    /// The next node is written, and after that it is [`Damaged`](Fault::Damaged).
    DamagedByWrite {
        /// Whether nodes can be removed then.
        is_removable: bool,
    },
    /// Nothing that is there can be read.
    Damaged {
        /// Whether nodes can be written and removed.
        is_removable: bool,
    },
}

/// One over another.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn StateManager>,
    fault: Mutex<Fault>,
}

impl Faulty {
    /// With which nothing is wrong yet.
    pub fn over(inner: Arc<dyn StateManager>) -> Self {
        let fault = Mutex::new(Fault::None);
        Faulty { inner, fault }
    }

    /// From now on this is wrong with it.
    pub fn has(&self, fault: Fault) {
        *self.lock() = fault;
    }

    /// What is wrong with it.
    pub fn fault(&self) -> Fault {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(&'a self, call: Pending<'a, T>) -> Pending<'a, T> {
        match self.fault() {
            Fault::Away => refused(Error::new(ErrorCode::StateUnavailable, "away")),
            Fault::Damaged { .. } => refused(Error::new(ErrorCode::StateCorrupt, "damaged")),
            _ => call,
        }
    }

    fn change<'a, T: Send + 'a>(
        &'a self,
        path: &StatePath,
        call: Pending<'a, T>,
    ) -> Pending<'a, T> {
        match self.fault() {
            Fault::Full => {
                // What the system says then: error 28.
                let why = io::Error::from_raw_os_error(28);
                let place = Place::new(self.inner.place());
                refused(place.unavailable(format!("write {path}"), why))
            }
            Fault::Damaged { is_removable: true } => call,
            Fault::Damaged { .. } => refused(Error::new(ErrorCode::StateRefused, "denied")),
            _ => self.read(call),
        }
    }

    /// The answer to a change that was made, unless it is to be lost.
    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        let mut fault = self.lock();
        match *fault {
            Fault::LosesAnswer => {
                *fault = Fault::None;
                Err(Error::new(ErrorCode::StateUnknown, "the answer is lost"))
            }
            Fault::DamagedByWrite { is_removable } => {
                *fault = Fault::Damaged { is_removable };
                answer
            }
            _ => answer,
        }
    }
}

fn refused<'a, T: Send + 'a>(why: Error) -> Pending<'a, T> {
    Box::pin(async { Err(why) })
}

impl StateManager for Faulty {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        self.read(self.inner.get(path))
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        let call = self.change(path, self.inner.set(path, value, expected));
        Box::pin(async { self.answer(call.await) })
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        self.change(path, self.inner.delete(path, expected))
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        self.read(self.inner.children(path))
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        self.read(self.inner.watch_node(path))
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        self.read(self.inner.watch_children(path))
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        self.read(self.inner.open_session())
    }
}
