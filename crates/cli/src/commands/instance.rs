//! `ardea instance check`: the conformance kit for instances in processes of their own.

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea::instance::InstanceCommand;
use ardea::instance::check::{self, CheckOutcome, CheckSettings, CheckVerdict};
use ardea::instance::protocol::InstanceRole;
use ardea_core::{Error, ErrorCode};
use serde_json::json;

use crate::args::InstanceCheckArgs;
use crate::stdout;

/// Runs the kit against a command, and prints the verdict of each check.
pub fn check(args: &InstanceCheckArgs, context: &Context) -> Result<(), Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage(
            "there is no command to check",
            "give it behind `--`: ardea instance check -- node instance.js",
        ));
    };
    if args.role == InstanceRole::Step && !args.outputs.is_empty() {
        return Err(Failure::usage(
            "a step has no streams for --output",
            "add --role spout or --role bolt, or remove --output",
        ));
    }
    let mut command = InstanceCommand::new(program).args(rest);
    for (name, value) in &args.parameters {
        command = command.parameter(name, value.clone());
    }
    let mut records = args.records.clone();
    if records.is_empty() {
        records.push(match args.role {
            InstanceRole::Bolt => "[\"value\"]".to_owned(),
            _ => "{\"value\": 1}".to_owned(),
        });
    }
    let settings = CheckSettings {
        command,
        records,
        role: args.role,
        outputs: args.outputs.clone(),
        key: args.key.clone(),
        timeout: args.timeout,
    };
    let mut printed = Ok(());
    let outcomes = check::run(&settings, &mut |outcome| {
        if printed.is_ok() {
            printed = print(outcome, context.json);
        }
    });
    printed?;
    let failed = outcomes.iter().filter(|it| it.is_failed()).count();
    if failed == 0 {
        return Ok(());
    }
    let (all, command) = (outcomes.len(), &settings.command);
    let what = format!("{failed} of {all} checks of `{command}` failed");
    let error = Error::new(ErrorCode::InstanceProcessFailed, what);
    Err(error
        .hint("docs/instance-protocol.md describes the protocol")
        .into())
}

fn print(outcome: &CheckOutcome, as_json: bool) -> Result<(), Failure> {
    if !as_json {
        return stdout::print(&format!("{outcome}\n"));
    }
    let (verdict, text) = match &outcome.verdict {
        CheckVerdict::Passed(text) => ("passed", text),
        CheckVerdict::Failed(text) => ("failed", text),
        CheckVerdict::Skipped(text) => ("skipped", text),
    };
    let stderr = &outcome.last_lines;
    stdout::print_json(&json!({
        "check": outcome.name, "verdict": verdict, "text": text, "stderr": stderr,
    }))
}
