//! The entries of a recording as bytes.
//!
//! | bytes | |
//! |---|---|
//! | 4 | the length of the body |
//! | 8 | xxh3-64 of the body |
//! | length | the body: the kind of entry, then its fields |
//!
//! Numbers are little-endian. An incomplete or damaged entry ends a file.

use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Key, MicroBatch, Ordinal, PartitionId, Result, StateChunk,
    StateEntry, Timestamp, Watermark,
};

/// The version of the format.
const VERSION: u16 = 1;
/// The partition field of an entry of state without partition.
const NO_PARTITION: u32 = u32::MAX;

/// The start of a segment: the instance, and its state there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentStart {
    pub(super) job: String,
    pub(super) vertex: String,
    pub(super) instance: Instance,
    /// The number of cooperative threads of the node.
    pub(super) threads: u32,
    pub(super) chunk_records: u32,
    /// True if the processor runs in a job that keeps state.
    pub(super) keeps_state: bool,
    /// The micro-batch in progress.
    pub(super) first: MicroBatch,
    /// True if the segment continues the previous one without a gap.
    pub(super) follows: bool,
    /// The epoch of the snapshot that follows; `None` for a new instance.
    pub(super) epoch: Option<Epoch>,
    /// The latest watermark of the processor.
    pub(super) watermark: Watermark,
    /// The latest watermark of the outputs.
    pub(super) sent: Watermark,
    /// The inputs that have ended.
    pub(super) done_inputs: Vec<Ordinal>,
}

/// An entry of a recording.
#[derive(Debug)]
pub(super) enum RecordedEvent {
    Start(SegmentStart),
    /// A part of the state at the start.
    State(StateChunk),
    /// The state at the start is complete.
    StateEnd,
    Input {
        input: Ordinal,
        records: usize,
        payload: Vec<u8>,
    },
    Watermark(Watermark),
    Epoch(Epoch),
    EdgeDone(Ordinal),
    /// All inputs have ended.
    Complete,
    Output {
        output: u16,
        records: usize,
        payload: Vec<u8>,
    },
    OutputWatermark(Watermark),
    BatchEnd(MicroBatch),
    /// The instance has ended.
    End,
    /// The instance failed with this message.
    Failed(String),
    /// The recording stops here for this reason. The micro-batch in progress is incomplete.
    Stopped(String),
}

impl RecordedEvent {
    /// Appends the entry.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] for a body of 4 GB.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut body = Vec::new();
        self.write(&mut body);
        let length = u32::try_from(body.len()).map_err(|_| {
            let what = "a micro-batch has a chunk of 4 GB, which cannot be recorded";
            Error::new(ErrorCode::LimitReached, what).hint("set micro_batch.record=off")
        })?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&body.key_hash().to_le_bytes());
        out.append(&mut body);
        Ok(())
    }

    /// Takes the first entry. `None` if there is none, or it is incomplete or damaged.
    pub(super) fn take_from(input: &mut &[u8]) -> Option<RecordedEvent> {
        let mut rest = *input;
        let length = u32::from_le_bytes(take(&mut rest)?) as usize;
        let hash = u64::from_le_bytes(take(&mut rest)?);
        let body = rest.split_off(..length)?;
        if body.to_vec().key_hash() != hash {
            return None;
        }
        let event = RecordedEvent::read(body)?;
        *input = rest;
        Some(event)
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            RecordedEvent::Start(start) => {
                out.push(0);
                start.write(out);
            }
            RecordedEvent::State(chunk) => {
                out.push(1);
                chunk.entries().for_each(|entry| put_state(&entry, out));
            }
            RecordedEvent::StateEnd => out.push(2),
            RecordedEvent::Input {
                input,
                records,
                payload,
            } => put_records(3, input.0, *records, payload, out),
            RecordedEvent::Watermark(watermark) => put_time(4, *watermark, out),
            RecordedEvent::Epoch(epoch) => put_number(5, epoch.0, out),
            RecordedEvent::EdgeDone(input) => put_number(6, input.0.into(), out),
            RecordedEvent::Complete => out.push(7),
            RecordedEvent::Output {
                output,
                records,
                payload,
            } => put_records(8, *output, *records, payload, out),
            RecordedEvent::OutputWatermark(watermark) => put_time(9, *watermark, out),
            RecordedEvent::BatchEnd(batch) => put_number(10, batch.0, out),
            RecordedEvent::End => out.push(11),
            RecordedEvent::Failed(why) => put_text(12, why, out),
            RecordedEvent::Stopped(why) => put_text(13, why, out),
        }
    }

    fn read(mut body: &[u8]) -> Option<RecordedEvent> {
        let [kind] = take(&mut body)?;
        Some(match kind {
            0 => RecordedEvent::Start(SegmentStart::read(body)?),
            1 => RecordedEvent::State(take_state(body)?),
            2 => RecordedEvent::StateEnd,
            3 => {
                let (input, records, payload) = take_records(body)?;
                RecordedEvent::Input {
                    input: Ordinal(input),
                    records,
                    payload,
                }
            }
            4 => RecordedEvent::Watermark(take_time(&mut body)?),
            5 => RecordedEvent::Epoch(Epoch(take_number(&mut body)?)),
            6 => RecordedEvent::EdgeDone(Ordinal(u16::try_from(take_number(&mut body)?).ok()?)),
            7 => RecordedEvent::Complete,
            8 => {
                let (output, records, payload) = take_records(body)?;
                RecordedEvent::Output {
                    output,
                    records,
                    payload,
                }
            }
            9 => RecordedEvent::OutputWatermark(take_time(&mut body)?),
            10 => RecordedEvent::BatchEnd(MicroBatch(take_number(&mut body)?)),
            11 => RecordedEvent::End,
            12 => RecordedEvent::Failed(String::from_utf8(body.to_vec()).ok()?),
            13 => RecordedEvent::Stopped(String::from_utf8(body.to_vec()).ok()?),
            _ => return None,
        })
    }
}

impl SegmentStart {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_bytes(self.job.as_bytes(), out);
        put_bytes(self.vertex.as_bytes(), out);
        for number in [
            self.instance.index,
            self.instance.parallelism,
            self.threads,
            self.chunk_records,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(self.keeps_state.into());
        out.push(self.follows.into());
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.push(self.epoch.is_some().into());
        out.extend_from_slice(&self.epoch.unwrap_or_default().0.to_le_bytes());
        for watermark in [self.watermark, self.sent] {
            out.extend_from_slice(&watermark.0.as_micros().to_le_bytes());
        }
        for input in &self.done_inputs {
            out.extend_from_slice(&input.0.to_le_bytes());
        }
    }

    fn read(mut body: &[u8]) -> Option<Self> {
        let input = &mut body;
        if u16::from_le_bytes(take(input)?) != VERSION {
            return None;
        }
        let text = |input: &mut &[u8]| String::from_utf8(take_bytes(input)?.to_vec()).ok();
        let (job, vertex) = (text(input)?, text(input)?);
        let number = |input: &mut &[u8]| take(input).map(u32::from_le_bytes);
        let instance = Instance {
            index: number(input)?,
            parallelism: number(input)?,
        };
        let (threads, chunk_records) = (number(input)?, number(input)?);
        let [keeps_state, follows] = take(input)?;
        let first = MicroBatch(take_number(input)?);
        let [has_epoch] = take(input)?;
        let epoch = Epoch(take_number(input)?);
        let (watermark, sent) = (take_time(input)?, take_time(input)?);
        let (done_inputs, rest) = body.as_chunks::<2>();
        rest.is_empty().then(|| SegmentStart {
            job,
            vertex,
            instance,
            threads,
            chunk_records,
            keeps_state: keeps_state != 0,
            first,
            follows: follows != 0,
            epoch: (has_epoch != 0).then_some(epoch),
            watermark,
            sent,
            done_inputs: done_inputs
                .iter()
                .map(|bytes| Ordinal(u16::from_le_bytes(*bytes)))
                .collect(),
        })
    }
}

fn put_number(kind: u8, number: u64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_time(kind: u8, watermark: Watermark, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&watermark.0.as_micros().to_le_bytes());
}

fn put_text(kind: u8, text: &str, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
}

fn put_records(kind: u8, ordinal: u16, records: usize, payload: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&ordinal.to_le_bytes());
    out.extend_from_slice(&(records as u64).to_le_bytes());
    out.extend_from_slice(payload);
}

fn take_records(mut body: &[u8]) -> Option<(u16, usize, Vec<u8>)> {
    let ordinal = u16::from_le_bytes(take(&mut body)?);
    let records = usize::try_from(take_number(&mut body)?).ok()?;
    Some((ordinal, records, body.to_vec()))
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // An entry is shorter than 4 GB.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(input)?) as usize;
    input.split_off(..length)
}

/// Appends an entry of state. The value of a removed key has no bytes.
fn put_state(entry: &StateEntry<'_>, out: &mut Vec<u8>) {
    let partition = entry.partition.map_or(NO_PARTITION, PartitionId::index);
    put_bytes(entry.state.as_bytes(), out);
    out.extend_from_slice(&partition.to_le_bytes());
    put_bytes(entry.key, out);
    out.push(entry.value.is_some().into());
    put_bytes(entry.value.unwrap_or_default(), out);
}

fn take_state(mut body: &[u8]) -> Option<StateChunk> {
    let mut chunk = StateChunk::default();
    while !body.is_empty() {
        let state = std::str::from_utf8(take_bytes(&mut body)?).ok()?;
        let partition = u32::from_le_bytes(take(&mut body)?);
        let key = take_bytes(&mut body)?;
        let [has_value] = take(&mut body)?;
        let value = take_bytes(&mut body)?;
        let entry = StateEntry {
            state,
            partition: PartitionId::from_index(partition),
            key,
            value: (has_value != 0).then_some(value),
        };
        chunk.push(entry).ok()?;
    }
    Some(chunk)
}

fn take_number(input: &mut &[u8]) -> Option<u64> {
    take(input).map(u64::from_le_bytes)
}

fn take_time(input: &mut &[u8]) -> Option<Watermark> {
    let micros = i64::from_le_bytes(take(input)?);
    Some(Watermark(Timestamp::from_micros(micros)))
}

/// Takes the first `N` bytes.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn start() -> SegmentStart {
        SegmentStart {
            job: "job".into(),
            vertex: "a: b".into(),
            instance: Instance {
                index: 1,
                parallelism: 3,
            },
            threads: 2,
            chunk_records: 1_024,
            keeps_state: true,
            first: MicroBatch(17),
            follows: true,
            epoch: Some(Epoch(4)),
            watermark: Watermark(Timestamp::from_secs(-5)),
            sent: Watermark(Timestamp::from_secs(-6)),
            done_inputs: vec![Ordinal(1), Ordinal(0)],
        }
    }

    fn all() -> Vec<RecordedEvent> {
        let mut state = StateChunk::default();
        for (key, value) in [(&b"a"[..], Some(&b"1"[..])), (b"b", None)] {
            let entry = StateEntry {
                state: "keys",
                partition: PartitionId::from_index(7),
                key,
                value,
            };
            state.push(entry).unwrap();
        }
        let payload = vec![1, 2, 3];
        vec![
            RecordedEvent::Start(start()),
            RecordedEvent::State(state),
            RecordedEvent::StateEnd,
            RecordedEvent::Input {
                input: Ordinal(1),
                records: 70_000,
                payload: payload.clone(),
            },
            RecordedEvent::Watermark(Watermark::END),
            RecordedEvent::Epoch(Epoch(9)),
            RecordedEvent::EdgeDone(Ordinal(2)),
            RecordedEvent::Complete,
            RecordedEvent::Output {
                output: 3,
                records: 0,
                payload,
            },
            RecordedEvent::OutputWatermark(Watermark::NONE),
            RecordedEvent::BatchEnd(MicroBatch(12)),
            RecordedEvent::End,
            RecordedEvent::Failed("it did".into()),
            RecordedEvent::Stopped(String::new()),
        ]
    }

    fn bytes_of(events: &[RecordedEvent]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for event in events {
            event.append_to(&mut bytes).unwrap();
        }
        bytes
    }

    fn read_all(mut bytes: &[u8]) -> Vec<RecordedEvent> {
        std::iter::from_fn(|| RecordedEvent::take_from(&mut bytes)).collect()
    }

    #[test]
    fn every_entry_comes_back_as_it_was_written() {
        let bytes = bytes_of(&all());
        let read = read_all(&bytes);
        assert_eq!(read.len(), all().len());
        assert_eq!(bytes_of(&read), bytes);
        assert!(matches!(&read[0], RecordedEvent::Start(read) if *read == start()));
        let RecordedEvent::State(state) = &read[1] else {
            panic!("not the state: {read:?}")
        };
        let values: Vec<_> = state.entries().map(|entry| entry.value).collect();
        assert_eq!(values, [Some(&b"1"[..]), None]);
    }

    proptest! {
        #[test]
        fn a_torn_or_damaged_tail_ends_a_recording(at in any::<prop::sample::Index>(), flips in any::<bool>()) {
            let mut bytes = bytes_of(&all());
            let at = at.index(bytes.len());
            match flips {
                true => bytes[at] ^= 1,
                false => bytes.truncate(at),
            }
            let read = read_all(&bytes);
            prop_assert!(read.len() < all().len());
            prop_assert_eq!(bytes_of(&read), bytes_of(&all()[..read.len()]));
        }
    }
}
