//! The first stage of windows over columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::{
    Epoch, Error, ErrorCode, Inbox, InstanceContext, InstanceMetrics, OnError, Ordinal, Outbox,
    Processor, Progress, Result, Timestamp, Watermark,
};
use ardea_operators::{Partial, Slice, WindowSpec, require_times};
use arrow_array::{ArrayRef, BooleanArray};
use arrow_select::filter::filter;

use super::BoundAggregate;
use super::group_function::{BatchPart, GroupAggregates, GroupFunction};
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::error::arrow_error;
use crate::key::{EncodedKeys, GroupIndex, GroupKey, KeyColumns};
use crate::steps::ExprList;

/// The default maximum number of groups over all open slices.
const MOST_GROUPS: usize = 64 * 1024;

/// Aggregates the records of each key over slices of time, or computes another function of them.
///
/// Emits a [`Partial`] for each key of a slice when the watermark closes the slice, at the end of
/// an epoch, or when there are more than [`groups_max`](Self::groups_max) groups. It therefore has
/// no state to checkpoint. A [`SlidingWindowP`](ardea_operators::SlidingWindowP) with the same
/// [`WindowSpec`] combines the partial results by
/// [`AccumulatorCombine`](super::AccumulatorCombine).
///
/// Late records are counted and sent to the second output, if the vertex has one. A record for
/// which an argument of an aggregate has no value is handled by the error policy; the default is
/// dead letters.
pub struct ColumnSliceP<F: GroupFunction = GroupAggregates> {
    /// The slices; `None` if all records are in one.
    spec: Option<WindowSpec>,
    key: KeyColumns,
    function: F,
    arguments: ExprList,
    open: BTreeMap<Slice, SliceGroups<F::Values>>,
    /// The slice being emitted, and the number of groups emitted.
    emitting: Option<(Slice, SliceGroups<F::Values>, usize)>,
    groups_max: usize,
    /// True while all slices are emitted, closed or not.
    relieving: bool,
    watermark: Watermark,
    metrics: Arc<InstanceMetrics>,
    /// The groups of the records of a run; empty between calls.
    groups: Vec<u32>,
}

/// The groups of a slice, and their values.
#[derive(Default)]
struct SliceGroups<V> {
    keys: GroupIndex,
    values: V,
}

impl ColumnSliceP {
    /// Creates a first stage with the slices of `spec`.
    pub fn new(spec: WindowSpec, key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Self {
        ColumnSliceP::with(Some(spec), key, GroupAggregates(aggregates))
    }

    /// Creates a first stage without windows: all records are in one slice, which ends with the
    /// input. Records need no event time.
    pub fn of_all(key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Self {
        ColumnSliceP::with(None, key, GroupAggregates(aggregates))
    }
}

impl<F: GroupFunction> ColumnSliceP<F> {
    /// Creates a first stage of a function of each group, with the slices of `spec` if there are
    /// windows.
    pub(crate) fn with(spec: Option<WindowSpec>, key: KeyColumns, function: F) -> Self {
        ColumnSliceP {
            spec,
            key,
            arguments: ExprList::new(function.arguments()),
            function,
            open: BTreeMap::new(),
            emitting: None,
            groups_max: MOST_GROUPS,
            relieving: false,
            watermark: Watermark::NONE,
            metrics: Arc::default(),
            groups: Vec::new(),
        }
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.arguments = self.arguments.on_error(policy);
        self
    }

    /// Sets the maximum number of groups over all open slices. With more, all slices are emitted
    /// early.
    pub fn groups_max(mut self, groups: usize) -> Self {
        self.groups_max = groups;
        self
    }

    /// Emits slices before `limit` while there is room; all if there is no limit. Returns true if
    /// they are emitted.
    fn emit_before(&mut self, limit: Option<Slice>, outbox: &mut Outbox) -> Result<bool> {
        loop {
            let Some((slice, groups, next)) = &mut self.emitting else {
                let first = self.open.first_entry();
                let first = first.filter(|it| limit.is_none_or(|limit| *it.key() < limit));
                let Some((slice, groups)) = first.map(|it| it.remove_entry()) else {
                    return Ok(true);
                };
                self.emitting = Some((slice, groups, 0));
                continue;
            };
            let mut lane = outbox.lane::<Partial<GroupKey, F::Acc>>(Ordinal::FIRST)?;
            let spec = self.spec.as_ref();
            let time = spec.map_or(Timestamp::MIN, |spec| spec.last_of(*slice));
            let after = groups.keys.len().min(*next + lane.room());
            for group in *next..after {
                let acc = self.function.take(&mut groups.values, group);
                let key = groups.keys.keys()[group].clone();
                lane.push(Partial { key, acc }, time);
            }
            *next = after;
            if after < groups.keys.len() {
                return Ok(false);
            }
            self.emitting = None;
        }
    }

    /// Emits the slices that `watermark` closes. Without windows, only the end closes the slice.
    fn emit_closed(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let limit = match &self.spec {
            _ if watermark == Watermark::END => None,
            None => return Ok(Progress::DONE),
            Some(spec) => Some(spec.first_open(watermark)),
        };
        Ok(Progress::done_if(self.emit_before(limit, outbox)?))
    }

    /// Sends late records to the second output, and returns the others with their arguments.
    fn separate_late(
        &self,
        spec: &WindowSpec,
        (batch, arguments): (ColumnBatch, Vec<ArrayRef>),
        outbox: &mut Outbox,
    ) -> Result<(ColumnBatch, Vec<ArrayRef>)> {
        let before = spec.late_before(self.watermark);
        let late = batch.times().iter().filter(|time| **time < before).count();
        if late == 0 {
            return Ok((batch, arguments));
        }
        self.metrics.count_late(late as u64);
        let mask = |is_late: bool| -> BooleanArray {
            let times = batch.times().iter();
            times
                .map(|time| Some((*time < before) == is_late))
                .collect()
        };
        if outbox.lanes() > Ordinal::SECOND.index() {
            emit(outbox, Ordinal::SECOND, batch.filter(&mask(true))?)?;
        }
        let in_time = mask(false);
        let arguments = arguments.iter().map(|values| filter(values, &in_time));
        let arguments = arguments
            .collect::<Result<_, _>>()
            .map_err(|error| arrow_error("late records could not be removed", error))?;
        Ok((batch.filter(&in_time)?, arguments))
    }

    /// Adds the records of a batch to the groups of their slices.
    fn add(
        &mut self,
        batch: &ColumnBatch,
        keys: &EncodedKeys,
        arguments: &[ArrayRef],
    ) -> Result<()> {
        let times = batch.times();
        let mut first = 0;
        while first < times.len() {
            let (slice, after) = match &self.spec {
                None => (0, times.len()),
                Some(spec) => {
                    let slice = spec.slice_of(times[first]);
                    let (from, to) = (spec.first_of(slice), spec.last_of(slice));
                    let rest = times[first..].iter();
                    let run = rest.take_while(|it| (from..=to).contains(*it));
                    (slice, first + run.count().max(1))
                }
            };
            let open = self.open.entry(slice).or_default();
            self.groups.clear();
            open.keys.group(keys, first..after, &mut self.groups);
            let part = BatchPart {
                records: batch.records(),
                arguments,
                rows: first..after,
                groups: &self.groups,
            };
            let groups = open.keys.len();
            self.function.add(&mut open.values, groups, &part)?;
            first = after;
        }
        self.groups.clear();
        Ok(())
    }
}

impl<F: GroupFunction> Processor for ColumnSliceP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.arguments.attach(context);
        self.metrics = Arc::clone(&context.metrics);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let open: usize = self.open.values().map(|groups| groups.keys.len()).sum();
        self.relieving |= open > self.groups_max;
        if self.relieving {
            if !self.emit_before(None, outbox)? {
                return Ok(());
            }
            self.relieving = false;
        }
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::SECOND])? else {
            return Ok(());
        };
        if let Some(spec) = &self.spec {
            require_slices(spec, batch.times(), input, position)?;
        }
        let mut evaluated = self.arguments.evaluate(batch, input, position)?;
        if let Some(spec) = &self.spec {
            evaluated = self.separate_late(spec, evaluated, outbox)?;
        }
        let (batch, arguments) = evaluated;
        let keys = self.key.encode(batch.records())?;
        self.add(&batch, &keys, &arguments)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.emit_closed(watermark, outbox)?;
        if progress.done {
            self.watermark = self.watermark.max(watermark);
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    /// Emits all slices, so that no state remains at the end of an epoch.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let done = self.emit_before(None, outbox)?;
        self.relieving &= !done;
        Ok(Progress { made, done })
    }

    /// Closes all slices, in case no watermark at the end of time has closed them.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_closed(Watermark::END, outbox)
    }
}

/// Checks that each record has an event time whose windows end before the end of time.
fn require_slices(
    spec: &WindowSpec,
    times: &[Timestamp],
    input: Ordinal,
    position: u64,
) -> Result<()> {
    require_times(times, input, position)?;
    let latest = spec.latest();
    let Some(row) = times.iter().position(|time| *time > latest) else {
        return Ok(());
    };
    let time = times[row];
    let what = format!("a record at {time} came to windows that would end after the end of time");
    Err(Error::new(ErrorCode::InvalidJob, what)
        .at_record(input.index(), position + row as u64)
        .hint("give it an earlier time"))
}
