//! A wrapper of a metadata store that injects faults, for tests of its clients.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::{
    Expected, MetadataStore, Node, Pending, Session, SessionEnding, StatePath, StoreAddress,
    Version, Watcher,
};

/// A fault of a [`FaultyStore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// The store does not respond.
    Away,
    /// The disk is full: reads succeed, changes fail.
    Full,
    /// The next node is written, but the response is lost. After that there is no fault.
    LoseResponse,
    /// Another process writes the next node to be removed just before its removal. After that
    /// there is no fault.
    WriteBeforeDelete,
    /// The next node is written, and after that the store is [`Damaged`](Fault::Damaged).
    DamagedByWrite {
        /// True if nodes can be removed while the store is damaged.
        is_removable: bool,
    },
    /// No existing node can be read.
    Damaged {
        /// True if nodes can be written and removed.
        is_removable: bool,
    },
}

/// A metadata store that wraps another one.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn MetadataStore>,
    fault: Mutex<Fault>,
}

impl FaultyStore {
    /// Wraps a store, without a fault.
    pub fn over(inner: Arc<dyn MetadataStore>) -> Self {
        let fault = Mutex::new(Fault::None);
        FaultyStore { inner, fault }
    }

    /// Sets the fault.
    pub fn set_fault(&self, fault: Fault) {
        *self.lock() = fault;
    }

    /// Returns the fault.
    pub fn fault(&self) -> Fault {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(&'a self, call: Pending<'a, T>) -> Pending<'a, T> {
        match self.fault() {
            Fault::Away => refused(Error::new(ErrorCode::StateUnavailable, "away")),
            Fault::Damaged { .. } => refused(Error::new(ErrorCode::MetastoreCorrupt, "damaged")),
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
                // The error of the operating system for a full disk, number 28.
                let why = io::Error::from_raw_os_error(28);
                let place = StoreAddress::new(self.inner.place());
                refused(place.unavailable(format!("write {path}"), why))
            }
            Fault::Damaged { is_removable: true } => call,
            Fault::Damaged { .. } => refused(Error::new(ErrorCode::MetastoreRefused, "denied")),
            _ => self.read(call),
        }
    }

    /// Returns true if another process writes the node that is about to be removed.
    fn overtaking(&self) -> bool {
        let mut fault = self.lock();
        let overtaking = *fault == Fault::WriteBeforeDelete;
        if overtaking {
            *fault = Fault::None;
        }
        overtaking
    }

    /// Returns the result of a change, or an error if the response is to be lost.
    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        let mut fault = self.lock();
        match *fault {
            Fault::LoseResponse => {
                *fault = Fault::None;
                Err(Error::new(ErrorCode::OutcomeUnknown, "the answer is lost"))
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

impl MetadataStore for FaultyStore {
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
        let call = self.change(path, self.inner.delete(path, expected));
        let overtaking = self.overtaking();
        Box::pin(async move {
            if overtaking && let Some(node) = self.inner.get(path).await? {
                self.inner.set(path, &node.value, Expected::Any).await?;
            }
            call.await
        })
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
