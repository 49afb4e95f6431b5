//! Processor of the PostgreSQL source.

use std::collections::VecDeque;
use std::marker::PhantomData;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, InstanceContext, OnError, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, SourceControl,
    Timestamp,
};
use serde::de::DeserializeOwned;

use super::PostgresSourceConfig;
use super::json::from_json;
use super::key_splits::KeySplits;
use super::page::PageRow;
use super::reader::{self, Reader, ReaderEvent};
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;

/// Processor that deserializes prefetched rows.
pub(crate) struct ReadP<T> {
    plan: PostgresSourceConfig,
    bad: BadRecords,
    strands: KeySplits,
    reader: Option<Reader>,
    /// Index of the current range, and its rows not emitted yet.
    at_hand: (usize, VecDeque<PageRow>),
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> ReadP<T> {
    pub fn new(plan: PostgresSourceConfig, on_error: OnError) -> Self {
        ReadP {
            bad: BadRecords::new(on_error),
            strands: KeySplits::new(ardea_core::Instance::ONLY, plan.block.get()),
            plan,
            reader: None,
            at_hand: (0, VecDeque::new()),
            record: PhantomData,
        }
    }

    /// Fetches rows if some are available.
    fn fetch(&mut self) -> Result<()> {
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                let reader = reader::start(&self.plan, self.strands.all(), self.strands.table())?;
                self.reader.insert(reader)
            }
        };
        match reader.take(CANCEL_CHECK_INTERVAL, VecDeque::pop_front)? {
            None => {}
            Some(ReaderEvent::Page(strand, page)) => {
                self.strands.note_table(page.identity);
                self.at_hand = (strand, page.rows.into());
            }
            Some(ReaderEvent::End(strand)) => self.strands.finish(strand),
        }
        Ok(())
    }

    /// Emits fetched rows while there is space.
    fn deliver(&mut self, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let mut guard = RecordGuard::new();
        let (strand, rows) = &mut self.at_hand;
        while lane.room() > 0
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
                Ok(record) => lane.push(record, Timestamp::MIN),
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

impl<T: DeserializeOwned + Send + 'static> Processor for ReadP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.strands = KeySplits::new(context.instance, self.plan.block.get());
        // Reports an invalid address at once.
        self.plan.address.server().map(drop)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.bad.context().signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if self.at_hand.1.is_empty() {
            if self.strands.are_done() {
                return Ok(Progress::DONE);
            }
            self.fetch()?;
        }
        if self.at_hand.1.is_empty() {
            return Ok(Progress::NONE);
        }
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        self.deliver(outbox)?;
        Ok(Progress::MADE)
    }

    fn close(&mut self) {
        self.reader = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: DeserializeOwned + Send + 'static> Checkpointed for ReadP<T> {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.strands.take_snapshot()
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.strands.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.strands.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.strands.resume()?;
        Ok(Progress::DONE)
    }
}

impl<T: DeserializeOwned + Send + 'static> SourceControl for ReadP<T> {
    fn is_at_end(&self) -> bool {
        self.at_hand.1.is_empty() && self.strands.are_done()
    }
}
