//! Deduplication by key.

use std::any::Any;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Watermark,
};
use ardea_state::KeyedState;
use arrow_array::BooleanArray;

use super::{EXPIRED_PER_CALL, find_slots, keyed_state};
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::key::{GroupKey, KeyColumns};

/// Forwards the first record of each key and drops the others.
///
/// All keys are retained, unless [`within`](ColumnDistinctP::within) sets a time span. A record is
/// then forwarded if its event time is at least that span after the last forwarded record of its
/// key. A key expires when the watermark is that far ahead.
///
/// The records must have the routing of [`ColumnScatter`](crate::ColumnScatter) by the same key.
pub struct ColumnDistinctP {
    key: KeyColumns,
    span: Option<Duration>,
    /// The keys of forwarded records. A key is used when a record of it is forwarded.
    passed: KeyedState<GroupKey, ()>,
    /// The slots of the records of a batch; empty between calls.
    slots: Vec<u32>,
}

impl ColumnDistinctP {
    /// Creates an operator that deduplicates by `key`.
    pub fn new(key: KeyColumns) -> Self {
        ColumnDistinctP {
            key,
            span: None,
            passed: keyed_state(),
            slots: Vec::new(),
        }
    }

    /// Forwards a record of a key again if at least `span` of event time has passed since the last
    /// forwarded one.
    pub fn within(mut self, span: Duration) -> Self {
        self.span = Some(span);
        self.passed.set_ttl(span);
        self
    }

    /// Returns which records of a batch are not duplicates.
    fn select(&mut self, batch: &ColumnBatch) -> Result<BooleanArray> {
        let keys = self.key.encode(batch.records())?;
        if let Some(span) = self.span {
            self.slots.clear();
            find_slots(&mut self.passed, &keys, &mut self.slots, || ())?;
            let passed = &mut self.passed;
            let times = self.slots.iter().zip(batch.times());
            return Ok(times
                .map(|(slot, time)| {
                    // A late record, or one without event time, counts as of the watermark.
                    let time = (*time).max(passed.watermark().0);
                    let last = passed.last_used(*slot);
                    let passes = last.is_none_or(|last| time >= last + span);
                    if passes {
                        passed.use_at(*slot, time);
                    }
                    Some(passes)
                })
                .collect());
        }
        let mut passes = Vec::with_capacity(keys.len());
        for row in 0..keys.len() {
            let mut is_new = false;
            let key = std::borrow::Cow::Owned(keys.key(row));
            self.passed.slot(key, || is_new = true)?;
            passes.push(is_new);
        }
        Ok(BooleanArray::from(passes))
    }
}

impl Processor for ColumnDistinctP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.passed.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.passed.spill()?;
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let passes = self.select(&batch)?;
        self.passed.report_size();
        emit(outbox, Ordinal::FIRST, batch.filter(&passes)?)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.passed.set_watermark(watermark);
        self.passed.spill()?;
        if !self.passed.remove_expired(EXPIRED_PER_CALL)? {
            return Ok(Progress::MADE);
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.passed.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.passed.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.passed)
    }
}
