//! The arguments of `ardea instance`.

use std::ffi::OsString;
use std::time::Duration;

use ardea::instance::protocol::{ComponentOutput, InstanceRole};
use ardea_config::parse_duration;
use clap::Subcommand;

/// Help of `ardea instance check`.
pub const INSTANCE_CHECK_HELP: &str = "\
Examples:
  ardea instance check -- node instance.js
  ardea instance check --record '{\"customer\": \"ann\", \"amount\": 5}' --key ann -- node spending.js
  ardea instance check --role bolt --record '[\"to be\"]' --output default=word -- python3 -m ardea component words:Split

The kit plays the host against the command: handshake, batches, watermarks, barriers, restore, an unknown message, stop; \
of spouts and bolts also tuples, acks, ticks and the end. \
Each check starts a process. Exits with code 0 if all checks pass. docs/instance-protocol.md describes the protocol.";

/// The subcommands of `ardea instance`.
#[derive(Subcommand, Debug)]
pub enum InstanceCommands {
    /// Check that a program speaks the protocol of instances in processes of their own
    #[command(after_help = INSTANCE_CHECK_HELP)]
    Check(InstanceCheckArgs),
}

/// The arguments of `ardea instance check`.
#[derive(clap::Args, Debug)]
pub struct InstanceCheckArgs {
    /// Role of the program: step, spout or bolt
    #[arg(long, value_name = "ROLE", value_parser = role, default_value = "step")]
    pub role: InstanceRole,
    /// Stream that a spout or bolt emits; may be repeated, in the order of the indexes
    #[arg(long = "output", value_name = "STREAM=FIELD,FIELD", value_parser = output)]
    pub outputs: Vec<ComponentOutput>,
    /// Sample record as a JSON document, which the program accepts; may be repeated. For a bolt the
    /// array of the values of a tuple. Default: {"value": 1}, of a bolt ["value"]
    #[arg(long = "record", value_name = "JSON")]
    pub records: Vec<String>,
    /// Key of the records, for a step with keys
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Parameter of the step: a JSON document or a text; may be repeated
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// Time within which the program must answer
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    pub timeout: Duration,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Parses `NAME=VALUE`.
fn parameter(text: &str) -> Result<(String, serde_json::Value), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("a parameter is NAME=VALUE".into());
    };
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

/// Parses the name of a role.
fn role(text: &str) -> Result<InstanceRole, String> {
    let roles = [InstanceRole::Step, InstanceRole::Spout, InstanceRole::Bolt];
    let found = roles.into_iter().find(|role| role.as_str() == text);
    found.ok_or_else(|| "a role is step, spout or bolt".into())
}

/// Parses `STREAM=FIELD,FIELD`.
fn output(text: &str) -> Result<ComponentOutput, String> {
    match text.split_once('=') {
        Some((stream, fields)) if !stream.is_empty() && !fields.is_empty() => Ok(ComponentOutput {
            stream: stream.to_owned(),
            fields: fields.split(',').map(str::to_owned).collect(),
            direct: false,
        }),
        _ => Err("an output is STREAM=FIELD,FIELD".into()),
    }
}
