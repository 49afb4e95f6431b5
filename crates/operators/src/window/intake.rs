//! How a chunk of records gets into the open slices, and where late ones go.

use std::sync::Arc;

use ardea_core::{
    Inbox, InstanceMetrics, Ordinal, Outbox, RecordGuard, Result, Rows, Timestamp, Watermark,
};

use super::open_slices::OpenSlices;
use super::spec::WindowSpec;
use crate::{Feed, FeedVisitor, KeyedFold};

/// The open slices with what decides which records get into them.
pub(crate) struct Intake<F: KeyedFold> {
    pub(crate) open: OpenSlices<F::Key, F::Acc>,
    pub(crate) late: LateRule,
}

/// Which records are late, and where they are counted.
pub(crate) struct LateRule {
    before: Timestamp,
    metrics: Arc<InstanceMetrics>,
}

impl<F: KeyedFold> Intake<F> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        Intake {
            open: OpenSlices::new(spec),
            late: LateRule::new(),
        }
    }

    /// Counts late records in `metrics` from now on.
    pub(crate) fn count_in(&mut self, metrics: &Arc<InstanceMetrics>) {
        self.late.metrics = Arc::clone(metrics);
    }

    /// Time has come to `watermark`: more records are late.
    pub(crate) fn advance(&mut self, spec: &WindowSpec, watermark: Watermark) {
        self.late.advance(spec.late_before(watermark));
    }

    /// Takes as many records of `input` out of the inbox as it can: all, unless the output for late records is full.
    pub(crate) fn take(
        &mut self,
        fold: &F,
        input: Ordinal,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
    ) -> Result<()> {
        fold.visit(
            input,
            TakeChunk {
                fold,
                intake: self,
                input,
                inbox,
                outbox,
            },
        )
    }
}

/// Takes a chunk of the feed that it visits into the open slices.
struct TakeChunk<'a, F: KeyedFold> {
    fold: &'a F,
    intake: &'a mut Intake<F>,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
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
        let open = &mut self.intake.open;
        if open.hold_in_current(rows.times()) {
            take_run(self.fold, feed, open, rows.values(), 0);
            rows.clear();
            return Ok(());
        }
        open.require(rows.times(), self.input, position)?;
        if self.intake.late.has_any(rows.times()) {
            return take_with_late(feed, self.fold, self.intake, rows, self.input, self.outbox);
        }
        let times = rows.times();
        let mut first = 0;
        while first < times.len() {
            open.select(times[first]);
            let run = times[first..]
                .iter()
                .take_while(|time| open.current_holds(**time))
                .count();
            let records = &rows.values()[first..first + run];
            take_run(self.fold, feed, open, records, first);
            first += run;
        }
        rows.clear();
        Ok(())
    }
}

/// Takes `records`, which are all in the slice at hand and start at `first` in their chunk.
#[inline]
fn take_run<F, I>(
    fold: &F,
    feed: &I,
    open: &mut OpenSlices<F::Key, F::Acc>,
    records: &[I::Record],
    first: usize,
) where
    F: KeyedFold,
    I: Feed<Key = F::Key, Acc = F::Acc>,
{
    let key = |record| feed.key(record);
    open.current().update_each(
        records,
        first,
        key,
        || fold.create(),
        |acc, record| {
            feed.accumulate(acc, record);
        },
    );
}

/// Takes a chunk some records of which are late: those go to their output, if there is one.
#[cold]
fn take_with_late<F, I>(
    feed: &I,
    fold: &F,
    intake: &mut Intake<F>,
    rows: &mut Rows<I::Record>,
    input: Ordinal,
    outbox: &mut Outbox,
) -> Result<()>
where
    F: KeyedFold,
    I: Feed<Key = F::Key, Acc = F::Acc>,
{
    let open = &mut intake.open;
    intake
        .late
        .sort_out(rows, input, outbox, |record, time, is_late| {
            if is_late {
                return false;
            }
            open.select(time);
            let acc = open
                .current()
                .get_or_insert(feed.key(record), || fold.create())
                .1;
            feed.accumulate(acc, record);
            true
        })
}

impl LateRule {
    /// Nothing is late yet.
    pub(crate) fn new() -> Self {
        LateRule {
            before: Timestamp::MIN,
            metrics: Arc::default(),
        }
    }

    /// Counts in `metrics` from now on.
    pub(crate) fn count_in(&mut self, metrics: &Arc<InstanceMetrics>) {
        self.metrics = Arc::clone(metrics);
    }

    /// Records before `time` are late from now on.
    pub(crate) fn advance(&mut self, time: Timestamp) {
        self.before = self.before.max(time);
    }

    /// Whether any of `times` is late.
    pub(crate) fn has_any(&self, times: &[Timestamp]) -> bool {
        times.iter().any(|time| *time < self.before)
    }

    /// Offers records from the front to `admit`, which is told whether they are before the limit of lateness and says whether
    /// it took them; of records at or after the limit it takes all. The others are late: counted, and moved to the output
    /// for late records. Stops before that output could overflow; the rest stays.
    pub(crate) fn sort_out<T: Send + 'static>(
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
            old += usize::from(**time < self.before);
            old <= room
        });
        let count = fitting.count();
        let mut guard = RecordGuard::new();
        let mut late = 0;
        for (record, time) in rows.drain_front(count) {
            if !admit(&record, time, time < self.before) {
                late += 1;
                if let Some(lane) = &mut lane {
                    lane.push(record, time);
                }
            }
            guard.advance();
        }
        self.metrics.count_late(late);
        Ok(())
    }
}
