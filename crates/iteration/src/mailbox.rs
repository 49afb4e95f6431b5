//! The received messages of a process.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::exchange::ExchangeMessage;

#[derive(Default)]
struct MailboxState {
    messages: VecDeque<ExchangeMessage>,
    lost: Option<Error>,
    is_closed: bool,
}

/// The received messages of a process. A lost peer is reported after all messages.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    changed: Condvar,
}

/// The message that is delivered next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeliveryOrder {
    OldestFirst,
    LatestFirst,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        // The state is changed by complete steps only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, message: ExchangeMessage) {
        self.lock().messages.push_back(message);
        self.changed.notify_all();
    }

    /// Reports that a peer was lost before it has finished.
    pub(crate) fn lose(&self, process: u32, reason: Option<Error>) {
        let what = format!("process {process} of the iteration was lost");
        let mut error = Error::new(ErrorCode::PeerLost, what);
        if let Some(reason) = reason {
            error = error.because(reason);
        }
        let error = error.hint("restore all processes from one snapshot");
        self.lock().lost.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for the next message. Returns `None` if the mailbox is closed.
    pub(crate) fn receive(&self, order: DeliveryOrder) -> Result<Option<ExchangeMessage>> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return Ok(None);
            }
            let next = match order {
                DeliveryOrder::OldestFirst => state.messages.pop_front(),
                DeliveryOrder::LatestFirst => state.messages.pop_back(),
            };
            if next.is_some() {
                return Ok(next);
            }
            if let Some(error) = &state.lost {
                return Err(error.clone());
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
