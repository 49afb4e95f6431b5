//! Tests of jobs whose instances fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RecoveryEvent};
use ardea_core::{ErrorCode, Guarantee};

use crate::site::{
    ReceivedNotices, held, known_everywhere, often, quick, run, survival, until, with,
};
use crate::windows::Windows;

const NUMBERS: u64 = 60_000;

/// Makes the job panic after `every` numbers. Also returns the countdown, which a test can set
/// again.
fn clumsy(job: Windows, every: i64) -> (Windows, Arc<AtomicI64>) {
    let mishap = Arc::clone(&job.mishap);
    mishap.store(every, Ordering::SeqCst);
    (job, mishap)
}

#[test]
fn instances_that_panic_now_and_then_leave_no_trace_in_the_results() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let folder = tempfile::tempdir().unwrap();
        let job = held(folder.path(), NUMBERS);
        let survival = survival(folder.path()).guarantee(guarantee);
        let survived = with(&job, &survival, |handle| {
            for mishaps in 1..=4 {
                known_everywhere(&job, handle);
                job.mishap.store(10 * mishaps, Ordering::SeqCst);
                let more = NUMBERS / 2 + NUMBERS / 10 * mishaps as u64;
                job.limit.store(more, Ordering::SeqCst);
                until("it is started anew", || {
                    handle.figures().recoveries >= mishaps as u32
                });
            }
            job.limit.store(u64::MAX, Ordering::SeqCst);
        })
        .unwrap();
        assert_eq!(survived.end, JobEnd::Completed);
        assert!(survived.figures.recoveries >= 4, "{:?}", survived.figures);
        match guarantee {
            Guarantee::ExactlyOnce => {
                assert_eq!(job.published(), Windows::expected(NUMBERS));
            }
            _ => {
                let counts: u64 = job.published().iter().map(|told| told & 0xffff).sum();
                assert!(counts >= NUMBERS, "{counts}");
            }
        }
    }
}

#[test]
fn checkpoints_in_memory_survive_the_job_and_say_that_they_do_not_survive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (job, _) = clumsy(quick(folder.path(), NUMBERS), 9_000);
    let told = ReceivedNotices::default();
    let survived = run(&job, &told.of(often(FaultTolerance::in_memory()))).unwrap();
    assert_eq!(survived.figures.recoveries, 1);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    assert!(told.any(|notice| *notice == RecoveryEvent::InMemory));
    let is_recovery = |notice: &RecoveryEvent| match notice {
        RecoveryEvent::Recovering { why, .. } => why.contains("a mishap"),
        _ => false,
    };
    assert!(told.any(is_recovery), "{:?}", told.all());
}

#[test]
fn a_job_that_fails_again_and_again_ends_with_the_reason_and_goes_on_when_that_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = held(folder.path(), NUMBERS);
    let again = Arc::clone(&job.mishap);
    let survival = survival(folder.path())
        .attempts(3)
        .on_notice(move |notice| {
            if matches!(notice, RecoveryEvent::Recovering { .. }) {
                again.store(0, Ordering::SeqCst);
            }
        });
    let failed = with(&job, &survival, |handle| {
        known_everywhere(&job, handle);
        job.mishap.store(10, Ordering::SeqCst);
        job.limit.store(u64::MAX, Ordering::SeqCst);
    });
    let error = failed.unwrap_err();
    assert_eq!(error.code(), ErrorCode::RestartLimitReached);
    let told = error.to_string();
    for part in ["4 times", "a mishap", "counts", "epoch", "state"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let before = job.published();
    assert!(before.len() < Windows::expected(NUMBERS).len());
    job.mishap = Arc::new(AtomicI64::new(i64::MAX));
    let survived = run(&job, &survival).unwrap();
    assert!(survived.figures.began_from.is_some());
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn a_job_that_can_not_begin_is_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = quick(folder.path(), 100);
    // The job has two vertices with the same name.
    job.counts = "files".into();
    let told = ReceivedNotices::default();
    let error = run(&job, &told.of(survival(folder.path()))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(told.all().is_empty(), "{:?}", told.all());
}

#[test]
fn a_job_without_a_promise_does_not_survive() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 100);
    let survival = survival(folder.path()).guarantee(Guarantee::None);
    let error = run(&job, &survival).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(!folder.path().join("state").exists());
}
