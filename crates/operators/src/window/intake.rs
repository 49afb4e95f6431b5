//! How a chunk of records gets into the open slices, and where late ones go.

use std::sync::Arc;

use ardea_core::{
    Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox, RecordGuard, Result, Rows,
    Timestamp, Watermark,
};

use super::kept_slices::Kept;
use super::open_slices::OpenSlices;
use super::spec::WindowSpec;
use super::told::Told;
use crate::{Feed, FeedVisitor, KeyedFold};

/// The open slices with what decides which records get into them.
pub(crate) struct Intake<F: KeyedFold> {
    pub(crate) open: OpenSlices<F::Key, F::Acc>,
    pub(crate) late: LateRule,
}

/// Which records are late, and where they are counted.
pub(crate) struct LateRule {
    /// How far time has come; with partitions that are ahead, those judge by themselves.
    pub(crate) told: Told,
    /// The time before which records are late at a watermark.
    late_before: LateBefore,
    /// The time before which records may be late at a watermark for another reason than their time, if there is one.
    suspect_before: Option<LateBefore>,
    /// Records before this are late, unless they are of partitions that are behind others.
    before: Timestamp,
    /// Records before this may be late.
    suspects: Timestamp,
    metrics: Arc<InstanceMetrics>,
    /// The windows, if a record may be in several.
    windows: Option<WindowSpec>,
    /// Records before this are missing in some of their windows.
    in_part_before: Timestamp,
}

/// The time before which records are late at a watermark.
type LateBefore = Box<dyn Fn(Watermark) -> Timestamp + Send>;

impl<F: KeyedFold> Intake<F> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        Intake {
            open: OpenSlices::new(spec),
            late: LateRule {
                windows: (!F::OF_PARTIALS).then_some(spec),
                ..LateRule::new(move |watermark| spec.late_before(watermark))
            },
        }
    }

    /// Takes as many records of `input` out of the inbox as it can: all, unless the output for late records is full.
    pub(crate) fn take(
        &mut self,
        fold: &F,
        input: Ordinal,
        (inbox, outbox): (&mut Inbox, &mut Outbox),
        kept: Kept<'_, F>,
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

/// Takes a chunk of the feed that it visits into the open slices.
struct TakeChunk<'a, F: KeyedFold> {
    fold: &'a F,
    intake: &'a mut Intake<F>,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
    kept: Kept<'a, F>,
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
        let Intake { open, late } = self.intake;
        let mut kept = self.kept;
        if open.hold_in_current(rows.times()) && late.told.ahead().is_none() {
            if let Some(time) = rows.times().first() {
                late.count_in_part(*time, rows.times().len());
            }
            take_run(self.fold, feed, open, (rows.values(), 0), kept);
            rows.clear();
            return Ok(());
        }
        open.require(rows.times(), self.input, position)?;
        if late.has_any(rows.times()) {
            return late.sort_out(rows, self.input, self.outbox, |record, time, is_old| {
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

/// Takes `records`, which are all in the slice at hand and start at `first` in their chunk.
#[inline]
fn take_run<F, I>(
    fold: &F,
    feed: &I,
    open: &mut OpenSlices<F::Key, F::Acc>,
    (records, first): (&[I::Record], usize),
    kept: Kept<'_, F>,
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
    /// Nothing is late yet. At a watermark those records are that are before `late_before` of it.
    pub(crate) fn new(late_before: impl Fn(Watermark) -> Timestamp + Send + 'static) -> Self {
        LateRule {
            told: Told::default(),
            late_before: Box::new(late_before),
            suspect_before: None,
            before: Timestamp::MIN,
            suspects: Timestamp::MIN,
            metrics: Arc::default(),
            windows: None,
            in_part_before: Timestamp::MIN,
        }
    }

    /// At a watermark, records before `suspect_before` of it may be late though their time is not before that of late ones.
    pub(crate) fn suspect_before(
        mut self,
        suspect_before: impl Fn(Watermark) -> Timestamp + Send + 'static,
    ) -> Self {
        self.suspect_before = Some(Box::new(suspect_before));
        self
    }

    /// Belongs to this instance from now on, and counts in its metrics.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.metrics = Arc::clone(&context.metrics);
        self.told.attach(context);
    }

    /// Time has come to `watermark`: more records are late.
    pub(crate) fn advance(&mut self, watermark: Watermark) {
        self.told.advance(watermark);
        self.judge_anew();
    }

    /// How far time had come has come back.
    pub(crate) fn restored(&mut self) {
        self.told.restored();
        self.judge_anew();
    }

    fn judge_anew(&mut self) {
        let ahead = self.told.ahead().unwrap_or_default().iter().copied();
        let furthest = ahead.fold(self.told.now(), Watermark::max);
        self.before = (self.late_before)(furthest);
        self.suspects = match &self.suspect_before {
            Some(suspect_before) => suspect_before(furthest).max(self.before),
            None => self.before,
        };
        let now = self.told.now();
        let windows = self.windows.as_ref();
        self.in_part_before = windows.map_or(Timestamp::MIN, |it| it.late_in_part_before(now));
    }

    /// Whether a record that may be late is late by its time.
    pub(crate) fn is_late<K: Key>(&self, key: &K, time: Timestamp) -> bool {
        match self.told.ahead() {
            None => time < self.before,
            Some(_) => time < (self.late_before)(self.told.of(key)),
        }
    }

    /// Counts records of one slice that was taken, if some of their windows had closed. `time` is one of theirs.
    #[inline]
    fn count_in_part(&self, time: Timestamp, records: usize) {
        if time < self.in_part_before {
            self.metrics.count_late_in_part(records as u64);
        }
    }

    /// Whether any of `times` is late, or may be.
    pub(crate) fn has_any(&self, times: &[Timestamp]) -> bool {
        times.iter().any(|time| *time < self.suspects)
    }

    /// Offers records from the front to `admit`, with whether they may be late, so that [`is_late`](Self::is_late) is to be asked. It
    /// returns whether it took them; of others it takes all. The others are late: counted, and moved to the output
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
