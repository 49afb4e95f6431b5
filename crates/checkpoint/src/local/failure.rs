//! What is tried again and what is not, and what is said in the end.

use std::time::Duration;

use ardea_coordination::control::SafeMode;
use ardea_core::{Epoch, Error, ErrorCode};

/// What can be done about a damaged snapshot of a job of one process.
const PAST_DAMAGE: &str = "check the disk, and restore the file from a copy; or take an earlier snapshot (recovery.go_back), which publishes again what was published since; or begin with nothing (recovery.start_over)";

/// Returns whether the job ends with this error instead of being restarted: it is permanent, or the end was wanted.
pub(crate) fn is_final(error: &Error) -> bool {
    let was_wanted = matches!(error.code(), ErrorCode::OutputClosed | ErrorCode::Cancelled);
    was_wanted || error.is_permanent()
}

/// Whether it says that a snapshot can't be read.
pub(crate) fn is_of_snapshot(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::SnapshotDamaged | ErrorCode::NoSuchSnapshot
    )
}

/// Whether it says that something can't be written, which may be otherwise soon.
pub(crate) fn is_of_disk(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::DiskFull | ErrorCode::WriteFailed)
}

/// What there is to go on from.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// The newest committed epoch, if there is one.
    pub(crate) epoch: Option<Epoch>,
    /// Where its snapshot is; none if that ends with this process.
    pub(crate) place: Option<String>,
}

impl Left {
    /// In words.
    fn told(&self) -> String {
        match (&self.epoch, &self.place) {
            (Some(epoch), Some(place)) => {
                format!("its state as of epoch {} is in {place}", epoch.0)
            }
            (None, Some(place)) => format!("nothing of its state has been kept in {place} yet"),
            (_, None) => "its snapshots were in memory, and are gone with it".to_string(),
        }
    }

    fn ways_out(&self) -> &'static str {
        match (&self.epoch, &self.place) {
            (Some(_), Some(_)) => {
                "mend the cause and run it again: it goes on from there; recovery.start_over begins with nothing, recovery.attempts tries more often"
            }
            (None, Some(_)) => "mend the cause and run it again",
            (_, None) => {
                "mend the cause and run it again, from the beginning; with snapshots.folder it would go on where it was"
            }
        }
    }
}

/// How a job of a cluster that waits in safe mode goes on, for people.
pub fn recover_command(job: &str) -> String {
    format!("`ardea recover {job}` (--from EPOCH goes back further, --from-nothing begins anew)")
}

/// Says of a job's snapshot that is damaged or gone how the job goes on: one of a cluster if that is named.
pub fn past_damage(error: Error, of_cluster: Option<&str>) -> Error {
    match (is_of_snapshot(&error), of_cluster) {
        (true, None) => error.hint(PAST_DAMAGE),
        (true, Some(job)) => error.hint(format!(
            "check the disk, and restore the file from a copy; or, if the job is in safe mode for it, {}: what was published since is published again",
            recover_command(job)
        )),
        (false, _) => error,
    }
}

/// The error of a job that waits for somebody to decide, which one in a single process does by ending.
pub(crate) fn gave_up(job: &str, why: &SafeMode, last: Option<Error>, left: &Left) -> Error {
    match why {
        SafeMode::KeepsFailing { times, last: text } => {
            let what = format!(
                "the job {job:?} has failed {times} times in a row without progress; {}",
                left.told()
            );
            let error = Error::new(ErrorCode::FailsAgain, what).hint(left.ways_out());
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(text.clone()),
            }
        }
        SafeMode::Permanent { why } => {
            let what = format!("the job {job:?} has failed for good; {}", left.told());
            let error = Error::new(ErrorCode::FailsAgain, what).hint(left.ways_out());
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(why.clone()),
            }
        }
        SafeMode::Unreadable { epoch, why } => {
            let what = match epoch {
                Some(epoch) => format!(
                    "the snapshot of epoch {} of the job {job:?} can't be read",
                    epoch.0
                ),
                None => format!("the job {job:?} can't begin"),
            };
            let error = past_damage(Error::new(ErrorCode::SnapshotDamaged, what), None);
            match last {
                Some(last) => error.because(last.without_hint()),
                None => error.because(why.clone()),
            }
        }
    }
}

/// The error of an epoch whose last cuts could not be kept.
pub(crate) fn last_cut_lost(error: Error) -> Error {
    let what = "what an instance has left at its end could not be kept";
    // The place of snapshots may take it later.
    Error::new(error.code(), what)
        .because(error.without_hint())
        .transient()
}

/// A duration as far as people care.
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
        let left = Left {
            epoch: Some(Epoch(7)),
            place: Some("state/words".into()),
        };
        let error = gave_up("words", &why, Some(last.clone()), &left);
        assert_eq!(error.code(), ErrorCode::FailsAgain);
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
        assert!(error.what_next().unwrap().contains("recovery.start_over"));
        let left = Left {
            epoch: Some(Epoch(7)),
            place: None,
        };
        let error = gave_up("words", &why, Some(last), &left);
        assert!(error.to_string().contains("in memory"), "{error}");
        assert!(error.what_next().unwrap().contains("snapshots.folder"));
    }

    #[test]
    fn of_a_damaged_snapshot_it_is_said_how_the_job_goes_on_where_it_is() {
        let damaged = |of| {
            let error = Error::new(ErrorCode::SnapshotDamaged, "x").hint("y");
            past_damage(error, of).what_next().unwrap().to_string()
        };
        assert!(damaged(None).contains("recovery.go_back"));
        assert!(damaged(Some("words")).contains("`ardea recover words` (--from EPOCH"));
        let other = Error::new(ErrorCode::DiskFull, "x").hint("y");
        assert_eq!(past_damage(other, None).what_next(), Some("y"));
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
        assert!(!is_final(&last_cut_lost(missing)));
    }
}
