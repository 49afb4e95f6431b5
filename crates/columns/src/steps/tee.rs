//! Copies of a stream.

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use crate::batch::{emit, take_if_free};

/// Emits each batch to both outputs. The copies share their columns.
pub(crate) struct ColumnTeeP;

impl Processor for ColumnTeeP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let both = [Ordinal::FIRST, Ordinal::SECOND];
        let Some(batch) = take_if_free(inbox, outbox, &both)? else {
            return Ok(());
        };
        if outbox.lanes() > Ordinal::SECOND.index() {
            emit(outbox, Ordinal::SECOND, batch.clone())?;
        }
        emit(outbox, Ordinal::FIRST, batch)
    }
}
