//! Records of columns as rows of bytes.

use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Result, Rows};

use crate::batch::take_if_free;
use crate::key::KeyColumns;
use crate::record::{KeyedRecord, RecordLayout};

/// Converts records in columns to rows of [`KeyedRecord`]s. Event times stay.
pub(crate) struct KeyedRecordsP {
    key: KeyColumns,
    layout: RecordLayout,
}

impl KeyedRecordsP {
    /// Creates a step for records with this key and layout.
    pub(crate) fn new(key: KeyColumns, layout: RecordLayout) -> Self {
        KeyedRecordsP { key, layout }
    }
}

impl Processor for KeyedRecordsP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let keys = self.key.encode(batch.records())?;
        let mut encoder = self.layout.encoder(batch.records())?;
        let mut rows = Rows::with_capacity(batch.len());
        for (row, time) in batch.times().iter().enumerate() {
            let (key, record) = (keys.key(row), encoder.encode(row));
            rows.push(KeyedRecord { key, record }, *time);
        }
        if !rows.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(rows))?;
        }
        Ok(())
    }
}
