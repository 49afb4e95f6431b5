//! Errors of the command line, the help on exit codes, and the end of a program.

use std::process::ExitCode;

use ardea_core::{Error, ErrorCode};
use clap::error::ErrorKind;

use crate::console::{Failure, error_json, print_error, words};

/// The exit codes, as the help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done, or the reader of standard output closed it, as `head` does
  1    the job failed
  2    the command line, a setting or the job's description is wrong, or requires more than
       there is; found before the job starts, with few exceptions
  3    a file, a pipe or the network could not be read or written
  4    drained: ended early by a first Ctrl-C or SIGTERM, with complete results of the input
       read until then; or stopped with a last checkpoint, from which the next run continues
  5    ended, but every record of a source or a step was bad (a drained job: 4)
  6    stopped by a first Ctrl-C or SIGTERM without a last checkpoint, which could not be made
       within recovery.stop_within; the next run continues from the previous checkpoint
  130  stopped at once by a second Ctrl-C, or by the first if there is nothing to drain";

const USAGE: u8 = 2;

/// Reports the failure of a command, if it has failed, and returns the exit code.
pub fn exit(outcome: Result<(), Failure>, is_json: bool) -> ExitCode {
    ExitCode::from(exit_code(outcome, is_json))
}

/// Works like [`exit`], and returns the exit code as a number.
pub fn exit_code(outcome: Result<(), Failure>, is_json: bool) -> u8 {
    let Err(failure) = outcome else {
        return 0;
    };
    failure.print(is_json);
    failure.exit_code()
}

/// Reports clap's error: help and version are results, all else is a usage error.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    ExitCode::from(report_usage_code(error))
}

/// Works like [`report_usage`], and returns the exit code as a number.
pub fn report_usage_code(error: &clap::Error) -> u8 {
    // The command line could not be parsed, so `--json` is searched among its words.
    let is_json = std::env::args_os().any(|arg| arg == "--json");
    if error.kind() == ErrorKind::InvalidUtf8
        && let Err(error) = words(std::env::args_os().skip(1))
    {
        return exit_code(Err(Failure::from(error)), is_json);
    }
    if error.use_stderr() && is_json {
        print_error(&format!("{}\n", error_json(&usage_error(error), USAGE)));
    } else {
        // Ignored if the reader has closed the output.
        let _ = error.print();
    }
    if error.use_stderr() { USAGE } else { 0 }
}

/// Returns clap's error without the usage, with its tips as the hint.
pub fn usage_error(error: &clap::Error) -> Error {
    let (what, hint) = usage_parts(error);
    Error::new(ErrorCode::InvalidConfig, what).hint(hint)
}

/// Splits the text that clap prints, which includes the usage, into message and hint.
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
