//! Classification of errors as retried or final, and the errors that jobs end with.

use std::time::Duration;

use ardea_coordination::control::SafeMode;
use ardea_core::{Epoch, Error, ErrorCode};

/// The hint of the error of a damaged checkpoint, for a job in one process.
const PAST_DAMAGE: &str = "check the disk, and restore the file from a copy; or restore the previous checkpoint (recovery.go_back), which repeats the output since then; or start without state (recovery.start_over)";

/// Returns true if the job ends with this error and is not restarted: the error is permanent, or a
/// user requested the end.
pub(crate) fn is_final(error: &Error) -> bool {
    let was_wanted = matches!(error.code(), ErrorCode::OutputClosed | ErrorCode::Cancelled);
    was_wanted || error.is_permanent()
}

/// Returns true if the error means that a checkpoint cannot be read.
pub(crate) fn is_of_checkpoint(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::CheckpointDamaged | ErrorCode::NoSuchCheckpoint
    )
}

/// Returns true if the error means that the store does not accept writes, which may be temporary.
pub(crate) fn is_of_disk(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::DiskFull | ErrorCode::WriteFailed)
}

/// The location of the state from which a failed job can be resumed.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryOptions {
    /// The newest committed epoch, if any.
    pub(crate) epoch: Option<Epoch>,
    /// The location of the job's checkpoints; `None` if they are lost with this process.
    pub(crate) place: Option<String>,
}

impl RecoveryOptions {
    /// Returns a description of the available state, for the error message.
    fn told(&self) -> String {
        match (&self.epoch, &self.place) {
            (Some(epoch), Some(place)) => {
                format!("its state as of epoch {} is in {place}", epoch.0)
            }
            (None, Some(place)) => format!("there is no checkpoint in {place} yet"),
            (_, None) => "its checkpoints were in memory, and are lost".to_string(),
        }
    }

    fn ways_out(&self) -> &'static str {
        match (&self.epoch, &self.place) {
            (Some(_), Some(_)) => {
                "fix the cause and run it again: it continues from there; recovery.start_over starts without state, recovery.attempts allows more restarts"
            }
            (None, Some(_)) => "fix the cause and run it again",
            (_, None) => {
                "fix the cause and run it again, from the beginning; with checkpoints.folder a next run continues instead"
            }
        }
    }
}

/// Returns the command line that resumes a cluster job from safe mode.
pub fn recover_command(job: &str) -> String {
    format!(
        "`ardea recover {job}` (--from EPOCH goes back further, --from-nothing starts without state)"
    )
}

/// Adds a recovery hint to the error of a damaged or missing checkpoint. `of_cluster` is the job's
/// name if it is a cluster job, otherwise `None`.
pub fn with_recovery_hint(error: Error, of_cluster: Option<&str>) -> Error {
    match (is_of_checkpoint(&error), of_cluster) {
        (true, None) => error.hint(PAST_DAMAGE),
        (true, Some(job)) => error.hint(format!(
            "check the disk, and restore the file from a copy; or, if the job is in safe mode for it, {}: output published since then is repeated",
            recover_command(job)
        )),
        (false, _) => error,
    }
}

/// Returns the error that a job in one process ends with, in place of safe mode.
pub(crate) fn gave_up(
    job: &str,
    why: &SafeMode,
    last: Option<Error>,
    left: &RecoveryOptions,
) -> Error {
    match why {
        SafeMode::KeepsFailing { times, last: text } => {
            let what = format!(
                "the job {job:?} has failed {times} times in a row without progress; {}",
                left.told()
            );
            let error = Error::new(ErrorCode::RestartLimitReached, what).hint(left.ways_out());
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(text.clone()),
            }
        }
        SafeMode::Permanent { why } => {
            let what = format!("the job {job:?} has failed permanently; {}", left.told());
            let error = Error::new(ErrorCode::RestartLimitReached, what).hint(left.ways_out());
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(why.clone()),
            }
        }
        SafeMode::Unreadable { epoch, why } => {
            let what = match epoch {
                Some(epoch) => format!(
                    "the checkpoint of epoch {} of the job {job:?} can't be read",
                    epoch.0
                ),
                None => format!("the job {job:?} can't begin"),
            };
            let error = with_recovery_hint(Error::new(ErrorCode::CheckpointDamaged, what), None);
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(why.clone()),
            }
        }
    }
}

/// Returns the error of a final snapshot that could not be written.
pub(crate) fn last_snapshot_lost(error: Error) -> Error {
    let what = "the final snapshot of an instance could not be written";
    // The error is transient: the store may accept the write later.
    Error::new(error.code(), what)
        .because(error.without_hint())
        .transient()
}

pub(crate) fn rounded(time: Duration) -> Duration {
    match time {
        time if time < Duration::from_secs(1) => Duration::from_millis(time.as_millis() as u64),
        time => Duration::from_secs(time.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_says_how_often_why_what_there_is_and_what_to_do() {
        let why = SafeMode::KeepsFailing {
            times: 6,
            last: "it has died".into(),
        };
        let last = Error::new(ErrorCode::UserPanic, "it panicked: no").in_vertex("parse", 1);
        let left = RecoveryOptions {
            epoch: Some(Epoch(7)),
            place: Some("state/words".into()),
        };
        let error = gave_up("words", &why, Some(last.clone()), &left);
        assert_eq!(error.code(), ErrorCode::RestartLimitReached);
        let told = error.to_string();
        for part in [
            "6 times",
            "epoch 7",
            "state/words",
            "it panicked: no",
            "parse",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(error.hint_text().unwrap().contains("recovery.start_over"));
        let left = RecoveryOptions {
            epoch: Some(Epoch(7)),
            place: None,
        };
        let error = gave_up("words", &why, Some(last), &left);
        assert!(error.to_string().contains("in memory"), "{error}");
        assert!(error.hint_text().unwrap().contains("checkpoints.folder"));
    }

    #[test]
    fn of_a_damaged_checkpoint_it_is_said_how_the_job_goes_on_where_it_is() {
        let damaged = |of| {
            let error = Error::new(ErrorCode::CheckpointDamaged, "x").hint("y");
            with_recovery_hint(error, of)
                .hint_text()
                .unwrap()
                .to_string()
        };
        assert!(damaged(None).contains("recovery.go_back"));
        assert!(damaged(Some("words")).contains("`ardea recover words` (--from EPOCH"));
        let other = Error::new(ErrorCode::DiskFull, "x").hint("y");
        assert_eq!(with_recovery_hint(other, None).hint_text(), Some("y"));
    }

    #[test]
    fn what_comes_of_the_job_itself_is_not_tried_again() {
        for (code, is_so) in [
            (ErrorCode::InvalidJob, true),
            (ErrorCode::OutputClosed, true),
            (ErrorCode::UserPanic, false),
            (ErrorCode::Network, false),
            (ErrorCode::DiskFull, false),
        ] {
            assert_eq!(is_final(&Error::new(code, "x")), is_so, "{code:?}");
        }
        let missing = Error::new(ErrorCode::ReadFailed, "no such topic").permanent();
        assert!(is_final(&missing));
        assert!(!is_final(&last_snapshot_lost(missing)));
    }
}
