//! Errors as text, as JSON, and as an exit code.

use std::error::Error as _;

use ardea_core::{Error, ErrorCode};
use serde_json::{Map, Value, json};

/// Returns the exit code for an error: 1 the job failed; 2 the command line, a setting or the job's
/// description is wrong or requires too much; 3 a file or the network; 130 cancelled. A job that
/// failed repeatedly has the code of its cause.
pub fn exit_code(error: &Error) -> u8 {
    match root_code(error) {
        ErrorCode::InvalidJob
        | ErrorCode::InvalidConfig
        | ErrorCode::LimitReached
        | ErrorCode::ResourcesImpossible
        | ErrorCode::BrokenPlan
        | ErrorCode::NameTaken
        | ErrorCode::NoSuchJob
        | ErrorCode::NoSuchContainer
        | ErrorCode::NoSuchHost
        | ErrorCode::NoSuchEntry
        | ErrorCode::NoSuchCheckpoint
        | ErrorCode::WrongCluster
        | ErrorCode::WrongState
        | ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::BadRequest => 2,
        ErrorCode::ReadFailed
        | ErrorCode::WriteFailed
        | ErrorCode::Network
        | ErrorCode::BadResponse
        | ErrorCode::StateUnavailable
        | ErrorCode::OutcomeUnknown
        | ErrorCode::MetastoreCorrupt
        | ErrorCode::SessionEnded
        | ErrorCode::Superseded
        | ErrorCode::NoRoom
        | ErrorCode::SchedulerUnavailable
        | ErrorCode::DiskFull => 3,
        ErrorCode::Cancelled => 130,
        _ => 1,
    }
}

/// Returns the code of the error that the user has to fix: for [`ErrorCode::RestartLimitReached`],
/// the code of its cause.
fn root_code(error: &Error) -> ErrorCode {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    match (error.code(), cause) {
        (ErrorCode::RestartLimitReached, Some(cause)) => root_code(cause),
        (code, _) => code,
    }
}

/// Returns an error as text, with its hint on a separate line.
pub fn error_text(error: &Error) -> String {
    let hint = error.hint_text().map_or(String::new(), |hint| {
        format!("  hint: {}\n", hint.trim_end().replace('\n', "\n  "))
    });
    format!("error: {}\n{hint}", error.without_hint())
}

/// Returns the parts of an error as one JSON object.
pub fn error_json(error: &Error, exit_code: u8) -> Value {
    let what = error.without_hint().to_string();
    let code = error.code();
    let message = what
        .strip_prefix(code.as_str())
        .and_then(|rest| rest.strip_prefix(": "));
    let mut fields = Map::new();
    fields.insert("code".into(), json!(code.as_str()));
    fields.insert("message".into(), json!(message.unwrap_or(&what)));
    fields.insert("hint".into(), json!(error.hint_text()));
    if let Some((vertex, instance)) = error.vertex() {
        fields.insert("vertex".into(), json!(vertex));
        fields.insert("instance".into(), json!(instance));
    }
    if let Some((input, position)) = error.record() {
        fields.insert("input".into(), json!(input));
        fields.insert("record".into(), json!(position));
    }
    fields.insert("exit_code".into(), json!(exit_code));
    json!({ "error": fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> Error {
        Error::new(ErrorCode::ReadFailed, "cannot read a; b.csv")
            .because(std::io::Error::other("no; such file"))
            .in_vertex("files", 2)
            .at_record(0, 7)
    }

    #[test]
    fn a_hint_stands_on_its_own_line_whatever_the_error_says() {
        assert_eq!(
            error_text(&error().hint("check; the path")),
            "error: ARD-301: cannot read a; b.csv: no; such file (vertex \"files\", instance 2, record 7 of input 0)\n  hint: check; the path\n"
        );
        assert!(!error_text(&error()).contains("hint"));
    }

    #[test]
    fn as_json_an_error_has_its_parts() {
        let value = error_json(&error().hint("check"), 3);
        assert_eq!(value["error"]["code"], "ARD-301");
        assert_eq!(value["error"]["hint"], "check");
        assert_eq!(value["error"]["vertex"], "files");
        assert_eq!(value["error"]["record"], 7);
        assert_eq!(value["error"]["exit_code"], 3);
    }

    #[test]
    fn the_exit_code_says_who_has_to_act() {
        let of = |code| Error::new(code, "x");
        for (code, exits) in [
            (ErrorCode::UserPanic, 1),
            (ErrorCode::NameTaken, 2),
            (ErrorCode::Network, 3),
            (ErrorCode::DiskFull, 3),
            (ErrorCode::Cancelled, 130),
        ] {
            assert_eq!(exit_code(&of(code)), exits);
            let again =
                of(ErrorCode::RestartLimitReached).because(of(code).hint("y").without_hint());
            assert_eq!(exit_code(&again), exits);
        }
        assert_eq!(
            exit_code(&of(ErrorCode::RestartLimitReached).because("z")),
            1
        );
    }
}
