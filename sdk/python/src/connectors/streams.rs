//! Lines of TCP connections and of the standard streams.

use std::time::Duration;

use ardea_connectors::format::{Decode, Encode};
use ardea_connectors::tcp::{self, Backoff};
use ardea_connectors::{stdin, stdout};
use ardea_core::Result;
use ardea_pipeline::Pipeline;

use super::as_bounded;
use super::sink_message::{MessageParts, MessageValue, SinkMessage, messages};
use super::source_message::{SourceMessage, read_messages};
use crate::lowering::{Branch, EventTime, SourceTable};
use crate::plan::{MessagePlan, OutgoingPlan, TcpSinkPlan, TcpSourcePlan};

/// The lines of a stream of bytes as messages. Blank lines are no messages.
#[derive(Clone)]
struct Lines;

impl Decode<SourceMessage> for Lines {
    fn decode(&mut self, frame: &[u8]) -> Result<Option<SourceMessage>, String> {
        Ok((!frame.is_empty()).then(|| SourceMessage {
            value: Some(frame.to_vec()),
            metadata: Vec::new(),
            origin: None,
        }))
    }
}

impl Encode<SinkMessage> for Lines {
    fn encode(&mut self, record: &SinkMessage, out: &mut Vec<u8>) -> Result<(), String> {
        let value = record.value.as_deref().ok_or("the value is null")?;
        if value.contains(&b'\n') {
            return Err("a text with a newline is no line".to_string());
        }
        out.extend_from_slice(value);
        out.push(b'\n');
        Ok(())
    }
}

/// Reads lines from a server, or from clients.
pub(super) fn read_tcp(pipeline: &Pipeline, plan: TcpSourcePlan) -> Result<SourceTable> {
    let source = match plan.listens {
        false => {
            let source = tcp::connect(plan.address).decode(Lines);
            match plan.reconnect {
                true => source.reconnect(Backoff::default()).build(),
                false => source.build(),
            }
        }
        true => {
            let mut source = tcp::listen(plan.address).decode(Lines);
            if plan.expose {
                source = source.expose();
            }
            if let Some(clients) = plan.max_clients {
                source = source.max_clients(clients);
            }
            if let Some(timeout) = plan.idle_timeout {
                source = source.idle_timeout(Duration::from(timeout));
            }
            source.build()
        }
    };
    let lines = pipeline.read_from(as_bounded(source));
    read_messages(lines, &plan.messages, (EventTime::Absent, false))
}

/// Reads the lines of standard input.
pub(super) fn read_stdin(pipeline: &Pipeline, plan: MessagePlan) -> Result<SourceTable> {
    let lines = pipeline.read_from(stdin::read(Lines));
    read_messages(lines, &plan, (EventTime::Absent, true))
}

/// Writes lines to a server.
pub(super) fn write_tcp(input: Branch, plan: TcpSinkPlan, has_lines: bool) -> Result<()> {
    let stream = messages(input, parts_of(plan.outgoing), has_lines)?;
    let sink = tcp::send::<SinkMessage>(plan.address).encode(Lines);
    stream.write_to(match plan.reconnect {
        true => sink.reconnect(Backoff::default()).build(),
        false => sink.build(),
    });
    Ok(())
}

/// Writes lines to standard output.
pub(super) fn write_stdout(input: Branch, plan: OutgoingPlan, has_lines: bool) -> Result<()> {
    let stream = messages(input, parts_of(plan), has_lines)?;
    stream.write_to(stdout::write(Lines).build());
    Ok(())
}

fn parts_of(plan: OutgoingPlan) -> MessageParts {
    MessageParts {
        value: MessageValue::of(plan.value),
        cells: Vec::new(),
        required_cells: 0,
        policy: plan.on_error.into(),
    }
}
