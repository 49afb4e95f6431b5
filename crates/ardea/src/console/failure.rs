//! Why a command did not do what it was asked: for people, for programs, and as an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use ardea_core::{Error, ErrorCode};
use serde_json::json;

use crate::job::{exit_code, told_as_json, told_as_text};

const DRAINED: u8 = 4;
const NOTHING_GOOD: u8 = 5;
const STOP_TIMED_OUT: u8 = 6;
const INTERRUPTED: u8 = 130;

/// Why a command ended early.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Something went wrong, and a person has to know what.
    Error(Error),
    /// The job came to its own end, but no record was good.
    NothingGood(Error),
    /// The person asked for it, and the job has come to an orderly end.
    Drained,
    /// The person asked for it, and the job has ended without the last snapshot that it should have
    /// made.
    StopTimedOut,
    /// The person asked for it.
    Interrupted,
    /// Whoever reads standard output has seen enough: a normal end.
    ReaderGone,
}

impl Failure {
    /// A mistake on the command line that only the command itself could find.
    pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::Error(Error::new(ErrorCode::InvalidConfig, what).hint(hint))
    }

    /// Writing `what` failed.
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

    /// The exit code of the process.
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

    /// Tells standard error what has to be told, and returns the exit code.
    pub fn report(&self, is_json: bool) -> ExitCode {
        if let Failure::Error(error) | Failure::NothingGood(error) = self {
            let text = if is_json {
                format!("{}\n", told_as_json(error, self.exit_code()))
            } else {
                told_as_text(error)
            };
            print_error(&text);
        }
        ExitCode::from(self.exit_code())
    }
}

impl From<Error> for Failure {
    /// A job that ended since its output was not wanted any more did not fail.
    fn from(error: Error) -> Self {
        match error.code() {
            ErrorCode::OutputClosed => Failure::ReaderGone,
            _ => Failure::Error(error),
        }
    }
}

/// Tells standard error something that is no error: a line for people, an object for programs.
pub fn print_notice(kind: Notice, text: &str, is_json: bool) {
    print_error(&notice(kind, text, is_json));
}

/// Messages beside results and errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Something about the results that has to be known.
    Warning,
    /// Progress.
    Progress,
}

fn notice(kind: Notice, text: &str, is_json: bool) -> String {
    match (kind, is_json) {
        (Notice::Warning, true) => format!("{}\n", json!({ "warning": text })),
        (Notice::Progress, true) => format!("{}\n", json!({ "notice": text })),
        (Notice::Warning, false) => format!("warning: {text}\n"),
        (Notice::Progress, false) => format!("{text}\n"),
    }
}

/// Writes to standard error; if that is closed there is nobody left to tell.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_a_line_for_people_and_an_object_for_programs() {
        assert_eq!(
            notice(Notice::Warning, "a \"b\"", false),
            "warning: a \"b\"\n"
        );
        assert_eq!(
            notice(Notice::Warning, "a \"b\"", true),
            "{\"warning\":\"a \\\"b\\\"\"}\n"
        );
        assert_eq!(notice(Notice::Progress, "a", true), "{\"notice\":\"a\"}\n");
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
