//! The arguments of `ardea instance`.

use std::ffi::OsString;
use std::time::Duration;

use ardea_config::parse_duration;
use clap::Subcommand;

/// Help of `ardea instance check`.
pub const INSTANCE_CHECK_HELP: &str = "\
Examples:
  ardea instance check -- node instance.js
  ardea instance check --record '{\"customer\": \"ann\", \"amount\": 5}' --key ann -- node spending.js

The kit plays the host against the command: handshake, batches, watermarks, barriers, restore, an unknown message, stop. \
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
    /// Sample record as a JSON document, which the program accepts; may be repeated
    #[arg(long = "record", value_name = "JSON", default_value = "{\"value\": 1}")]
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
