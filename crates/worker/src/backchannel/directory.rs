//! A directory of remote mailboxes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::messages::Address;
use super::sender::RemoteQueue;

/// The mailboxes of remote instances. Messages pass through the directory only from or to the
/// processes of instances.
#[derive(Default)]
pub(super) struct Directory(RwLock<BTreeMap<Address, Arc<RemoteQueue>>>);

impl Directory {
    /// Replaces the set of remote mailboxes.
    pub(super) fn set(&self, mailboxes: BTreeMap<Address, Arc<RemoteQueue>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = mailboxes;
    }

    /// Relays a message to the remote mailbox at `address`. Returns false if the address is local.
    pub(super) fn relay(&self, address: Address, letter: &[u8]) -> bool {
        let mailboxes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let far = mailboxes.get(&address);
        if let Some(far) = far {
            far.relay(letter);
        }
        far.is_some()
    }
}
