//! The messages of spouts and bolts: their part of CONFIGURE, and the payloads of EMIT, ACKS and
//! METRIC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::frame::PART_BYTES;
use super::read::{PayloadReader, Violation, put_reason, put_sized};

/// The wait of a spout that has no more tuples unless a message fails.
pub const SPOUT_IS_DONE: i32 = -1;

/// The role of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceRole {
    /// A step of a pipeline.
    #[default]
    Step,
    /// A source of tuples of a topology.
    Spout,
    /// A component of a topology that processes tuples.
    Bolt,
    /// A vertex of the graph of the job's own program.
    Vertex,
}

impl InstanceRole {
    /// Returns the name in HELLO and CONFIGURE.
    pub const fn as_str(self) -> &'static str {
        match self {
            InstanceRole::Step => "step",
            InstanceRole::Spout => "spout",
            InstanceRole::Bolt => "bolt",
            InstanceRole::Vertex => "vertex",
        }
    }
}

/// An input of a bolt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentInput {
    /// The component that emits the tuples.
    pub component: String,
    /// The stream of that component.
    pub stream: String,
    /// The names of the fields.
    pub fields: Vec<String>,
}

/// A stream that a spout or bolt emits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentOutput {
    /// The name of the stream.
    pub stream: String,
    /// The names of the fields.
    pub fields: Vec<String>,
    /// True if each tuple names the instance that receives it.
    #[serde(default)]
    pub direct: bool,
}

/// The part of CONFIGURE that describes a spout or bolt. The default is that of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ComponentConfiguration {
    /// The role.
    #[serde(default)]
    pub role: InstanceRole,
    /// The inputs of a bolt, in the order of their indexes.
    #[serde(default)]
    pub inputs: Vec<ComponentInput>,
    /// The streams that the component emits, in the order of their indexes.
    #[serde(default)]
    pub outputs: Vec<ComponentOutput>,
    /// True if the topology tracks messages.
    #[serde(default)]
    pub acks: bool,
    /// Maximum number of messages of an instance of a spout that are neither acked nor failed.
    #[serde(default)]
    pub max_pending: Option<u64>,
    /// The parallelism of each component of the topology.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parallelism: BTreeMap<String, u32>,
}

/// A tuple that a bolt holds: its row in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PendingRow {
    /// The sequence of the batch. In an EMIT of a spout: the id of the message.
    pub batch: u64,
    /// The row.
    pub row: u32,
}

/// A tuple of an EMIT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmittedTuple<'a> {
    /// The held tuples that the tuple is anchored to; of a spout at most one, with the message id.
    pub anchors: Vec<PendingRow>,
    /// The tuple.
    pub value: &'a [u8],
}

/// The tuples of an EMIT.
#[derive(Clone, Debug)]
pub struct EmitReader<'a> {
    reader: PayloadReader<'a>,
    left: u32,
}

impl<'a> EmitReader<'a> {
    /// Reads the payload of an EMIT.
    ///
    /// # Errors
    /// A payload without the number of tuples.
    pub fn read(payload: &'a [u8]) -> Result<Self, Violation> {
        let mut reader = PayloadReader::new(payload, "EMIT");
        let left = reader.u32()?;
        Ok(EmitReader { reader, left })
    }

    /// Returns the number of tuples that were not returned yet.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Returns the next tuple.
    ///
    /// # Errors
    /// A payload that ends too early.
    pub fn next_tuple(&mut self) -> Result<Option<EmittedTuple<'a>>, Violation> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let count = self.reader.u32()? as usize;
        let mut anchors = Vec::with_capacity(count.min(self.reader.left() / 12));
        for _ in 0..count {
            let (batch, row) = (self.reader.u64()?, self.reader.u32()?);
            anchors.push(PendingRow { batch, row });
        }
        let value = self.reader.sized()?;
        Ok(Some(EmittedTuple { anchors, value }))
    }

    /// Returns the wait in milliseconds, after all tuples.
    ///
    /// # Errors
    /// A payload that ends too early or too late.
    pub fn wait_millis(mut self) -> Result<i32, Violation> {
        while self.next_tuple()?.is_some() {}
        let wait = self.reader.i32()?;
        self.reader.end()?;
        Ok(wait)
    }
}

/// A writer of the payload of an EMIT.
#[derive(Debug)]
pub struct EmitWriter {
    payload: Vec<u8>,
    tuples: u32,
}

impl Default for EmitWriter {
    fn default() -> Self {
        EmitWriter {
            payload: vec![0; 4],
            tuples: 0,
        }
    }
}

impl EmitWriter {
    /// Appends a tuple.
    pub fn push(&mut self, anchors: &[PendingRow], value: &[u8]) {
        self.payload
            .extend_from_slice(&(anchors.len() as u32).to_le_bytes());
        for anchor in anchors {
            self.payload.extend_from_slice(&anchor.batch.to_le_bytes());
            self.payload.extend_from_slice(&anchor.row.to_le_bytes());
        }
        put_sized(&mut self.payload, value);
        self.tuples += 1;
    }

    /// Returns the number of tuples so far.
    pub fn tuples(&self) -> u32 {
        self.tuples
    }

    /// Returns the length of the payload so far.
    pub fn byte_len(&self) -> usize {
        self.payload.len()
    }

    /// Returns the payload, and empties the writer.
    pub fn finish(&mut self, wait_millis: i32) -> Vec<u8> {
        let mut emit = std::mem::take(self);
        emit.payload[..4].copy_from_slice(&emit.tuples.to_le_bytes());
        emit.payload.extend_from_slice(&wait_millis.to_le_bytes());
        emit.payload
    }
}

/// Returns the payloads of ACKS for a spout, in parts that fit into frames.
pub fn write_message_outcome_parts(outcomes: &[(u64, bool)]) -> impl Iterator<Item = Vec<u8>> {
    outcomes.chunks(PART_BYTES / 9).map(write_message_outcomes)
}

/// Returns the payload of ACKS for a spout: ids of messages, and true for those that were acked.
pub fn write_message_outcomes(outcomes: &[(u64, bool)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 + 9 * outcomes.len());
    payload.extend_from_slice(&(outcomes.len() as u32).to_le_bytes());
    for (message, is_acked) in outcomes {
        payload.extend_from_slice(&message.to_le_bytes());
        payload.push(u8::from(*is_acked));
    }
    payload
}

/// Reads the payload of ACKS for a spout.
///
/// # Errors
/// A payload that can't be read.
pub fn read_message_outcomes(payload: &[u8]) -> Result<Vec<(u64, bool)>, Violation> {
    let mut reader = PayloadReader::new(payload, "ACKS");
    let count = reader.u32()? as usize;
    let mut outcomes = Vec::with_capacity(count.min(reader.left() / 9));
    for _ in 0..count {
        outcomes.push((reader.u64()?, reader.u8()? != 0));
    }
    reader.end()?;
    Ok(outcomes)
}

/// The outcome of a tuple that a bolt held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TupleAck {
    /// The tuple.
    pub held: PendingRow,
    /// The reason of the failure; `None` if the tuple was acked.
    pub failure: Option<String>,
}

/// Returns the payload of ACKS of a bolt.
pub fn write_tuple_acks(acks: &[TupleAck]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&(acks.len() as u32).to_le_bytes());
    for ack in acks {
        payload.extend_from_slice(&ack.held.batch.to_le_bytes());
        payload.extend_from_slice(&ack.held.row.to_le_bytes());
        payload.push(u8::from(ack.failure.is_none()));
        put_reason(&mut payload, ack.failure.as_deref().unwrap_or_default());
    }
    payload
}

/// Returns the payloads of ACKS of a bolt, in parts that fit into frames.
pub fn write_tuple_ack_parts(acks: &[TupleAck]) -> Vec<Vec<u8>> {
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, ack) in acks.iter().enumerate() {
        bytes += 17 + ack.failure.as_ref().map_or(0, String::len);
        if bytes >= PART_BYTES {
            parts.push(write_tuple_acks(&acks[start..=at]));
            (start, bytes) = (at + 1, 0);
        }
    }
    if start < acks.len() {
        parts.push(write_tuple_acks(&acks[start..]));
    }
    parts
}

/// Reads the payload of ACKS of a bolt.
///
/// # Errors
/// A payload that can't be read.
pub fn read_tuple_acks(payload: &[u8]) -> Result<Vec<TupleAck>, Violation> {
    let mut reader = PayloadReader::new(payload, "ACKS");
    let count = reader.u32()? as usize;
    let mut acks = Vec::with_capacity(count.min(reader.left() / 17));
    for _ in 0..count {
        let (batch, row) = (reader.u64()?, reader.u32()?);
        let is_acked = reader.u8()? != 0;
        let reason = String::from_utf8_lossy(reader.sized()?).into_owned();
        acks.push(TupleAck {
            held: PendingRow { batch, row },
            failure: (!is_acked).then_some(reason),
        });
    }
    reader.end()?;
    Ok(acks)
}

/// The kind of a metric of user code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// A sum: the value is added.
    Counter,
    /// A level: the value replaces the earlier one.
    Gauge,
}

/// The payload of METRIC.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UserMetric {
    /// The name, without a prefix.
    pub name: String,
    /// The kind.
    pub kind: MetricKind,
    /// The value.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn emitted_tuples_are_read_as_they_were_written() {
        let anchors = [
            PendingRow { batch: 7, row: 1 },
            PendingRow { batch: 9, row: 0 },
        ];
        let mut writer = EmitWriter::default();
        writer.push(&anchors, b"[0]");
        writer.push(&[], b"[1]");
        let payload = writer.finish(SPOUT_IS_DONE);
        let mut reader = EmitReader::read(&payload).unwrap();
        let first = reader.next_tuple().unwrap().unwrap();
        assert_eq!((&*first.anchors, first.value), (&anchors[..], &b"[0]"[..]));
        assert_eq!(reader.wait_millis().unwrap(), SPOUT_IS_DONE);
    }

    #[test]
    fn outcomes_are_read_as_they_were_written() {
        let outcomes = [(7, true), (u64::MAX, false)];
        let payload = write_message_outcomes(&outcomes);
        assert_eq!(read_message_outcomes(&payload).unwrap(), outcomes);
        let held = PendingRow { batch: 3, row: 4 };
        let acks = [None, Some("no".to_owned())].map(|failure| TupleAck { held, failure });
        assert_eq!(read_tuple_acks(&write_tuple_acks(&acks)).unwrap(), acks);
    }

    #[test]
    fn many_outcomes_are_written_in_parts_that_fit_into_frames() {
        let fits = |part: &Vec<u8>| part.len() < 2 * PART_BYTES;
        let outcomes: Vec<(u64, bool)> = (0..400_000u64)
            .map(|id| (id, id.is_multiple_of(2)))
            .collect();
        let parts: Vec<Vec<u8>> = write_message_outcome_parts(&outcomes).collect();
        assert!(parts.iter().all(fits));
        let read = parts
            .iter()
            .flat_map(|it| read_message_outcomes(it).unwrap());
        assert!(read.eq(outcomes));
        let acks: Vec<TupleAck> = (0..3_000)
            .map(|row| TupleAck {
                held: PendingRow { batch: 1, row },
                failure: Some("x".repeat(20_000)),
            })
            .collect();
        let parts = write_tuple_ack_parts(&acks);
        assert!(parts.iter().all(fits));
        let read = parts.iter().flat_map(|it| read_tuple_acks(it).unwrap());
        assert!(read.eq(acks));
        assert!(write_tuple_ack_parts(&[]).is_empty());
    }

    #[test]
    fn a_configuration_without_a_role_is_that_of_a_step() {
        let read: ComponentConfiguration = serde_json::from_str("{}").unwrap();
        assert_eq!(read, ComponentConfiguration::default());
    }

    proptest! {
        #[test]
        fn no_payload_makes_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(reader) = EmitReader::read(&bytes) {
                let _ = reader.wait_millis();
            }
            let _ = read_message_outcomes(&bytes);
            let _ = read_tuple_acks(&bytes);
        }
    }
}
