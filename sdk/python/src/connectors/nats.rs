//! Streams of NATS JetStream.

use std::num::NonZeroU32;

use ardea_connectors::nats::{self, Message};
use ardea_core::{Error, ErrorCode, Result};
use ardea_pipeline::Pipeline;

use super::as_bounded;
use super::sink_message::{MessageParts, MessageValue, SinkMessage, messages};
use super::source_message::{MetadataValue, Origin, SourceMessage, read_messages};
use crate::lowering::{Branch, EventTime, SourceTable};
use crate::plan::{MetadataField, NatsSinkPlan, NatsSourcePlan};

/// Reads a stream.
pub(super) fn read(pipeline: &Pipeline, plan: NatsSourcePlan) -> Result<SourceTable> {
    let metadata = plan.messages.metadata.clone();
    let stream = plan.stream.clone();
    let mut source = nats::read(plan.url, plan.stream)
        .decode(move |message: &Message<'_>| Ok(copied(message, &stream, &metadata)))
        .on_lost_position(plan.on_lost_position.into())
        .on_error(plan.messages.on_error.into());
    if let Some(subject) = plan.subject {
        source = source.subject(subject);
    }
    if let Some(consumer) = plan.consumer {
        source = source.consumer(consumer);
    }
    if let Some(in_flight) = plan.in_flight {
        source = source.in_flight(NonZeroU32::new(in_flight).ok_or_else(|| {
            Error::new(ErrorCode::InvalidJob, "in_flight of a NATS source is zero")
                .hint("give the number of messages between two checkpoints")
        })?);
    }
    if let Some(patience) = plan.patience {
        source = source.patience(patience.into());
    }
    let source = as_bounded(source.build());
    let kind = (EventTime::OfSource, false);
    read_messages(pipeline.read_from(source), &plan.messages, kind)
}

/// Copies a message with the parts that are asked for.
fn copied(message: &Message<'_>, stream: &str, metadata: &[MetadataField]) -> SourceMessage {
    let sequence = i64::try_from(message.sequence).unwrap_or(i64::MAX);
    let metadata = metadata.iter().map(|field| match field {
        MetadataField::Key => MetadataValue::Bytes(None),
        MetadataField::Topic | MetadataField::Subject => {
            MetadataValue::Text(message.subject.to_string())
        }
        MetadataField::Partition => MetadataValue::Number(0),
        MetadataField::Offset | MetadataField::Sequence => MetadataValue::Number(sequence),
        MetadataField::Timestamp => MetadataValue::Time(message.published),
    });
    SourceMessage {
        value: Some(message.payload.to_vec()),
        metadata: metadata.collect(),
        origin: Some(Origin {
            stream: stream.to_string(),
            partition: None,
            number: sequence,
        }),
    }
}

/// Writes to the streams of subjects.
pub(super) fn write(input: Branch, plan: NatsSinkPlan, has_lines: bool) -> Result<()> {
    let parts = MessageParts {
        value: MessageValue::of(plan.outgoing.value),
        cells: [plan.subject].into_iter().chain(plan.id).collect(),
        required_cells: 1,
        policy: plan.outgoing.on_error.into(),
    };
    let stream = messages(input, parts, has_lines)?;
    let text = |cell: Option<&Option<Vec<u8>>>| -> Option<String> {
        let bytes = cell?.as_ref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let mut sink = nats::write(plan.url, move |message: &SinkMessage, out| {
        out.subject(text(message.cells.first()).unwrap_or_default());
        out.payload(message.value.as_deref().unwrap_or_default());
        if let Some(id) = text(message.cells.get(1)) {
            out.id(id);
        }
        Ok(())
    })
    .on_error(plan.outgoing.on_error.into());
    if let Some(parallelism) = plan.parallelism {
        sink = sink.parallelism(parallelism);
    }
    if plan.idempotent {
        sink = sink.idempotent();
    }
    stream.write_to(sink.build());
    Ok(())
}
