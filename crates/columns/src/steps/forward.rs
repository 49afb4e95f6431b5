//! Forwarding of batches.

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use crate::batch::{emit, take_if_free};

/// Forwards batches, after an exchange between instances.
pub(crate) struct ForwardP;

impl Processor for ForwardP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        match take_if_free(inbox, outbox, &[Ordinal::FIRST])? {
            Some(batch) => emit(outbox, Ordinal::FIRST, batch),
            None => Ok(()),
        }
    }
}
