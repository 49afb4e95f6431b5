//! The recorder of an instance: writes inputs and outputs to the current segment.

use std::mem;

use ardea_core::{
    Chunk, ChunkCodec, Epoch, Error, Inbox, Marker, MicroBatch, Ordinal, Outbox, OutboxRuntime,
    Result, StateChunk,
};

use super::EdgeCodecs;
use super::events::{RecordedEvent, SegmentStart};
use super::segments::SegmentFiles;

/// Number of buffered bytes after which they are written, also within a micro-batch.
const BUFFER_BYTES: usize = 1 << 20;
/// A segment is followed by the next one when it has this part of all bytes.
const SEGMENT_PART: u64 = 4;

/// The recorder of one instance.
pub(super) struct InstanceRecorder {
    files: SegmentFiles,
    codecs: EdgeCodecs,
    /// The start of the next segment, except its epoch.
    next: SegmentStart,
    /// The entries that are not written yet.
    buffer: Vec<u8>,
    /// The position behind the last recorded record, by input.
    recorded: Vec<u64>,
    /// False while nothing is recorded: until a segment starts with a new state.
    is_active: bool,
    /// The size of the current segment's start, with the state, in bytes.
    start_bytes: u64,
}

/// The content of an outbox before a call.
pub(super) struct OutboxMark {
    records: Vec<usize>,
    markers: usize,
}

impl InstanceRecorder {
    /// Creates a recorder. It starts with the first segment at once if the state of the instance is
    /// known: that of a new instance.
    ///
    /// # Errors
    /// If the first segment cannot be created.
    pub(super) fn new(
        files: SegmentFiles,
        start: SegmentStart,
        codecs: EdgeCodecs,
        is_new: bool,
    ) -> Result<Self> {
        let mut recorder = InstanceRecorder {
            files,
            recorded: vec![0; codecs.inputs.len()],
            codecs,
            next: start,
            buffer: Vec::new(),
            is_active: false,
            start_bytes: 0,
        };
        if is_new {
            recorder.begin_segment(None)?;
        }
        Ok(recorder)
    }

    /// Returns true if the next segment is to be started.
    pub(super) fn needs_segment(&self) -> bool {
        let bytes = self.files.current_bytes().saturating_sub(self.start_bytes);
        !self.is_active || bytes >= self.files.limit_bytes() / SEGMENT_PART
    }

    /// Returns false while nothing is recorded.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Starts the next segment, with the state at the end of `epoch`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn begin_segment(&mut self, epoch: Option<Epoch>) -> Result<()> {
        self.flush()?;
        self.files.begin()?;
        let start = SegmentStart {
            epoch,
            ..self.next.clone()
        };
        self.next.follows = true;
        self.is_active = true;
        self.start_bytes = 0;
        let mut first = Vec::new();
        RecordedEvent::Start(start).append_to(&mut first)?;
        self.files.append(&first)
    }

    /// Records an entry.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn note(&mut self, event: RecordedEvent) -> Result<()> {
        match &event {
            RecordedEvent::Watermark(watermark) => self.next.watermark = *watermark,
            RecordedEvent::OutputWatermark(watermark) => {
                self.next.sent = self.next.sent.max(*watermark);
            }
            RecordedEvent::EdgeDone(input) => self.next.done_inputs.push(*input),
            RecordedEvent::BatchEnd(batch) => self.next.first = batch.next(),
            _ => {}
        }
        if !self.is_active {
            return Ok(());
        }
        event.append_to(&mut self.buffer)?;
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Records the end of a micro-batch.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn end_batch(&mut self, batch: MicroBatch) -> Result<()> {
        self.note(RecordedEvent::BatchEnd(batch))?;
        self.flush()
    }

    /// Writes the buffered entries, or stops recording if there is no room for them.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn flush(&mut self) -> Result<()> {
        let whole = self.files.current_bytes() + self.buffer.len() as u64;
        if self.is_active && whole > self.files.limit_bytes() {
            return self.stop("a part of the recording is larger than micro_batch.record_bytes");
        }
        let bytes = mem::take(&mut self.buffer);
        self.files.append(&bytes)?;
        self.buffer = bytes;
        self.buffer.clear();
        Ok(())
    }

    /// Stops recording until a segment starts with a new state.
    fn stop(&mut self, why: &str) -> Result<()> {
        self.buffer.clear();
        self.is_active = false;
        self.next.follows = false;
        let mut last = Vec::new();
        RecordedEvent::Stopped(why.into()).append_to(&mut last)?;
        self.files.append(&last)
    }

    /// Stops recording because a record cannot be encoded.
    fn stop_with(&mut self, error: &Error) -> Result<()> {
        self.stop(&format!("a record cannot be encoded: {error}"))
    }

    /// Records a part of the state at the start of the segment.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn state(&mut self, chunk: StateChunk) -> Result<()> {
        match chunk.is_empty() {
            true => Ok(()),
            false => self.note(RecordedEvent::State(chunk)),
        }
    }

    /// Records that the state at the start of the segment is complete.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn end_state(&mut self) -> Result<()> {
        self.note(RecordedEvent::StateEnd)?;
        self.flush()?;
        self.start_bytes = self.files.current_bytes();
        Ok(())
    }

    /// Records the chunk of an inbox, unless it was recorded before.
    ///
    /// # Errors
    /// If a file cannot be written, or records cannot be decoded.
    pub(super) fn input(&mut self, input: Ordinal, inbox: &mut Inbox) -> Result<()> {
        let end = inbox.position() + inbox.len() as u64;
        if mem::replace(&mut self.recorded[input.index()], end) == end || !self.is_active {
            return Ok(());
        }
        let codec = self.codecs.inputs[input.index()].clone();
        let mut chunk = Chunk::default();
        inbox.swap(&mut chunk);
        let encoded = encode(&*codec, &mut chunk);
        inbox.swap(&mut chunk);
        match encoded? {
            Ok(payloads) => payloads.into_iter().try_for_each(|(records, payload)| {
                self.note(RecordedEvent::Input {
                    input,
                    records,
                    payload,
                })
            }),
            Err(error) => self.stop_with(&error),
        }
    }

    /// Returns the content of an outbox before a call.
    pub(super) fn mark(outbox: &mut Outbox) -> OutboxMark {
        let is_empty = outbox.is_empty();
        OutboxMark {
            records: (0..outbox.lanes())
                .map(|lane| outbox.chunk_mut(lane).len())
                .collect(),
            markers: match is_empty {
                true => 0,
                false => markers_of(outbox).len(),
            },
        }
    }

    /// Records the output that a call has added to an outbox.
    ///
    /// # Errors
    /// If a file cannot be written, or records cannot be decoded.
    pub(super) fn output(&mut self, outbox: &mut Outbox, before: &OutboxMark) -> Result<()> {
        if !self.is_active || outbox.is_empty() {
            return Ok(());
        }
        for output in 0..outbox.lanes() {
            let known = before.records[output];
            if outbox.chunk_mut(output).len() > known {
                self.output_records(output, outbox.chunk_mut(output), known)?;
            }
        }
        for marker in markers_of(outbox).into_iter().skip(before.markers) {
            if let Marker::Watermark(watermark) = marker {
                self.note(RecordedEvent::OutputWatermark(watermark))?;
            }
        }
        Ok(())
    }

    /// Records the records of an output behind the first `known` ones.
    fn output_records(&mut self, output: usize, chunk: &mut Chunk, known: usize) -> Result<()> {
        let mut before = Chunk::default();
        if known > 0 {
            chunk.move_front(known, &mut before)?;
        }
        let encoded = encode(&*self.codecs.outputs[output], chunk);
        if known > 0 {
            chunk.move_front(chunk.len(), &mut before)?;
            *chunk = before;
        }
        match encoded? {
            Ok(payloads) => payloads.into_iter().try_for_each(|(records, payload)| {
                self.note(RecordedEvent::Output {
                    // An ordinal has 16 bits.
                    output: output as u16,
                    records,
                    payload,
                })
            }),
            Err(error) => self.stop_with(&error),
        }
    }
}

/// The number of records and the bytes of each payload.
type Payloads = Vec<(usize, Vec<u8>)>;

/// Encodes the records of a chunk, and replaces them by the decoded ones. The inner error is that
/// of a record that cannot be encoded; the chunk then has all its records.
///
/// # Errors
/// If encoded records cannot be decoded.
fn encode(codec: &dyn ChunkCodec, chunk: &mut Chunk) -> Result<Result<Payloads>> {
    let (mut payloads, mut copy) = (Payloads::new(), Chunk::default());
    while !chunk.is_empty() {
        let mut payload = Vec::new();
        match codec.encode(chunk, usize::MAX, &mut payload) {
            Ok(records) => {
                codec.decode(records, &payload, &mut copy)?;
                payloads.push((records, payload));
            }
            Err(error) => {
                if !copy.is_empty() {
                    chunk.move_front(chunk.len(), &mut copy)?;
                    *chunk = copy;
                }
                return Ok(Err(error));
            }
        }
    }
    *chunk = copy;
    Ok(Ok(payloads))
}

/// Returns the markers of an outbox whose lanes have equal markers, as after each call.
fn markers_of(outbox: &mut Outbox) -> Vec<Marker> {
    let lanes = 0..outbox.lanes();
    let chunks: Vec<Chunk> = lanes
        .clone()
        .map(|lane| mem::take(outbox.chunk_mut(lane)))
        .collect();
    let mut markers = Vec::new();
    for lane in lanes {
        markers.clear();
        markers.extend(std::iter::from_fn(|| outbox.take_marker(lane)));
    }
    for marker in &markers {
        outbox.marker(*marker);
    }
    for (lane, chunk) in chunks.into_iter().enumerate() {
        *outbox.chunk_mut(lane) = chunk;
    }
    markers
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ardea_core::{Rows, Timestamp, Watermark};

    use super::*;

    #[test]
    fn the_markers_of_an_outbox_are_read_without_a_change_of_it() {
        let mut outbox = Outbox::new(2, 8);
        let mut lane = outbox.lane::<u8>(Ordinal::SECOND).unwrap();
        lane.push(7, Timestamp::MIN);
        let all = [Marker::Watermark(Watermark::END), Marker::Idle];
        all.into_iter().for_each(|marker| outbox.marker(marker));
        assert_eq!(markers_of(&mut outbox), all);
        assert_eq!(markers_of(&mut outbox), all);
        let chunk = outbox.chunk_mut(1).rows::<u8>().unwrap();
        assert_eq!(*chunk, Rows::from_iter([(7u8, Timestamp::MIN)]));
    }
}
