//! Commands to Redis.

use ardea_connectors::redis::{self, Argument, Commands};
use ardea_core::{Error, ErrorCode, Result};

use super::sink_message::{MessageParts, MessageValue, SinkMessage, messages};
use crate::lowering::Branch;
use crate::plan::RedisSinkPlan;

/// Sends commands for each record.
pub(super) fn write(input: Branch, plan: RedisSinkPlan, has_lines: bool) -> Result<()> {
    if plan.idempotent && plan.exactly_once {
        let what = "a Redis sink is both idempotent and exactly-once";
        return Err(Error::new(ErrorCode::InvalidJob, what).hint("choose one of the two"));
    }
    let names: Vec<(String, usize)> = plan
        .commands
        .iter()
        .map(|command| (command.name.clone(), command.arguments.len()))
        .collect();
    let cells = plan.commands.into_iter().flat_map(|it| it.arguments);
    let cells: Vec<_> = cells.collect();
    let parts = MessageParts {
        value: MessageValue::Absent,
        required_cells: cells.len(),
        cells,
        policy: plan.on_error.into(),
    };
    let stream = messages(input, parts, has_lines)?;
    let write = move |message: &SinkMessage, commands: &mut Commands| {
        let mut cells = message.cells.iter().flatten();
        for (name, count) in &names {
            let arguments = cells.by_ref().take(*count);
            let arguments: Vec<&dyn Argument> = arguments.map(|it| it as &dyn Argument).collect();
            commands.command(name, &arguments);
        }
    };
    let mut sink = redis::write(plan.url, write).on_error(plan.on_error.into());
    if let Some(tag) = plan.hash_tag {
        sink = sink.hash_tag(tag);
    }
    if let Some(bytes) = plan.hold_at_most {
        sink = sink.hold_at_most(bytes);
    }
    if let Some(parallelism) = plan.parallelism {
        sink = sink.parallelism(parallelism);
    }
    if let Some(file) = plan.authority {
        sink = sink.authority(file);
    }
    if let Some((certificate, key)) = plan.certificate {
        sink = sink.certificate(certificate, key);
    }
    if let Some((user, password)) = plan.sentinel_login {
        sink = sink.sentinel_login(user.as_deref(), password);
    }
    if plan.idempotent {
        sink = sink.idempotent();
    }
    if plan.exactly_once {
        sink = sink.exactly_once();
    }
    stream.write_to(sink.build());
    Ok(())
}
