//! The processor of one replica: buffers slices, and offers each to the file when it is complete.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, ErrorCode, Guarantee, Inbox, InstanceContext, Ordinal,
    Outbox, Processor, Progress, RecordGuard, RestoredState, Result, SmallSnapshot,
    SnapshotRequest, SnapshotWriter, StateShape, Timestamp, Watermark,
};

use super::Plan;
use super::arbiter::{Arbiter, OfferOutcome};
use super::fsync::FsyncWorker;
use super::replica_registry::{ReplicaLock, ReplicaStatus, host};
use super::slices::{Slices, Width};
use crate::files::cannot_write;
use crate::format::Encode;
use crate::record_writer::{RecordWriter, Writing};

/// The name of the state.
const STATE: &str = "slices";
/// The only key of the state.
const KEY: &[u8] = b"all";
/// The interval of status reports.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// The files that a running replica has opened.
struct OpenReplica {
    arbiter: Arbiter,
    lock: ReplicaLock,
}

/// The sink processor of one replica.
pub(super) struct ActiveActiveP<T, E> {
    plan: Plan,
    width: Width,
    outgo: RecordWriter<T, E>,
    late: BadRecords,
    slices: Slices,
    open_replica: Option<OpenReplica>,
    /// The content of the present slice.
    content: Vec<u8>,
    first: u64,
    met: u64,
    /// The time of the next status report, on the instance's clock.
    next_report_at: Duration,
    draft: SmallSnapshot,
    disk: FsyncWorker,
    /// The error of a flush, after which no snapshot may be taken.
    failed: Option<Error>,
    restored: Option<(u64, Slices)>,
}

impl<T: Send + 'static, E: Encode<T>> ActiveActiveP<T, E> {
    pub fn new(plan: Plan, writing: &Writing<E>) -> Result<Self> {
        let width = Width::of(plan.slice)?;
        let mut outgo = RecordWriter::new(writing);
        // Skips the header, which would be repeated by each replica.
        outgo.resume();
        Ok(ActiveActiveP {
            late: BadRecords::new(writing.on_error),
            slices: Slices::new(width),
            plan,
            width,
            outgo,
            open_replica: None,
            content: Vec::new(),
            first: 0,
            met: 0,
            next_report_at: Duration::ZERO,
            draft: SmallSnapshot::default(),
            disk: FsyncWorker::default(),
            failed: None,
            restored: None,
        })
    }

    /// Refuses a job whose replicas could produce different output, or that could lose state in a
    /// failure.
    fn check(&self, context: &InstanceContext) -> Result<()> {
        let refused = |why: &str, hint: &str| {
            let path = self.plan.path.display();
            let what = format!("this job can't be a replica that writes {path}: {why}");
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
                "its guarantee is not exactly-once, so it could write wrong results after a failure",
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
        let reason = format!("it is late: the slice of its time, {time}, is complete");
        let origin = || format!("record {position}");
        self.late.report(origin, Vec::new, reason)
    }

    /// Offers all slices complete at `watermark`; returns false if another replica holds the lock.
    fn offer_until(&mut self, watermark: Watermark) -> Result<bool> {
        let Some(taken) = &mut self.open_replica else {
            return Ok(true);
        };
        while let Some(slice) = self.slices.first_over(watermark) {
            self.slices.content(slice, &mut self.content);
            // A slice whose records could not be encoded counts as empty.
            if !self.content.is_empty() {
                match taken.arbiter.offer(slice, &self.content)? {
                    OfferOutcome::Appended => self.first += 1,
                    OfferOutcome::AlreadyPresent => self.met += 1,
                    OfferOutcome::Busy => return Ok(false),
                }
            }
            self.slices.end(slice);
        }
        self.slices.end_until(watermark);
        Ok(true)
    }

    /// Writes a status report if one is due. Errors are ignored, since it is only informational.
    fn report_status(&mut self, is_last: bool) {
        let context = self.late.context();
        let now = context.clock.now();
        let Some(taken) = &self.open_replica else {
            return;
        };
        if now < self.next_report_at && !is_last {
            return;
        }
        let told = ReplicaStatus {
            job: context.job.to_string(),
            host: host(),
            process: std::process::id(),
            until: self.slices.over_until(),
            first: self.first,
            met: self.met,
            at: context.clock.wall(),
        };
        self.next_report_at = now.saturating_add(STATUS_INTERVAL);
        let _ = taken.lock.write_status(&told);
    }

    /// Returns true if the job ends before its input, so that its last slices are incomplete.
    fn is_cut_short(&self) -> bool {
        let signals = &self.late.context().signals;
        signals.is_draining() || signals.was_drained()
    }

    /// Checks the number of buffered bytes. Backpressure would deadlock here, since the watermark
    /// arrives after the records.
    fn check_room(&self) -> Result<()> {
        let (held, most) = (self.slices.byte_len(), self.plan.held);
        if held <= most {
            return Ok(());
        }
        let since = self.slices.over_until();
        let since = since.map_or_else(|| "the beginning".to_string(), |time| time.to_string());
        let what = format!(
            "records since {since} take {held} bytes, the limit is {most}, and the watermark has not reached the end of their slices"
        );
        Err(Error::new(ErrorCode::LimitReached, what)
            .hint("check which source holds up the watermark, or raise the limit (`hold_at_most`)"))
    }

    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Returns true if all slices covered by the snapshot are durable.
    fn is_on_disk(&mut self) -> Result<bool> {
        let Some(taken) = &self.open_replica else {
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

/// Returns the error for a record without event time, which cannot be assigned to a slice.
fn has_no_time() -> Error {
    let what = "a record has no event time, so it belongs to no slice";
    Error::new(ErrorCode::InvalidJob, what)
        .hint("give records event times, with `with_timestamps` or `with_source_time`")
}

impl<T: Send + 'static, E: Encode<T>> Processor for ActiveActiveP<T, E> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.check(context)?;
        self.outgo.attach(context);
        self.late.attach(context);
        let seat = ReplicaLock::take(&self.plan.path)?;
        let arbiter = Arbiter::open(&self.plan.path, self.width, seat.number)?;
        self.open_replica = Some(OpenReplica {
            arbiter,
            lock: seat,
        });
        self.report_status(true);
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
        // The offer already waits for the lock: this thread has no other work.
        let is_done = self.offer_until(watermark)?;
        self.report_status(false);
        Ok(Progress::done_if(is_done))
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.check_failed()?;
        if !self.is_cut_short() {
            // Completes the slices of a job whose input ended without a final watermark.
            if !self.offer_until(Watermark::END)? {
                return Ok(Progress::MADE);
            }
            if let Some(taken) = &mut self.open_replica {
                taken.arbiter.check_end()?;
            }
        }
        self.report_status(true);
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.open_replica = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T: Send + 'static, E: Encode<T>> Checkpointed for ActiveActiveP<T, E> {
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let met = self
            .open_replica
            .as_ref()
            .map_or(0, |taken| taken.arbiter.met());
        let slices = &self.slices;
        self.disk.request();
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

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
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
            let torn = || Error::new(ErrorCode::BadRecord, "slices in a snapshot can't be read");
            self.restored = Some(kept.ok_or_else(torn)?);
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let (Some((met, slices)), Some(taken)) = (self.restored.take(), &mut self.open_replica) {
            taken.arbiter.resume(met)?;
            self.slices = slices;
        }
        Ok(Progress::DONE)
    }
}

/// Returns the supplier of the processors of a sink.
pub(super) fn supply<T: Send + 'static, E: Encode<T>>(
    plan: Plan,
    writing: Writing<E>,
) -> Arc<dyn ardea_core::ProcessorSupplier> {
    Arc::new(
        move |_: ardea_core::Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(ActiveActiveP::<T, E>::new(
                plan.clone(),
                &writing,
            )?))
        },
    )
}
