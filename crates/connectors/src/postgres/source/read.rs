//! Reader of the PostgreSQL source.

use std::collections::VecDeque;
use std::marker::PhantomData;

use ardea_core::{BadRecords, Checkpointed, InstanceContext, OnError, RecordGuard, Result};
use serde::de::DeserializeOwned;

use super::PostgresSourceConfig;
use super::json::from_json;
use super::key_splits::KeySplits;
use super::page::PageRow;
use super::reader::{self, Reader, ReaderEvent};
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::source_builder::{PollStatus, SourceBatch, SourceReader};

/// Reader that deserializes prefetched rows.
pub(crate) struct PostgresReader<T> {
    plan: PostgresSourceConfig,
    bad: BadRecords,
    strands: KeySplits,
    reader: Option<Reader>,
    /// Index of the current range, and its rows not emitted yet.
    at_hand: (usize, VecDeque<PageRow>),
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> PostgresReader<T> {
    pub fn new(plan: PostgresSourceConfig, on_error: OnError) -> Self {
        PostgresReader {
            bad: BadRecords::new(on_error),
            strands: KeySplits::new(ardea_core::Instance::ONLY, plan.block.get()),
            plan,
            reader: None,
            at_hand: (0, VecDeque::new()),
            record: PhantomData,
        }
    }

    /// Fetches rows; returns false if none are available.
    fn fetch(&mut self) -> Result<bool> {
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                let reader = reader::start(&self.plan, self.strands.all(), self.strands.table())?;
                self.reader.insert(reader)
            }
        };
        match reader.take(CANCEL_CHECK_INTERVAL, VecDeque::pop_front)? {
            None => return Ok(false),
            Some(ReaderEvent::Page(strand, page)) => {
                self.strands.note_table(page.identity);
                self.at_hand = (strand, page.rows.into());
            }
            Some(ReaderEvent::End(strand)) => self.strands.finish(strand),
        }
        Ok(true)
    }

    /// Emits fetched rows while there is room.
    fn emit(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<()> {
        let mut guard = RecordGuard::new();
        let (strand, rows) = &mut self.at_hand;
        while batch.has_room()
            && let Some(PageRow { key, json }) = rows.pop_front()
        {
            let record = json
                .as_deref()
                .map_err(|why| format!("the server cannot return the row: {why}"));
            let record = record.and_then(|json| {
                let text = str::from_utf8(json).map_err(|error| error.to_string())?;
                from_json(text).map_err(|error| error.to_string())
            });
            let json = json.unwrap_or_default();
            match record {
                Ok(record) => batch.push(record),
                Err(why) => {
                    let (name, column) = (&self.plan.name, &self.plan.key);
                    let origin = || format!("{name} where {column} = {key}");
                    self.bad.report(origin, || json.clone(), why)?;
                }
            }
            self.strands.deliver(*strand, key, json);
            guard.advance();
        }
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> SourceReader for PostgresReader<T> {
    type Record = T;

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.strands = KeySplits::new(context.instance, self.plan.block.get());
        // Reports an invalid address at once.
        self.plan.address.server().map(drop)
    }

    fn poll(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<PollStatus> {
        if self.at_hand.1.is_empty() && !self.fetch()? {
            return Ok(PollStatus::Idle);
        }
        self.emit(batch)?;
        Ok(PollStatus::end_if(self.is_at_end()))
    }

    fn is_at_end(&self) -> bool {
        self.at_hand.1.is_empty() && self.strands.are_done()
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.strands)
    }

    fn close(&mut self) {
        self.reader = None;
    }
}
