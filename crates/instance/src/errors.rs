//! Errors of an instance whose process failed.

use ardea_core::{DeadLetter, Error, ErrorCode};

use crate::command::InstanceCommand;
use crate::format::BatchLayout;
use crate::process::ChildEnd;
use crate::protocol::{GuestFailure, ProtocolRange};
use crate::session::{InFlight, SessionError};

const CHECK_HINT: &str = "test the program with `ardea instance check -- COMMAND`";

/// Returns the error of a command that can't be started.
pub(crate) fn not_started(command: &InstanceCommand, error: std::io::Error) -> Error {
    let is_permanent = matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
    );
    let what = format!("cannot start the process `{command}`");
    let error = Error::new(ErrorCode::StartFailed, what)
        .because(error)
        .hint("install the program on each host, and check its path");
    if is_permanent {
        error.permanent()
    } else {
        error
    }
}

/// Returns the records in flight as the rest of a sentence.
pub(crate) fn in_flight(in_flight: &InFlight, format: &dyn BatchLayout) -> String {
    match &in_flight.first {
        None => "with no record in flight".into(),
        Some(first) => {
            let letter = DeadLetter {
                vertex: String::new(),
                origin: String::new(),
                raw: format.raw(first, 0),
                reason: String::new(),
            };
            let (count, preview) = (in_flight.records, letter.preview());
            match count {
                1 => format!("with one record in flight: {preview}"),
                _ => format!("with {count} records in flight, the first is {preview}"),
            }
        }
    }
}

/// Returns the error of a process that ended.
pub(crate) fn died(command: &InstanceCommand, end: &ChildEnd, records: &str) -> Error {
    let mut what = format!("the process `{command}` {} {records}", end.how);
    if let Some(last) = end.last_lines.last() {
        what.push_str(&format!("; its last line of standard error: {last:?}"));
    }
    Error::new(ErrorCode::InstanceProcessFailed, what).hint(CHECK_HINT)
}

/// Returns the error of a session that cannot continue.
pub(crate) fn failed(command: &InstanceCommand, error: SessionError) -> Error {
    match error {
        SessionError::Violation(violation) => {
            let what = format!("the process `{command}` broke the instance protocol");
            Error::new(ErrorCode::InstanceProcessFailed, what)
                .because(violation)
                .hint(CHECK_HINT)
        }
        SessionError::Version(guest) => {
            let (own, ProtocolRange { min, max }) = (ProtocolRange::OWN, guest);
            let what = format!(
                "the process `{command}` speaks the versions {min} to {max} of the instance protocol, this host {} to {}",
                own.min, own.max
            );
            Error::new(ErrorCode::VersionMismatch, what)
                .hint("use versions of Ardea and of the instance's library that fit together")
        }
        SessionError::Format(formats) => {
            let what = format!(
                "the process `{command}` does not read the record format of the step, only {}",
                formats.join(", ")
            );
            Error::new(ErrorCode::InvalidJob, what).hint("use a step with another format")
        }
        SessionError::Role(role, roles) => {
            let (role, roles) = (role.as_str(), roles.join(", "));
            let what = format!("the process `{command}` can't be a {role}, only {roles}");
            Error::new(ErrorCode::InvalidJob, what)
                .hint("name the role in the \"roles\" of HELLO, or use another component")
        }
        SessionError::Stateless => {
            let what = format!(
                "the checkpoint has state of the step, and the process `{command}` keeps none"
            );
            Error::new(ErrorCode::InvalidJob, what).hint(
                "send \"state\": true in HELLO and restore it, or start without the checkpoint",
            )
        }
        SessionError::Failed(failure) => user_error(failure),
    }
}

fn user_error(failure: GuestFailure) -> Error {
    let mut what = failure.message;
    if let Some(row) = failure.row {
        what.push_str(&format!(" (row {row} of its batch)"));
    }
    if let Some(traceback) = failure.traceback {
        what.push('\n');
        what.push_str(traceback.trim_end());
    }
    let error = Error::new(ErrorCode::UserError, what);
    if failure.permanent {
        error.permanent()
    } else {
        error
    }
}
