//! Savepoints: written, used as initial state, and read by other versions of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ardea_checkpoint::local::{AllowedDrops, JobEnd, RecoveryEvent, SavedStateSchema, savepoint};
use ardea_checkpoint::savepoint::{Savepoint, Verdict};
use ardea_checkpoint::store::LocalDirStore;
use ardea_core::ErrorCode;

use crate::accounts::{self, ACCOUNTS, Job, RECORDS};
use crate::site::{
    ReceivedNotices, held, often, quick, run, some_checkpoints, survival, until, with,
};
use crate::windows::Windows;
use ardea_checkpoint::local::FaultTolerance;

const NUMBERS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn open(place: &Path) -> Savepoint {
    Savepoint::open(Arc::new(LocalDirStore::open(place).unwrap())).unwrap()
}

/// Returns the job with the existing input in `folder`, but with another output and parallelism.
pub fn elsewhere(folder: &Path, instances: [u32; 3]) -> Windows {
    let output = folder.join("other");
    fs::create_dir_all(&output).unwrap();
    Windows {
        output,
        instances,
        ..Windows::again(folder)
    }
}

fn all(job: &Windows) -> BTreeSet<u64> {
    job.published().into_iter().collect()
}

#[test]
fn a_savepoint_of_a_running_job_begins_another_with_other_numbers_of_instances() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let job = held(folder.path(), NUMBERS);
    let mut epoch = None;
    let stopped = with(&job, &survival(folder.path()), |handle| {
        some_checkpoints(handle);
        let manifest = handle.savepoint(&saved).unwrap();
        epoch = Some(manifest.checkpoint.epoch);
        // The job continues during and after the savepoint.
        let made = handle.figures().checkpoints;
        until("it goes on", || handle.figures().checkpoints > made);
        handle.stop();
    });
    assert_eq!(stopped.unwrap().end, JobEnd::Stopped);
    let checked = open(&saved).check().unwrap();
    assert!(checked.entries > 0, "{checked:?}");
    // Output of earlier epochs is kept; that of later epochs is published again.
    let epoch = epoch.unwrap().0;
    for file in fs::read_dir(&job.output).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let of: u64 = name.split('-').nth(1).unwrap().parse().unwrap();
        if of >= epoch {
            fs::remove_file(path).unwrap();
        }
    }
    let other = elsewhere(folder.path(), [3, 1, 1]);
    let begin = often(FaultTolerance::in_folder(folder.path().join("new"))).from_savepoint(&saved);
    let told = ReceivedNotices::default();
    assert_eq!(run(&other, &told.of(begin)).unwrap().end, JobEnd::Completed);
    assert!(told.any(|notice| matches!(notice, RecoveryEvent::FromSavepoint { .. })));
    let published: BTreeSet<u64> = all(&job).union(&all(&other)).copied().collect();
    let published: Vec<u64> = published.into_iter().collect();
    assert_eq!(published, Windows::expected(NUMBERS));
}

#[test]
fn another_process_asks_by_a_file_and_a_job_that_has_stopped_is_saved_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (state, at) = (folder.path().join("state"), |name: &str| {
        folder.path().join(name)
    });
    let job = held(folder.path(), NUMBERS);
    with(&job, &survival(folder.path()), |handle| {
        some_checkpoints(handle);
        let manifest = savepoint(&state, &at("running"), PATIENCE).unwrap();
        assert_eq!(manifest.job, "windows");
        let error = savepoint(&state, &at("running"), PATIENCE).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState);
        assert!(error.to_string().contains("already"), "{error}");
        handle.stop();
    })
    .unwrap();
    // Concurrent calls wait for each other, and no call mistakes another for the running job.
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (state, to) = (&state, at(&format!("at-once-{number}")));
            scope.spawn(move || savepoint(state, &to, PATIENCE).unwrap());
        }
    });
    let manifest = savepoint(&state, &at("stopped"), PATIENCE).unwrap();
    let running = open(&at("running"));
    assert!(manifest.checkpoint.epoch > running.manifest().checkpoint.epoch);
    for place in ["running", "stopped", "at-once-0", "at-once-1", "at-once-2"] {
        open(&at(place)).check().unwrap();
    }
    let left = fs::read_dir(&state).unwrap().filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("savepoint")
    });
    assert_eq!(left.count(), 0);
    // The stopped job resumes from its own folder, unaffected by the copies.
    run(&quick(folder.path(), NUMBERS), &survival(folder.path())).unwrap();
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    let error = savepoint(&folder.path().join("none"), &at("x"), PATIENCE).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}

#[test]
fn a_job_with_state_of_its_own_begins_from_no_savepoint_but_goes_on_from_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (saved, other) = (
        folder.path().join("saved"),
        folder.path().join("other-saved"),
    );
    let job = held(folder.path(), NUMBERS);
    with(&job, &survival(folder.path()), |handle| {
        some_checkpoints(handle);
        handle.savepoint(&saved).unwrap();
        handle.savepoint(&other).unwrap();
        handle.stop();
    })
    .unwrap();
    let error = run(&job, &survival(folder.path()).from_savepoint(&saved)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState);
    assert!(error.hint_text().unwrap().contains("recovery.start_over"));
    let quick = elsewhere(folder.path(), [1, 1, 1]);
    let new = Windows {
        limit: Arc::new(AtomicU64::new(NUMBERS * 3 / 4)),
        ..elsewhere(folder.path(), [1, 1, 1])
    };
    let fresh = || often(FaultTolerance::in_folder(folder.path().join("new")));
    let stopped = with(&new, &fresh().from_savepoint(&saved), |handle| {
        some_checkpoints(handle);
        handle.stop();
    })
    .unwrap();
    assert_eq!(stopped.end, JobEnd::Stopped);
    let began_from = stopped.figures.began_from;
    assert_eq!(began_from, Some(open(&saved).manifest().checkpoint.epoch));
    // A second run with the same setting does not import again.
    let told = ReceivedNotices::default();
    let again = told.of(fresh().from_savepoint(&saved));
    let stopped = with(&new, &again, |handle| {
        some_checkpoints(handle);
        handle.stop();
    });
    let stopped = stopped.unwrap();
    assert!(stopped.figures.began_from > began_from, "{stopped:?}");
    assert!(!told.any(|notice| matches!(notice, RecoveryEvent::FromSavepoint { .. })));
    let error = run(&new, &fresh().from_savepoint(&other)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState);
    let over = fresh().from_savepoint(&other).start_over(true);
    assert_eq!(run(&quick, &over).unwrap().end, JobEnd::Completed);
}

#[test]
fn what_a_job_has_no_place_for_is_refused_by_name_unless_it_may_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let job = held(folder.path(), NUMBERS);
    with(&job, &survival(folder.path()), |handle| {
        some_checkpoints(handle);
        handle.savepoint(&saved).unwrap();
        handle.cancel();
    })
    .unwrap_err();
    let other = Windows {
        counts: "totals".into(),
        ..elsewhere(folder.path(), [1, 2, 1])
    };
    let begin =
        || often(FaultTolerance::in_folder(folder.path().join("new"))).from_savepoint(&saved);
    let error = run(&other, &begin()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("counts/open"), "{error}");
    let error = run(&other, &begin().dropping(AllowedDrops::listed("count"))).unwrap_err();
    assert!(error.to_string().contains("\"count\""), "{error}");
    let told = ReceivedNotices::default();
    let dropping = begin().dropping(AllowedDrops::listed("counts/open"));
    run(&other, &told.of(dropping)).unwrap();
    let is_dropped = |notice: &RecoveryEvent| match notice {
        RecoveryEvent::FromSavepoint { changes, .. } => changes
            .states
            .iter()
            .any(|state| state.verdict == Verdict::Drop),
        _ => false,
    };
    assert!(told.any(is_dropped));
    let all_dropping = survival(folder.path()).dropping(AllowedDrops::listed("counts"));
    let error = run(&other, &all_dropping).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}

/// Checks by the output of `job` that each account was counted to the end of its records, but not
/// from the beginning.
fn goes_on(job: &Job) {
    let counts = job.counts();
    assert_eq!(counts.len() as u64, ACCOUNTS);
    for (account, counts) in counts {
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        assert_eq!(last, RECORDS / ACCOUNTS, "account {account}");
        assert!(first > 1, "account {account} began anew: {first}");
    }
}

fn begun(job: &Job, survival: &FaultTolerance, saved: Option<&Path>) {
    let stopped = with(&job.pipeline, survival, |handle| {
        until("each account is known", || {
            handle.is_over() || handle.figures().checkpoints > 4
        });
        if let Some(saved) = saved {
            handle.savepoint(saved).unwrap();
        }
        handle.stop();
    });
    assert_eq!(stopped.unwrap().end, JobEnd::Stopped);
}

#[test]
fn another_version_reads_what_types_were_before_from_a_savepoint() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    begun(&accounts::first(), &survival(folder.path()), Some(&saved));
    let kept = SavedStateSchema::look(&saved).unwrap();
    assert!(!kept.states.vertices["accounts"].states.is_empty());
    let begin = |name: &str| {
        often(FaultTolerance::in_folder(folder.path().join(name))).from_savepoint(&saved)
    };
    let broken = accounts::broken();
    let error = run(&broken.pipeline, &begin("broken")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    for part in [
        "accounts/keys",
        "seen: u32 can't be read as u8",
        "\"needed\"",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let (second, told) = (accounts::second(), ReceivedNotices::default());
    run(&second.pipeline, &told.of(begin("second"))).unwrap();
    goes_on(&second);
    let is_told = |notice: &RecoveryEvent| notice.to_string().contains("migrate accounts/keys");
    assert!(told.any(is_told), "{:?}", told.all());
}

#[test]
fn another_version_goes_on_in_the_same_folder_and_writes_all_in_its_own_form() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    begun(&accounts::first(), &survival(folder.path()), None);
    let before = SavedStateSchema::look(&state).unwrap();
    // A version that cannot read the state leaves it unchanged.
    let error = run(&accounts::broken().pipeline, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert_eq!(SavedStateSchema::look(&state).unwrap(), before);
    let (second, told) = (accounts::second(), ReceivedNotices::default());
    run(&second.pipeline, &told.of(survival(folder.path()))).unwrap();
    goes_on(&second);
    assert!(told.any(|notice| matches!(notice, RecoveryEvent::Migrates { .. })));
    let after = SavedStateSchema::look(&state).unwrap();
    assert_ne!(after.states, before.states);
}
