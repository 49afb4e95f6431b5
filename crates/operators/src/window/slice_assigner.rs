//! Assignment of records to open slices, and handling of late records.

use std::sync::Arc;

use ardea_core::{
    Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox, RecordGuard, Result, Rows,
    Timestamp, Watermark,
};

use super::spec::WindowSpec;
use crate::window::state::open_slices::OpenSlices;
use crate::window::state::partition_watermarks::PartitionWatermarks;
use crate::window::state::window_state::WindowStateRef;
use crate::{Feed, FeedVisitor, KeyedFold};

/// The open slices, and the rule for late records.
pub(crate) struct SliceAssigner<F: KeyedFold> {
    pub(crate) open: OpenSlices<F::Key, F::Acc>,
    pub(crate) late: LateRule,
}

/// The rule for late records, with their metrics.
pub(crate) struct LateRule {
    /// The watermarks by partition. A record is late by the watermark of its own partition.
    pub(crate) watermarks: PartitionWatermarks,
    /// Returns the time before which records are late at a watermark.
    late_before: LateBefore,
    /// Returns the time before which records may be late at a watermark for another reason than
    /// their time, if any.
    suspect_before: Option<LateBefore>,
    /// Records before this time are late. If partitions have different watermarks, the watermark of
    /// the record's partition decides instead.
    before: Timestamp,
    /// Records before this time may be late.
    suspects: Timestamp,
    metrics: Arc<InstanceMetrics>,
    /// The windows, if a record may be in several.
    windows: Option<WindowSpec>,
    /// Records before this time are missing in some of their windows.
    in_part_before: Timestamp,
}

/// A function from a watermark to the time before which records are late.
type LateBefore = Box<dyn Fn(Watermark) -> Timestamp + Send>;

impl<F: KeyedFold> SliceAssigner<F> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        SliceAssigner {
            open: OpenSlices::new(spec),
            late: LateRule {
                windows: (!F::OF_PARTIALS).then_some(spec),
                ..LateRule::new(move |watermark| spec.late_before(watermark))
            },
        }
    }

    /// Processes the records of `input` in the inbox: all of them, unless the output for late
    /// records is full.
    pub(crate) fn take(
        &mut self,
        fold: &F,
        input: Ordinal,
        (inbox, outbox): (&mut Inbox, &mut Outbox),
        kept: WindowStateRef<'_, F>,
    ) -> Result<()> {
        fold.visit(
            input,
            TakeChunk {
                fold,
                intake: self,
                input,
                inbox,
                outbox,
                kept,
            },
        )
    }
}

/// A visitor that adds a chunk of records to the open slices.
struct TakeChunk<'a, F: KeyedFold> {
    fold: &'a F,
    intake: &'a mut SliceAssigner<F>,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
    kept: WindowStateRef<'a, F>,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeChunk<'_, F> {
    type Output = ();

    #[inline]
    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let position = self.inbox.position();
        let rows = self.inbox.rows::<I::Record>()?;
        let SliceAssigner { open, late } = self.intake;
        let mut kept = self.kept;
        if open.hold_in_current(rows.times()) && late.watermarks.ahead().is_none() {
            if let Some(time) = rows.times().first() {
                late.count_in_part(*time, rows.times().len());
            }
            take_run(self.fold, feed, open, (rows.values(), 0), kept);
            rows.clear();
            return Ok(());
        }
        open.require(rows.times(), self.input, position)?;
        if late.has_any(rows.times()) {
            return late.separate_late(rows, self.input, self.outbox, |record, time, is_old| {
                let key = feed.key(record);
                if is_old && late.is_late(&*key, time) {
                    return false;
                }
                open.select(time);
                let acc = open.current().acc(self.fold, key, kept.as_deref_mut());
                feed.accumulate(acc, record);
                true
            });
        }
        let times = rows.times();
        let mut first = 0;
        while first < times.len() {
            open.select(times[first]);
            let run = times[first..]
                .iter()
                .take_while(|time| open.current_holds(**time))
                .count();
            late.count_in_part(times[first], run);
            let records = &rows.values()[first..first + run];
            take_run(self.fold, feed, open, (records, first), kept.as_deref_mut());
            first += run;
        }
        rows.clear();
        Ok(())
    }
}

/// Adds consecutive records of a chunk, all in the current slice. `first` is the index of the
/// first of them in the chunk.
#[inline]
fn take_run<F, I>(
    fold: &F,
    feed: &I,
    open: &mut OpenSlices<F::Key, F::Acc>,
    (records, first): (&[I::Record], usize),
    kept: WindowStateRef<'_, F>,
) where
    F: KeyedFold,
    I: Feed<Key = F::Key, Acc = F::Acc>,
{
    let key = |record| feed.key(record);
    let create = || fold.create();
    let update = |acc: &mut F::Acc, record| feed.accumulate(acc, record);
    let table = open.current();
    match kept {
        None => table.keys.update_each(records, first, key, create, update),
        Some(kept) => {
            let (id, keys) = (table.id(), &mut table.keys);
            if let Some(mut watch) = kept.watch_fresh(&mut table.stamps) {
                return keys.update_watched(records, first, key, create, update, &mut watch);
            }
            let mut watch = kept.watch(id, &mut table.stamps);
            keys.update_watched(records, first, key, create, update, &mut watch);
        }
    }
}

impl LateRule {
    /// Creates a rule by which records before `late_before(watermark)` are late. Initially, no
    /// records are late.
    pub(crate) fn new(late_before: impl Fn(Watermark) -> Timestamp + Send + 'static) -> Self {
        LateRule {
            watermarks: PartitionWatermarks::default(),
            late_before: Box::new(late_before),
            suspect_before: None,
            before: Timestamp::MIN,
            suspects: Timestamp::MIN,
            metrics: Arc::default(),
            windows: None,
            in_part_before: Timestamp::MIN,
        }
    }

    /// Adds a bound before which records may be late at a watermark for another reason than their
    /// time.
    pub(crate) fn suspect_before(
        mut self,
        suspect_before: impl Fn(Watermark) -> Timestamp + Send + 'static,
    ) -> Self {
        self.suspect_before = Some(Box::new(suspect_before));
        self
    }

    /// Attaches the rule to an instance and its metrics.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.metrics = Arc::clone(&context.metrics);
        self.watermarks.attach(context);
    }

    /// Advances to `watermark`, so that more records are late.
    pub(crate) fn advance(&mut self, watermark: Watermark) {
        self.watermarks.advance(watermark);
        self.update_bounds();
    }

    /// Completes the restore of the watermarks.
    pub(crate) fn restored(&mut self) {
        self.watermarks.restored();
        self.update_bounds();
    }

    fn update_bounds(&mut self) {
        let ahead = self.watermarks.ahead().unwrap_or_default().iter().copied();
        let furthest = ahead.fold(self.watermarks.now(), Watermark::max);
        self.before = (self.late_before)(furthest);
        self.suspects = match &self.suspect_before {
            Some(suspect_before) => suspect_before(furthest).max(self.before),
            None => self.before,
        };
        let now = self.watermarks.now();
        let windows = self.windows.as_ref();
        self.in_part_before = windows.map_or(Timestamp::MIN, |it| it.late_in_part_before(now));
    }

    /// Returns true if a record with this key and event time is late. Exact, and slower than
    /// [`has_any`](Self::has_any), which excludes most records.
    pub(crate) fn is_late<K: Key>(&self, key: &K, time: Timestamp) -> bool {
        match self.watermarks.ahead() {
            None => time < self.before,
            Some(_) => time < (self.late_before)(self.watermarks.of(key)),
        }
    }

    /// Counts records of one slice that were added after some of their windows had closed. `time`
    /// is the event time of one of the records.
    #[inline]
    fn count_in_part(&self, time: Timestamp, records: usize) {
        if time < self.in_part_before {
            self.metrics.count_late_in_part(records as u64);
        }
    }

    /// Returns a time such that records at this time or later are not late.
    pub(crate) fn suspects(&self) -> Timestamp {
        self.suspects
    }

    /// Returns true if any of `times` may be late.
    pub(crate) fn has_any(&self, times: &[Timestamp]) -> bool {
        times.iter().any(|time| *time < self.suspects)
    }

    /// Passes records from the front to `admit`, with a flag if they may be late, in which case
    /// `admit` must check [`is_late`](Self::is_late). `admit` returns true if it has added the
    /// record, as it must for records without the flag. The other records are late: they are
    /// counted and moved to the output for late records. Stops before that output overflows; the
    /// remaining records stay in the inbox.
    pub(crate) fn separate_late<T: Send + 'static>(
        &self,
        rows: &mut Rows<T>,
        input: Ordinal,
        outbox: &mut Outbox,
        mut admit: impl FnMut(&T, Timestamp, bool) -> bool,
    ) -> Result<()> {
        let output = Ordinal(input.0 + 1);
        let mut lane = match outbox.lanes() > output.index() {
            true => Some(outbox.lane::<T>(output)?),
            false => None,
        };
        let room = lane.as_ref().map_or(usize::MAX, |lane| lane.room());
        let mut old = 0;
        let fitting = rows.times().iter().take_while(|time| {
            old += usize::from(**time < self.suspects);
            old <= room
        });
        let count = fitting.count();
        let mut guard = RecordGuard::new();
        let (mut late, mut in_part) = (0, 0);
        for (record, time) in rows.drain_front(count) {
            if !admit(&record, time, time < self.suspects) {
                late += 1;
                if let Some(lane) = &mut lane {
                    lane.push(record, time);
                }
            } else if time < self.in_part_before {
                in_part += 1;
            }
            guard.advance();
        }
        self.metrics.count_late(late);
        self.metrics.count_late_in_part(in_part);
        Ok(())
    }
}
