//! The output of a stream since the last committed epoch, kept for a peer that is restored alone.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ardea_core::{
    Chunk, ChunkCodec, Epoch, Error, ErrorCode, Marker, MicroBatch, Result, Watermark,
};

use crate::exchange::ids::{InstanceNumber, WorkerNumber};

/// The bound of the bytes that the streams of an attempt keep together.
#[derive(Debug)]
pub struct RetainedBytes {
    limit: u64,
    used: AtomicU64,
}

impl RetainedBytes {
    /// Creates a bound.
    pub fn new(limit: u64) -> Self {
        RetainedBytes {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Returns the number of bytes that are kept now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// The state that the streams of an attempt share which keep their output.
#[derive(Debug)]
pub struct RetainedStreamState {
    /// The bound of all kept output.
    pub bytes: RetainedBytes,
    /// The number of kept frames with records that were sent again.
    pub reused: AtomicU64,
    /// The newest committed epoch, plus one; zero if there is none.
    committed: AtomicU64,
    /// The processes that were restored alone: their incarnations and epochs, by worker.
    restarted: Mutex<Vec<(WorkerNumber, u64, Option<Epoch>)>>,
}

impl RetainedStreamState {
    /// Creates the state of an attempt whose streams keep up to `limit` bytes.
    pub fn new(limit: u64) -> Self {
        RetainedStreamState {
            bytes: RetainedBytes::new(limit),
            reused: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            restarted: Mutex::default(),
        }
    }

    /// Records the commit of an epoch. Output before it is dropped.
    pub fn committed(&self, epoch: Epoch) {
        self.committed.fetch_max(epoch.0 + 1, Ordering::Relaxed);
    }

    /// Records that a process of a worker was restored from an epoch. Returns true if that was not
    /// known.
    pub fn restarted(&self, worker: WorkerNumber, incarnation: u64, from: Option<Epoch>) -> bool {
        let mut restarted = self
            .restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = (worker, incarnation, from);
        if restarted.contains(&entry) {
            return false;
        }
        restarted.retain(|(of, ..)| *of != worker);
        restarted.push(entry);
        true
    }

    /// Returns the epoch from which this process of a worker was restored, if it was.
    pub(super) fn restored_from(
        &self,
        worker: WorkerNumber,
        incarnation: u64,
    ) -> Option<Option<Epoch>> {
        let restarted = self
            .restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut entries = restarted.iter();
        let found = entries.find(|(of, number, _)| (*of, *number) == (worker, incarnation));
        found.map(|(_, _, from)| *from)
    }

    fn newest_commit(&self) -> Option<Epoch> {
        let next = self.committed.load(Ordering::Relaxed);
        next.checked_sub(1).map(Epoch)
    }
}

/// A frame of kept output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetainedFrame<'a> {
    /// Encoded records for one instance.
    Records {
        target: InstanceNumber,
        records: u16,
        payload: &'a [u8],
    },
    /// The end of a micro-batch, with encoded ends of sources.
    BatchEnd(MicroBatch, &'a [u8]),
    /// Another marker.
    Marker(Marker),
    /// No producer sends to the instance at the moment.
    Leave(InstanceNumber),
}

/// The state of a stream at a barrier.
#[derive(Clone, Default, Debug)]
pub(super) struct StreamStart {
    /// The watermark, if there was one.
    pub(super) watermark: Option<Watermark>,
    /// The instances that no producer sends to.
    pub(super) left: BTreeSet<InstanceNumber>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Records {
        target: InstanceNumber,
        records: u16,
        bytes: usize,
    },
    BatchEnd {
        batch: MicroBatch,
        bytes: usize,
    },
    Marker(Marker),
    Leave(InstanceNumber),
}

impl Entry {
    /// Returns the length of the payload.
    fn bytes(&self) -> usize {
        match self {
            Entry::Records { bytes, .. } | Entry::BatchEnd { bytes, .. } => *bytes,
            Entry::Marker(_) | Entry::Leave(_) => 0,
        }
    }
}

/// The frames between two barriers.
#[derive(Debug)]
struct Segment {
    /// The epoch of the barrier before the frames; `None` at the start of a job.
    after: Option<Epoch>,
    /// The state of the stream before the frames.
    start: StreamStart,
    /// The reason for which the frames cannot be sent again.
    defect: Option<&'static str>,
    entries: Vec<Entry>,
    payloads: Vec<u8>,
}

/// The output of a stream, from the last committed barrier on. Frames are added at the end, and
/// read from a position up to which they have been sent.
///
/// Output beyond the bound is dropped. It then cannot be sent again before the next barrier.
#[derive(Debug)]
pub struct RetainedOutput {
    keeping: Arc<RetainedStreamState>,
    segments: VecDeque<Segment>,
    /// The position of the next frame to send: its segment, its entry, and its payload.
    next: (usize, usize, usize),
    /// The state of the stream after all frames.
    state: StreamStart,
    is_idle: bool,
}

impl RetainedOutput {
    /// Creates the output of a stream in an attempt that was restored from the epoch `from`.
    pub fn new(keeping: Arc<RetainedStreamState>, from: Option<Epoch>) -> Self {
        RetainedOutput {
            keeping,
            segments: VecDeque::from([Segment {
                after: from,
                start: StreamStart::default(),
                defect: None,
                entries: Vec::new(),
                payloads: Vec::new(),
            }]),
            next: (0, 0, 0),
            state: StreamStart::default(),
            is_idle: false,
        }
    }

    pub(super) fn keeping(&self) -> &Arc<RetainedStreamState> {
        &self.keeping
    }

    /// Returns true if all frames have been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.peek().is_none()
    }

    /// Adds records from the front of `chunk`, as one frame. All earlier frames have been sent.
    pub(super) fn add_records(
        &mut self,
        target: InstanceNumber,
        chunk: &mut Chunk,
        codec: &dyn ChunkCodec,
        (limit, most): (usize, usize),
    ) -> Result<()> {
        self.make_room();
        let Some(segment) = self.segments.back_mut() else {
            return Ok(());
        };
        let start = segment.payloads.len();
        let records = codec.encode(chunk, limit, &mut segment.payloads)?;
        let bytes = segment.payloads.len() - start;
        if bytes > most {
            segment.payloads.truncate(start);
            let what =
                format!("a record takes {bytes} bytes on the wire, and a frame at most {most}");
            return Err(Error::new(ErrorCode::LimitReached, what).hint(
                "send large objects through storage and a reference to them through the job",
            ));
        }
        segment.entries.push(Entry::Records {
            target,
            records: records as u16,
            bytes,
        });
        self.keeping.bytes.add(bytes);
        self.is_idle = false;
        if !self.state.left.is_empty() {
            self.state.left.remove(&target);
        }
        Ok(())
    }

    /// Adds a marker. All earlier frames have been sent.
    pub(super) fn add_marker(&mut self, marker: Marker) {
        match marker {
            Marker::Watermark(watermark) => {
                (self.state.watermark, self.is_idle) = (Some(watermark), false);
            }
            Marker::Idle => self.is_idle = true,
            Marker::Done => self.spoil("a stream has ended"),
            Marker::BatchEnd(batch) => return self.add_batch_end(batch, &[]),
            Marker::Barrier(_) | Marker::Latency(_) => {}
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.entries.push(Entry::Marker(marker));
        }
        if let Marker::Barrier(epoch) = marker {
            let is_idle = self.is_idle;
            self.segments.push_back(Segment {
                after: Some(epoch),
                start: self.state.clone(),
                // The idleness of an input is not part of checkpoints.
                defect: is_idle.then_some("an input was idle at the checkpoint"),
                entries: Vec::new(),
                payloads: Vec::new(),
            });
        }
    }

    /// Adds the end of a micro-batch, with encoded ends of sources. All earlier frames have been
    /// sent.
    pub(super) fn add_batch_end(&mut self, batch: MicroBatch, source_ends: &[u8]) {
        self.trim();
        if let Some(segment) = self.segments.back_mut() {
            segment.payloads.extend_from_slice(source_ends);
            let bytes = source_ends.len();
            segment.entries.push(Entry::BatchEnd { batch, bytes });
            self.keeping.bytes.add(bytes);
        }
    }

    /// Adds the report that no producer sends to an instance at the moment. All earlier frames have
    /// been sent.
    pub(super) fn add_leave(&mut self, target: InstanceNumber) {
        self.state.left.insert(target);
        if let Some(segment) = self.segments.back_mut() {
            segment.entries.push(Entry::Leave(target));
        }
    }

    /// Declares that the present frames cannot be sent again.
    fn spoil(&mut self, defect: &'static str) {
        if let Some(segment) = self.segments.back_mut() {
            segment.defect.get_or_insert(defect);
        }
    }

    fn peek(&self) -> Option<(usize, Entry, usize)> {
        let (mut at, mut entry, mut payload) = self.next;
        loop {
            let segment = self.segments.get(at)?;
            if let Some(found) = segment.entries.get(entry) {
                return Some((at, *found, payload));
            }
            (at, entry, payload) = (at + 1, 0, 0);
        }
    }

    /// Returns the next frame to send.
    pub(super) fn next(&self) -> Option<RetainedFrame<'_>> {
        let (at, entry, payload) = self.peek()?;
        let bytes = entry.bytes();
        let payload = self.segments[at].payloads.get(payload..payload + bytes)?;
        Some(match entry {
            Entry::BatchEnd { batch, .. } => RetainedFrame::BatchEnd(batch, payload),
            Entry::Marker(marker) => RetainedFrame::Marker(marker),
            Entry::Leave(target) => RetainedFrame::Leave(target),
            Entry::Records {
                target, records, ..
            } => RetainedFrame::Records {
                target,
                records,
                payload,
            },
        })
    }

    /// Marks the next frame as sent.
    pub(super) fn advance(&mut self) {
        let Some((at, entry, payload)) = self.peek() else {
            return;
        };
        let index = if at == self.next.0 { self.next.1 } else { 0 };
        self.next = (at, index + 1, payload + entry.bytes());
    }

    /// Goes back to the barrier of the epoch `from`. Returns the state of the stream there.
    ///
    /// # Errors
    /// If the output since then is not complete.
    pub(super) fn rewind(&mut self, from: Option<Epoch>) -> Result<StreamStart> {
        let lost = |why: &str| {
            let what = format!("kept output cannot be sent to a restored worker: {why}");
            Error::new(ErrorCode::PeerLost, what)
                .hint("no action is required: the job restores the latest committed checkpoint")
        };
        let last = self.segments.len() - 1;
        let Some(segment) = self.segments.get(last).filter(|it| it.after == from) else {
            return Err(lost("a checkpoint was in progress"));
        };
        if let Some(defect) = segment.defect {
            return Err(lost(defect));
        }
        let records = |entry: &&Entry| matches!(entry, Entry::Records { .. });
        let reused = segment.entries.iter().filter(records).count() as u64;
        self.keeping.reused.fetch_add(reused, Ordering::Relaxed);
        self.next = (last, 0, 0);
        Ok(segment.start.clone())
    }

    /// Drops the output of earlier epochs than the committed one.
    fn trim(&mut self) {
        let committed = self.keeping.newest_commit();
        while self.segments.len() > 1 && self.segments[1].after <= committed && self.next.0 > 0 {
            if let Some(segment) = self.segments.pop_front() {
                self.keeping.bytes.remove(segment.payloads.len());
            }
            self.next.0 -= 1;
        }
    }

    /// Drops all frames if the bound is reached. All of them have been sent.
    fn make_room(&mut self) {
        let bytes = &self.keeping.bytes;
        let is_defect = self.segments.back().is_some_and(|it| it.defect.is_some());
        if !is_defect && bytes.used() < bytes.limit {
            return;
        }
        for segment in &mut self.segments {
            bytes.remove(segment.payloads.len());
            segment.entries = Vec::new();
            segment.payloads = Vec::new();
            segment
                .defect
                .get_or_insert("more than micro_batch.kept_bytes was sent since the checkpoint");
        }
        self.next = (self.segments.len() - 1, 0, 0);
    }
}

impl Drop for RetainedOutput {
    fn drop(&mut self) {
        for segment in &self.segments {
            self.keeping.bytes.remove(segment.payloads.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::{Rows, Timestamp};

    use super::*;
    use crate::exchange::RowsCodec;

    const LIMITS: (usize, usize) = (1 << 10, 1 << 20);

    fn output(limit: u64) -> (Arc<RetainedStreamState>, RetainedOutput) {
        let keeping = Arc::new(RetainedStreamState::new(limit));
        let output = RetainedOutput::new(Arc::clone(&keeping), Some(Epoch(3)));
        (keeping, output)
    }

    fn add(output: &mut RetainedOutput, value: u64) {
        let mut chunk = Chunk::new(Rows::from_iter([(value, Timestamp::MIN)]));
        let codec = RowsCodec::<u64>::wire();
        output
            .add_records(InstanceNumber(1), &mut chunk, &codec, LIMITS)
            .unwrap();
        assert!(chunk.is_empty());
    }

    /// Sends all frames. Returns the payloads, and the markers as text.
    fn sent(output: &mut RetainedOutput) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(frame) = output.next() {
            all.push(match frame {
                RetainedFrame::Records { payload, .. } => format!("{payload:?}"),
                RetainedFrame::Marker(marker) => format!("{marker:?}"),
                RetainedFrame::BatchEnd(batch, _) => format!("{:?}", Marker::BatchEnd(batch)),
                RetainedFrame::Leave(target) => format!("leave {}", target.0),
            });
            output.advance();
        }
        all
    }

    fn end(output: &mut RetainedOutput, batch: u64) {
        output.add_marker(Marker::BatchEnd(MicroBatch(batch)));
    }

    #[test]
    fn output_since_the_checkpoint_is_sent_again_and_continued() {
        let (keeping, mut output) = output(1 << 20);
        add(&mut output, 1);
        end(&mut output, 0);
        output.add_marker(Marker::Barrier(Epoch(4)));
        sent(&mut output);
        add(&mut output, 2);
        add(&mut output, 3);
        let first = sent(&mut output);
        output.rewind(Some(Epoch(4))).unwrap();
        add(&mut output, 4);
        let again = sent(&mut output);
        assert_eq!((first.len(), again.len()), (2, 3));
        assert_eq!(first[..], again[..2]);
        assert_eq!(keeping.reused.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_state_of_the_stream_at_the_checkpoint_is_known() {
        let (_, mut output) = output(1 << 20);
        let at = |secs| Watermark(Timestamp::from_secs(secs));
        output.add_marker(Marker::Watermark(at(5)));
        output.add_leave(InstanceNumber(7));
        output.add_marker(Marker::Barrier(Epoch(4)));
        output.add_marker(Marker::Watermark(at(9)));
        sent(&mut output);
        let start = output.rewind(Some(Epoch(4))).unwrap();
        assert_eq!(start.watermark, Some(at(5)));
        assert_eq!(start.left, [InstanceNumber(7)].into());
        assert_eq!(sent(&mut output).len(), 1);
    }

    #[test]
    fn output_of_a_committed_epoch_is_dropped() {
        let (keeping, mut output) = output(1 << 20);
        add(&mut output, 1);
        output.add_marker(Marker::Barrier(Epoch(4)));
        sent(&mut output);
        add(&mut output, 2);
        let kept = keeping.bytes.used();
        keeping.committed(Epoch(4));
        sent(&mut output);
        end(&mut output, 0);
        assert!(keeping.bytes.used() > 0 && keeping.bytes.used() < kept);
        assert_eq!(sent(&mut output).len(), 1);
        drop(output);
        assert_eq!(keeping.bytes.used(), 0);
    }

    #[test]
    fn output_is_sent_again_from_the_newest_barrier_only() {
        let (_, mut output) = output(1 << 20);
        output.add_marker(Marker::Barrier(Epoch(4)));
        sent(&mut output);
        for wrong in [None, Some(Epoch(3)), Some(Epoch(5))] {
            let error = output.rewind(wrong).unwrap_err();
            assert!(error.to_string().contains("a checkpoint was in progress"));
        }
        output.rewind(Some(Epoch(4))).unwrap();
    }

    #[test]
    fn output_beyond_the_bound_is_dropped_until_the_next_barrier() {
        let (keeping, mut output) = output(64);
        for value in 0..100 {
            add(&mut output, value);
            assert_eq!(sent(&mut output).len(), 1, "it is sent nevertheless");
        }
        assert!(keeping.bytes.used() <= 64 + 64);
        let error = output.rewind(Some(Epoch(3))).unwrap_err();
        assert!(error.to_string().contains("micro_batch.kept_bytes"));
        output.add_marker(Marker::Barrier(Epoch(4)));
        sent(&mut output);
        add(&mut output, 1);
        sent(&mut output);
        output.rewind(Some(Epoch(4))).unwrap();
        assert_eq!(sent(&mut output).len(), 1);
    }

    #[test]
    fn an_ended_or_idle_stream_is_not_sent_again() {
        let (_, mut ended) = output(1 << 20);
        ended.add_marker(Marker::Done);
        sent(&mut ended);
        assert!(ended.rewind(Some(Epoch(3))).is_err());
        let (_, mut idle) = output(1 << 20);
        idle.add_marker(Marker::Idle);
        idle.rewind(Some(Epoch(3))).unwrap();
        idle.add_marker(Marker::Barrier(Epoch(4)));
        assert!(idle.rewind(Some(Epoch(4))).is_err());
    }

    #[test]
    fn a_restored_process_is_known_by_its_incarnation() {
        let keeping = RetainedStreamState::new(0);
        let worker = WorkerNumber(2);
        assert!(keeping.restarted(worker, 7, Some(Epoch(3))));
        assert!(!keeping.restarted(worker, 7, Some(Epoch(3))));
        assert_eq!(keeping.restored_from(worker, 7), Some(Some(Epoch(3))));
        assert_eq!(keeping.restored_from(worker, 8), None);
        assert!(keeping.restarted(worker, 8, Some(Epoch(4))));
        assert_eq!(keeping.restored_from(worker, 7), None);
    }
}
