//! Errors of the command line, and what the help says of exit codes; failures of jobs are [`ardea::console::Failure`].

use std::process::ExitCode;

use ardea::console::words;
pub use ardea::console::{Failure, Notice, print_error, print_notice};
use ardea_core::{Error, ErrorCode};
use ardea_nexmark::NexmarkError;
use clap::error::ErrorKind;
use serde_json::json;

/// The exit codes, as the help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done, or the reader of standard output had seen enough
  1    the job failed
  2    the command line, a setting or the job's description is wrong, or asks for more than can
       be had; nearly always found before anything was run
  3    a file, a pipe or the network could not be read or written
  4    drained: ended early by a first Ctrl-C or SIGTERM, with whole results of what was
       read until then; or stopped, to go on when it is run again
  5    came to its end, but all records that a source or a step had were bad (a drained job: 4)
  6    stopped by a first Ctrl-C or SIGTERM without a last snapshot, which could not be made within
       recovery.stop_within; run again, it goes on from the one before
  130  stopped at once by a second Ctrl-C, or by the first where there is nothing to drain";

const USAGE: u8 = 2;

/// The failure of a NEXMark query or of its generator.
pub fn of_nexmark(error: NexmarkError) -> Failure {
    match error {
        NexmarkError::Setting { .. } => {
            Failure::Error(Error::new(ErrorCode::InvalidConfig, error.to_string()))
        }
        NexmarkError::Write { source, .. } => Failure::write("the events", source),
    }
}

/// Reports what clap found: help and version are results, all else is a usage error.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    // The command line could not be read, so whether it asks for JSON has to be seen from its words.
    let is_json = std::env::args_os().any(|arg| arg == "--json");
    if error.kind() == ErrorKind::InvalidUtf8
        && let Err(error) = words(std::env::args_os().skip(1))
    {
        return Failure::from(error).report(is_json);
    }
    if error.use_stderr() && is_json {
        let (message, hint) = usage_parts(error);
        let fields =
            json!({ "code": "ARD-102", "message": message, "hint": hint, "exit_code": USAGE });
        print_error(&format!("{}\n", json!({ "error": fields })));
    } else {
        // A reader that has gone wants no help.
        let _ = error.print();
    }
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// What is wrong with the command line, and what to do next: of all that clap prints, which also has the usage, for programs.
fn usage_parts(error: &clap::Error) -> (String, String) {
    if let ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand =
        error.kind()
    {
        return (
            "there is no command".into(),
            "--help lists the commands".into(),
        );
    }
    let text = error.render().to_string();
    let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let tips = rest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tips.map(on_one_line).collect::<Vec<_>>().join("; ");
    (
        on_one_line(what.trim_start_matches("error: ")),
        if hint.is_empty() {
            "--help explains the command".into()
        } else {
            hint
        },
    )
}
