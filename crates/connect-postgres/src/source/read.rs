//! The processor that reads rows.

use std::collections::VecDeque;
use std::marker::PhantomData;

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, InstanceContext, OnError, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, Timestamp,
};
use serde::de::DeserializeOwned;

use super::Plan;
use super::pages::Read;
use super::reader::{News, Reader};
use super::strands::Strands;
use crate::TURN;

/// Makes records of rows that are read ahead.
pub(crate) struct ReadP<T> {
    plan: Plan,
    bad: BadRecords,
    strands: Strands,
    reader: Option<Reader>,
    /// Rows that have been read and not been delivered, and of which strand they are.
    at_hand: (usize, VecDeque<Read>),
    record: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> ReadP<T> {
    pub fn new(plan: Plan, on_error: OnError) -> Self {
        ReadP {
            bad: BadRecords::new(on_error),
            strands: Strands::new(ardea_core::Instance::ONLY, plan.block.get()),
            plan,
            reader: None,
            at_hand: (0, VecDeque::new()),
            record: PhantomData,
        }
    }

    /// Sees to it that there are rows at hand, if there are any now.
    fn fetch(&mut self) -> Result<()> {
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                let reader = Reader::begin(&self.plan, self.strands.all())?;
                self.reader.insert(reader)
            }
        };
        match reader.take(TURN)? {
            None => {}
            Some(News::Page(strand, rows)) => self.at_hand = (strand, rows.into()),
            Some(News::End(strand)) => self.strands.finish(strand),
        }
        Ok(())
    }

    /// Delivers what is at hand, as far as there is room.
    fn deliver(&mut self, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let mut guard = RecordGuard::new();
        let (strand, rows) = &mut self.at_hand;
        while lane.room() > 0
            && let Some(Read { key, json }) = rows.pop_front()
        {
            match serde_json::from_str(&json) {
                Ok(record) => lane.push(record, Timestamp::MIN),
                Err(error) => {
                    let (name, column) = (&self.plan.name, &self.plan.key);
                    let origin = || format!("{name} where {column} = {key}");
                    self.bad
                        .report(origin, || json.clone().into_bytes(), error)?;
                }
            }
            self.strands.deliver(*strand, key);
            guard.advance();
        }
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> Processor for ReadP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.strands = Strands::new(context.instance, self.plan.block.get());
        // An address that makes no sense is told at once.
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

    fn is_at_end(&self) -> bool {
        self.at_hand.1.is_empty() && self.strands.are_done()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.strands.take_cut()
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.strands.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.strands.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.strands.resume()?;
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.reader = None;
    }
}
