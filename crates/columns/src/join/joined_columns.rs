//! The pairs of an interval join in columns.

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use super::JoinedLayout;
use crate::batch::emit;
use crate::record::EncodedRecord;

/// A left record, and the right record that it is joined with, if any.
pub(crate) struct JoinedRecord {
    pub(crate) left: EncodedRecord,
    pub(crate) right: Option<EncodedRecord>,
}

/// Converts [`JoinedRecord`]s to columns. Event times stay.
pub(crate) struct JoinedColumnsP {
    layout: JoinedLayout,
}

impl JoinedColumnsP {
    pub(crate) fn new(layout: JoinedLayout) -> Self {
        JoinedColumnsP { layout }
    }
}

impl Processor for JoinedColumnsP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let pairs = inbox.rows::<JoinedRecord>()?;
        let values = pairs.values().iter();
        let left = self
            .layout
            .decode_left(values.clone().map(|pair| &pair.left))?;
        let right = values.map(|pair| pair.right.as_ref());
        let right = self.layout.decode_right(right)?;
        let batch = self.layout.batch(left, right, pairs.times().to_vec())?;
        pairs.clear();
        emit(outbox, Ordinal::FIRST, batch)
    }
}
