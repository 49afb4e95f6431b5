//! Which mailboxes are elsewhere, for those who bring mail for them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::carrier::FarMailbox;
use super::letters::Address;

/// The mailboxes that are elsewhere. Mail for them comes here only on its way from, or to, the process of an instance.
#[derive(Default)]
pub(super) struct Directory(RwLock<BTreeMap<Address, Arc<FarMailbox>>>);

impl Directory {
    /// These are elsewhere from now on, and no others.
    pub(super) fn set(&self, mailboxes: BTreeMap<Address, Arc<FarMailbox>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = mailboxes;
    }

    /// Has a letter carried on, if it is for somebody elsewhere.
    pub(super) fn relay(&self, address: Address, letter: &[u8]) -> bool {
        let mailboxes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let far = mailboxes.get(&address);
        if let Some(far) = far {
            far.relay(letter);
        }
        far.is_some()
    }
}
