//! Savepoints as initial state: missing, damaged, or configured as the wrong folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RecoveryEvent, savepoint};
use ardea_checkpoint::store::{LocalDirStore, ObjectStore};
use ardea_core::ErrorCode;

use crate::savepoints::{elsewhere, open};
use crate::site::{ReceivedNotices, held, often, run, some_checkpoints, survival, with};
use crate::windows::Windows;

const NUMBERS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// Writes a savepoint of a job that has read half of its input, to the subfolder `saved`.
fn saved_half_way(folder: &Path) -> PathBuf {
    let saved = folder.join("saved");
    let job = held(folder, NUMBERS);
    with(&job, &survival(folder), |handle| {
        some_checkpoints(handle);
        handle.savepoint(&saved).unwrap();
        handle.cancel();
    })
    .unwrap_err();
    saved
}

/// Returns the names of all files in a folder.
fn files_in(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn the_folder_of_a_savepoint_is_refused_as_that_of_a_job_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    let (job, before) = (elsewhere(folder.path(), [1, 1, 1]), files_in(&saved));
    let within: Arc<dyn ObjectStore> = Arc::new(LocalDirStore::open(&saved).unwrap());
    for survival in [
        FaultTolerance::in_folder(&saved),
        FaultTolerance::within(within),
    ] {
        for starts_over in [false, true] {
            let survival = often(survival.clone()).start_over(starts_over);
            let error = run(&job, &survival).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
            let way_out = "begin from it (recovery.from)";
            assert!(error.hint_text().unwrap().contains(way_out), "{error}");
            assert_eq!(files_in(&saved), before);
        }
    }
    open(&saved).check().unwrap();
    // The record of an earlier version, which allowed a job to run in such a folder.
    fs::write(saved.join("job-7.record"), "").unwrap();
    let error = run(&job, &often(FaultTolerance::in_folder(&saved))).unwrap_err();
    let way_out = "ardea savepoint FOLDER --to PLACE";
    assert!(error.hint_text().unwrap().contains(way_out), "{error}");
}

/// Returns the path of a savepoint's file whose name begins with `begins`.
fn file_of(saved: &Path, begins: &str) -> PathBuf {
    let mut files = files_in(saved).into_iter();
    saved.join(files.find(|name| name.starts_with(begins)).unwrap())
}

#[test]
fn a_job_that_was_to_begin_from_a_savepoint_and_has_not_yet_does_not_begin_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    let job_of = |name: &str| Windows {
        input: folder.path().join("numbers.txt"),
        ..elsewhere(&folder.path().join(name), [1, 1, 1])
    };
    for begins in ["block-", "checkpoint-", "savepoint.manifest"] {
        let (job, place) = (job_of(begins), folder.path().join(format!("new-{begins}")));
        let fresh = || often(FaultTolerance::in_folder(&place));
        let damaged = file_of(&saved, begins);
        let whole = fs::read(&damaged).unwrap();
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&damaged, bytes).unwrap();
        let error = run(&job, &fresh().from_savepoint(&saved)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged, "{error}");
        // The import is incomplete, as if the process had been killed.
        let error = run(&job, &fresh()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
        let way_out = format!("recovery.from={}", saved.display());
        for part in [&way_out[..], "recovery.start_over"] {
            assert!(error.hint_text().unwrap().contains(part), "{error}");
        }
        fs::write(&damaged, whole).unwrap();
        let told = ReceivedNotices::default();
        let begin = told.of(fresh().from_savepoint(&saved));
        assert_eq!(run(&job, &begin).unwrap().end, JobEnd::Completed);
        assert!(told.any(|notice| matches!(notice, RecoveryEvent::FromSavepoint { .. })));
        // After the import the setting may be left out.
        let again = run(&job, &fresh()).unwrap();
        assert_eq!(again.end, JobEnd::CompletedBefore);
    }
    let (job, place) = (job_of("gone"), folder.path().join("new-gone"));
    let gone = file_of(&saved, "checkpoint-");
    fs::rename(&gone, folder.path().join("aside")).unwrap();
    let from = || often(FaultTolerance::in_folder(&place)).from_savepoint(&saved);
    let error = run(&job, &from()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchCheckpoint, "{error}");
    let error = run(&job, &often(FaultTolerance::in_folder(&place))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
    fs::rename(folder.path().join("aside"), gone).unwrap();
    assert_eq!(run(&job, &from()).unwrap().end, JobEnd::Completed);
    let (job, place) = (job_of("nothing"), folder.path().join("new"));
    let fresh = || often(FaultTolerance::in_folder(&place));
    let begun = run(&job, &fresh().from_savepoint(folder.path().join("none")));
    assert_eq!(begun.unwrap_err().code(), ErrorCode::ReadFailed);
    // An import that never began is not recorded.
    run(&job, &fresh()).unwrap();
}

#[test]
fn a_savepoint_that_was_broken_off_is_forgotten_by_who_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    fs::write(file_of(&saved, "block-"), "").unwrap();
    let fresh = || often(FaultTolerance::in_folder(folder.path().join("new")));
    let job = elsewhere(folder.path(), [1, 1, 1]);
    run(&job, &fresh().from_savepoint(&saved)).unwrap_err();
    let over = run(&job, &fresh().start_over(true)).unwrap();
    assert_eq!(over.end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    assert_eq!(run(&job, &fresh()).unwrap().end, JobEnd::CompletedBefore);
}

#[test]
fn a_job_that_has_begun_from_a_savepoint_needs_it_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    let fresh =
        || often(FaultTolerance::in_folder(folder.path().join("new"))).from_savepoint(&saved);
    let new = Windows {
        limit: Arc::new(AtomicU64::new(NUMBERS * 3 / 4)),
        ..elsewhere(folder.path(), [1, 1, 1])
    };
    let stopped = with(&new, &fresh(), |handle| {
        some_checkpoints(handle);
        handle.stop();
    });
    assert_eq!(stopped.unwrap().end, JobEnd::Stopped);
    fs::write(saved.join("savepoint.manifest"), "damaged").unwrap();
    let goes_on = |job: &Windows| {
        let told = ReceivedNotices::default();
        let survived = run(job, &told.of(fresh())).unwrap();
        let is_away =
            |notice: &RecoveryEvent| matches!(notice, RecoveryEvent::SavepointUnavailable { .. });
        assert!(told.any(is_away), "{:?}", told.all());
        survived.end
    };
    let quick = elsewhere(folder.path(), [1, 1, 1]);
    assert_eq!(goes_on(&quick), JobEnd::Completed);
    fs::rename(&saved, folder.path().join("moved")).unwrap();
    assert_eq!(goes_on(&quick), JobEnd::CompletedBefore);
    // A job with other state has never started from the savepoint, and needs it to start over.
    let own = survival(folder.path()).from_savepoint(&saved);
    let error = run(&quick, &own).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
    let error = run(&quick, &fresh().start_over(true)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    fs::create_dir(&saved).unwrap();
    fs::write(saved.join("savepoint.manifest"), "damaged").unwrap();
    let error = run(&quick, &fresh().start_over(true)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged, "{error}");
    // The old state stays valid until the job has started over.
    assert_eq!(goes_on(&quick), JobEnd::CompletedBefore);
}

#[test]
fn a_savepoint_is_written_neither_among_other_things_nor_within_the_folder_of_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let (state, at) = (folder.path().join("state"), |name: &str| {
        folder.path().join(name)
    });
    fs::create_dir_all(at("folders/one")).unwrap();
    fs::create_dir(at("notes")).unwrap();
    fs::write(at("notes/My notes.txt"), "mine").unwrap();
    let refuses = |save: &dyn Fn(&Path) -> ardea_core::Result<()>| {
        for to in ["folders", "notes"] {
            let error = save(&at(to)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
            let hint = error.hint_text().unwrap();
            assert!(hint.contains("no savepoint.manifest"), "{hint}");
            assert_eq!(files_in(&at(to)).len(), 1);
        }
        for to in ["state", "state/saved"] {
            let error = save(&at(to)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
            assert!(!error.to_string().contains("savepoint.manifest"), "{error}");
        }
        assert!(!at("state/saved").exists());
    };
    let job = held(folder.path(), NUMBERS);
    with(&job, &survival(folder.path()), |handle| {
        some_checkpoints(handle);
        refuses(&|to| handle.savepoint(to).map(drop));
        refuses(&|to| savepoint(&state, to, PATIENCE).map(drop));
        handle.stop();
    })
    .unwrap();
    refuses(&|to| savepoint(&state, to, PATIENCE).map(drop));
}
