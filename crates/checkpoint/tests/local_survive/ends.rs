//! The ways in which a job ends, and later runs of it.

use std::fs;
use std::sync::atomic::Ordering;

use ardea_checkpoint::local::{JobEnd, RecoveryEvent, look};
use ardea_core::ErrorCode;
use ardea_engine::JobStatus;

use crate::site::{ReceivedNotices, held, quick, run, survival, until, with};
use crate::windows::Windows;

const NUMBERS: u64 = 20_000;

#[test]
fn a_job_that_has_completed_does_nothing_when_it_is_run_again_unless_it_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), NUMBERS);
    let survived = run(&job, &survival(folder.path())).unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    fs::remove_dir_all(&job.output).unwrap();
    fs::create_dir(&job.output).unwrap();
    let told = ReceivedNotices::default();
    let survived = run(&job, &told.of(survival(folder.path()))).unwrap();
    assert_eq!(survived.end, JobEnd::CompletedBefore);
    assert!(told.any(|notice| matches!(notice, RecoveryEvent::CompletedBefore { .. })));
    assert!(job.published().is_empty());
    let survived = run(&job, &survival(folder.path()).start_over(true)).unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn a_job_that_is_stopped_or_cancelled_again_and_again_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = held(folder.path(), NUMBERS);
    let counts = [[2, 2, 2], [1, 3, 1], [3, 1, 2]];
    let (mut stops, mut cancels) = (0, 0);
    for life in 0.. {
        assert!(life < 200, "it never comes to its end");
        // Each attempt processes a few more records; the twelfth reaches the end.
        let further = NUMBERS / 12 * (life as u64 + 1);
        job.limit.store(further, Ordering::SeqCst);
        if life >= 12 {
            job.limit.store(u64::MAX, Ordering::SeqCst);
        }
        job.instances = counts[life % counts.len()];
        let is_stop = life % 2 == 0;
        let outcome = with(&job, &survival(folder.path()), |handle| {
            until("some checkpoints are made", || {
                handle.is_over() || handle.figures().checkpoints >= 3
            });
            match is_stop {
                true => handle.stop(),
                false => handle.cancel(),
            }
        });
        match outcome {
            Ok(survived) if survived.end == JobEnd::Stopped => {
                stops += 1;
                let looked = look(&folder.path().join("state"), true).unwrap();
                assert_eq!(looked.end, Some("stopped"));
            }
            Ok(survived) => {
                assert_eq!(survived.end, JobEnd::Completed);
                break;
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Cancelled, "{error}");
                cancels += 1;
            }
        }
    }
    assert!(stops >= 6 && cancels >= 6, "{stops} {cancels}");
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn what_was_stopped_lies_open_and_what_is_drained_is_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), NUMBERS);
    let survived = with(&job, &survival(folder.path()), |handle| {
        until("a checkpoint is made", || handle.figures().checkpoints >= 1);
        handle.drain();
    });
    assert_eq!(survived.unwrap().end, JobEnd::Drained);
    let counted: u64 = job.published().iter().map(|told| told & 0xffff).sum();
    assert!(counted > 0 && counted < NUMBERS, "{counted}");
    // The job reads on from the drained position.
    let survived = run(&job, &survival(folder.path())).unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    let counted: u64 = job.published().iter().map(|told| told & 0xffff).sum();
    assert_eq!(counted, NUMBERS);
}

#[test]
fn a_handle_shows_the_present_life() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), NUMBERS);
    let survived = with(&job, &survival(folder.path()), |handle| {
        until("it lives", || handle.job().is_some());
        assert_eq!(handle.name(), "windows");
        until("it is over", || handle.is_over());
        let job = handle.job().unwrap();
        assert!(matches!(job.status(), JobStatus::Completed));
        let taken: u64 = job
            .metrics()
            .iter()
            .map(|report| report.metrics.snapshots)
            .sum();
        assert!(taken > 0);
    });
    assert_eq!(survived.unwrap().end, JobEnd::Completed);
}
