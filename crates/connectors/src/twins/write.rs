//! The processor of one copy: gathers slices, and offers each to the file when it is over.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, Guarantee, Inbox,
    InstanceContext, Ordinal, Outbox, Processor, Progress, RecordGuard, RestoredState, Result,
    StateShape, Timestamp, Watermark,
};

use super::Plan;
use super::arbiter::{Arbiter, Offered};
use super::disk::ToDisk;
use super::roll::{Seat, Told, host};
use super::slices::{Slices, Width};
use crate::files::cannot_write;
use crate::format::Encode;
use crate::outgo::{Outgo, Writing};

/// The name of the state.
const STATE: &str = "slices";
/// Its only key.
const KEY: &[u8] = b"all";
/// How often a copy says how far it is.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// What a copy has when it runs.
struct Taken {
    arbiter: Arbiter,
    seat: Seat,
}

/// One copy's end of a file of twins.
pub(super) struct TwinP<T, E> {
    plan: Plan,
    width: Width,
    outgo: Outgo<T, E>,
    late: BadRecords,
    slices: Slices,
    taken: Option<Taken>,
    /// The content of the slice at hand.
    content: Vec<u8>,
    first: u64,
    met: u64,
    /// When it is to say again how far it is, on the instance's clock.
    tell_at: Duration,
    draft: CutDraft,
    disk: ToDisk,
    /// What can't be relied upon any more.
    failed: Option<Error>,
    restored: Option<(u64, Slices)>,
}

impl<T: Send + 'static, E: Encode<T>> TwinP<T, E> {
    pub fn new(plan: Plan, writing: &Writing<E>) -> Result<Self> {
        let width = Width::of(plan.slice)?;
        let mut outgo = Outgo::new(writing);
        // A header would be one of many slices.
        outgo.resume();
        Ok(TwinP {
            late: BadRecords::new(writing.on_error),
            slices: Slices::new(width),
            plan,
            width,
            outgo,
            taken: None,
            content: Vec::new(),
            first: 0,
            met: 0,
            tell_at: Duration::ZERO,
            draft: CutDraft::default(),
            disk: ToDisk::default(),
            failed: None,
            restored: None,
        })
    }

    /// A job whose copies could write different things, or one that could lose a part of itself and go on, is refused.
    fn check(&self, context: &InstanceContext) -> Result<()> {
        let refused = |why: &str, hint: &str| {
            let path = self.plan.path.display();
            let what = format!("this job can't be one of several copies that write {path}: {why}");
            Err(Error::new(ErrorCode::InvalidJob, what).hint(hint))
        };
        if context.instance.parallelism != 1 {
            return refused(
                "its sink has several instances",
                "leave the parallelism of the sink at one",
            );
        }
        match context.guarantee {
            Guarantee::ExactlyOnce => Ok(()),
            _ => refused(
                "it does not promise exactly-once, so after a failure of a part of it, it could write what is not so",
                "give it --set guarantee=exactly-once",
            ),
        }
    }

    fn add(&mut self, record: &T, time: Timestamp, position: u64) -> Result<()> {
        let outgo = &mut self.outgo;
        let added = self
            .slices
            .add(time, |bytes| outgo.encode(record, position, bytes))?;
        if added {
            return Ok(());
        }
        let reason = format!("it came late: the slice of its time, {time}, is over");
        let origin = || format!("record {position}");
        self.late.report(origin, Vec::new, reason)
    }

    /// Offers all slices that are over; false if the file can't be had now.
    fn offer_until(&mut self, watermark: Watermark) -> Result<bool> {
        let Some(taken) = &mut self.taken else {
            return Ok(true);
        };
        while let Some(slice) = self.slices.first_over(watermark) {
            self.slices.content(slice, &mut self.content);
            // One of whose records none could be written is as if there were none.
            if !self.content.is_empty() {
                match taken.arbiter.offer(slice, &self.content)? {
                    Offered::First => self.first += 1,
                    Offered::Met => self.met += 1,
                    Offered::NotNow => return Ok(false),
                }
            }
            self.slices.end(slice);
        }
        self.slices.end_until(watermark);
        Ok(true)
    }

    /// Says how far it is, if that is due. Only people read it, so that it may fail.
    fn tell(&mut self, is_last: bool) {
        let context = self.late.context();
        let now = context.clock.now();
        let Some(taken) = &self.taken else { return };
        if now < self.tell_at && !is_last {
            return;
        }
        let told = Told {
            job: context.job.to_string(),
            host: host(),
            process: std::process::id(),
            until: self.slices.over_until(),
            first: self.first,
            met: self.met,
            at: context.clock.wall(),
        };
        self.tell_at = now.saturating_add(TELL_EVERY);
        let _ = taken.seat.tell(&told);
    }

    /// Whether the job ends before its input does: what lies open would be told as if no more could come.
    fn is_cut_short(&self) -> bool {
        let signals = &self.late.context().signals;
        signals.is_draining() || signals.was_drained()
    }

    /// Records wait for time, which comes behind them: waiting for room would be waiting for ever.
    fn check_room(&self) -> Result<()> {
        let (held, most) = (self.slices.byte_len(), self.plan.held);
        if held <= most {
            return Ok(());
        }
        let since = self.slices.over_until();
        let since = since.map_or_else(|| "the beginning".to_string(), |time| time.to_string());
        let what = format!(
            "records since {since} take {held} bytes, {most} are the most, and time has not come to the end of their slices"
        );
        Err(Error::new(ErrorCode::LimitReached, what)
            .hint("see which source holds up the watermark, or raise the limit (`hold_at_most`)"))
    }

    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Whether the disk has what the cut speaks of.
    fn is_on_disk(&mut self) -> Result<bool> {
        let Some(taken) = &self.taken else {
            return Ok(true);
        };
        let waker = &self.late.context().waker;
        let there = self.disk.is_there(|| taken.arbiter.files(), waker);
        there.map_err(|error| {
            let error = cannot_write(&self.plan.path, error);
            self.failed = Some(error.clone());
            error
        })
    }
}

/// The error of a record without which it can't be said what belongs together.
fn has_no_time() -> Error {
    let what = "a record has no event time, so it can't be told in which slice it belongs";
    Error::new(ErrorCode::InvalidJob, what)
        .hint("give records event times, with `with_timestamps` or `with_source_time`")
}

impl<T: Send + 'static, E: Encode<T>> Processor for TwinP<T, E> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.check(context)?;
        self.outgo.attach(context);
        self.late.attach(context);
        let seat = Seat::take(&self.plan.path)?;
        let arbiter = Arbiter::open(&self.plan.path, self.width, seat.number)?;
        self.taken = Some(Taken { arbiter, seat });
        self.tell(true);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        self.check_failed()?;
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        for ((record, time), position) in rows.iter().zip(first..) {
            if !time.is_event_time() {
                return Err(has_no_time());
            }
            self.add(record, time, position)?;
            guard.advance();
        }
        rows.clear();
        self.check_room()
    }

    fn on_watermark(&mut self, watermark: Watermark, _: &mut Outbox) -> Result<Progress> {
        self.check_failed()?;
        if watermark == Watermark::END && self.is_cut_short() {
            self.slices.forget();
            return Ok(Progress::DONE);
        }
        // Whoever holds the file was waited for already: this thread has nothing else to do.
        let is_done = self.offer_until(watermark)?;
        self.tell(false);
        Ok(Progress::done_if(is_done))
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.check_failed()?;
        if !self.is_cut_short() {
            // A job whose time never ended ends with its input.
            if !self.offer_until(Watermark::END)? {
                return Ok(Progress::MADE);
            }
            if let Some(taken) = &mut self.taken {
                taken.arbiter.check_end()?;
            }
        }
        self.tell(true);
        Ok(Progress::DONE)
    }

    fn states(&self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        let met = self.taken.as_ref().map_or(0, |taken| taken.arbiter.met());
        let slices = &self.slices;
        self.disk.ask();
        let key = |out: &mut Vec<u8>| {
            out.extend_from_slice(KEY);
            Ok(())
        };
        self.draft.begin().write(STATE, None, key, |out| {
            out.extend_from_slice(&met.to_le_bytes());
            slices.put(out);
            Ok(())
        })
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        match self.is_on_disk()? {
            true => self.draft.write(writer),
            false => Ok(Progress::NONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            let kept = entry.value.split_first_chunk().and_then(|(met, slices)| {
                let slices = Slices::get(self.width, slices)?;
                Some((u64::from_le_bytes(*met), slices))
            });
            let torn = || Error::new(ErrorCode::BadRecord, "slices that were kept can't be read");
            self.restored = Some(kept.ok_or_else(torn)?);
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let (Some((met, slices)), Some(taken)) = (self.restored.take(), &mut self.taken) {
            taken.arbiter.resume(met)?;
            self.slices = slices;
        }
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.taken = None;
    }
}

/// What makes the processors of a sink.
pub(super) fn supply<T: Send + 'static, E: Encode<T>>(
    plan: Plan,
    writing: Writing<E>,
) -> Arc<dyn ardea_core::ProcessorSupplier> {
    Arc::new(
        move |_: ardea_core::Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(TwinP::<T, E>::new(plan.clone(), &writing)?))
        },
    )
}
