//! The failure of a command: as text, as JSON, and as an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use ardea_core::{Error, ErrorCode};
use serde_json::json;

use super::error_report::{error_json, error_text, exit_code};

const DRAINED: u8 = 4;
const NOTHING_GOOD: u8 = 5;
const STOP_TIMED_OUT: u8 = 6;
const INTERRUPTED: u8 = 130;

/// The reason why a command ended early.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An error that is shown to the user.
    Error(Error),
    /// The job reached its own end, but no record was good.
    NothingGood(Error),
    /// The user interrupted the job, and it has ended in an orderly way.
    Drained,
    /// The user interrupted the job, and it has ended without its last checkpoint.
    StopTimedOut,
    /// The user interrupted the job.
    Interrupted,
    /// The reader of standard output has closed it: a normal end.
    ReaderGone,
}

impl Failure {
    /// Creates a usage error that the argument parser can't detect.
    pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::Error(Error::new(ErrorCode::InvalidConfig, what).hint(hint))
    }

    /// Creates the failure of writing `what`.
    pub fn write(what: impl Into<String>, error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ReaderGone;
        }
        let what = format!("cannot write {}", what.into());
        Failure::Error(
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the path, its permissions and the free space"),
        )
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Error(error) => exit_code(error),
            Failure::NothingGood(_) => NOTHING_GOOD,
            Failure::Drained => DRAINED,
            Failure::StopTimedOut => STOP_TIMED_OUT,
            Failure::Interrupted => INTERRUPTED,
            Failure::ReaderGone => 0,
        }
    }

    /// Prints the error, if there is one, to standard error, and returns the exit code.
    pub fn report(&self, is_json: bool) -> ExitCode {
        self.print(is_json);
        ExitCode::from(self.exit_code())
    }

    /// Prints the error, if there is one, to standard error.
    pub fn print(&self, is_json: bool) {
        if let Failure::Error(error) | Failure::NothingGood(error) = self {
            let text = if is_json {
                format!("{}\n", error_json(error, self.exit_code()))
            } else {
                error_text(error)
            };
            print_error(&text);
        }
    }
}

impl From<Error> for Failure {
    /// A job that ended because its output was closed did not fail.
    fn from(error: Error) -> Self {
        match error.code() {
            ErrorCode::OutputClosed => Failure::ReaderGone,
            _ => Failure::Error(error),
        }
    }
}

/// Prints a notice to standard error: a line of text, or a JSON object.
pub fn print_notice(kind: MessageKind, text: &str, is_json: bool) {
    print_error(&notice(kind, text, is_json));
}

/// The kind of a message beside results and errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// A warning about the results.
    Warning,
    /// Progress.
    Progress,
}

fn notice(kind: MessageKind, text: &str, is_json: bool) -> String {
    match (kind, is_json) {
        (MessageKind::Warning, true) => format!("{}\n", json!({ "warning": text })),
        (MessageKind::Progress, true) => format!("{}\n", json!({ "notice": text })),
        (MessageKind::Warning, false) => format!("warning: {text}\n"),
        (MessageKind::Progress, false) => format!("{text}\n"),
    }
}

/// Writes to standard error; errors are ignored.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_a_line_for_people_and_an_object_for_programs() {
        assert_eq!(
            notice(MessageKind::Warning, "a \"b\"", false),
            "warning: a \"b\"\n"
        );
        assert_eq!(
            notice(MessageKind::Warning, "a \"b\"", true),
            "{\"warning\":\"a \\\"b\\\"\"}\n"
        );
        assert_eq!(
            notice(MessageKind::Progress, "a", true),
            "{\"notice\":\"a\"}\n"
        );
    }

    #[test]
    fn the_exit_code_says_who_has_to_act() {
        let of = |code| Failure::from(Error::new(code, "x")).exit_code();
        assert_eq!(of(ErrorCode::UserPanic), 1);
        assert_eq!(of(ErrorCode::InvalidJob), 2);
        assert_eq!(of(ErrorCode::Network), 3);
        assert_eq!(of(ErrorCode::OutputClosed), 0);
        assert_eq!(of(ErrorCode::Cancelled), 130);
        assert_eq!(of(ErrorCode::LimitReached), 2);
        assert_eq!(Failure::Drained.exit_code(), 4);
        assert_eq!(Failure::StopTimedOut.exit_code(), 6);
        assert_eq!(Failure::Interrupted.exit_code(), 130);
        assert_eq!(
            Failure::write("x", io::ErrorKind::BrokenPipe.into()).exit_code(),
            0
        );
    }
}
