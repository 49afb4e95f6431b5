//! Savepoints that jobs begin from, and that are away, damaged or taken for something else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ardea_checkpoint::local::{Notice, Survival, SurvivalEnd, savepoint};
use ardea_checkpoint::store::{DiskFolder, Folder};
use ardea_core::ErrorCode;

use crate::savepoints::{elsewhere, open};
use crate::site::{Told, held, often, run, some_snapshots, survival, with};
use crate::windows::Windows;

const NUMBERS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// A savepoint of a job that has come half way, in the folder `saved`.
fn saved_half_way(folder: &Path) -> PathBuf {
    let saved = folder.join("saved");
    let job = held(folder, NUMBERS);
    with(&job, &survival(folder), |handle| {
        some_snapshots(handle);
        handle.savepoint(&saved).unwrap();
        handle.cancel();
    })
    .unwrap_err();
    saved
}

/// The names of all files in a folder.
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
    let within: Arc<dyn Folder> = Arc::new(DiskFolder::open(&saved).unwrap());
    for survival in [Survival::in_folder(&saved), Survival::within(within)] {
        for starts_over in [false, true] {
            let survival = often(survival.clone()).start_over(starts_over);
            let error = run(&job, &survival).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
            let way_out = "begin from it (recovery.from)";
            assert!(error.what_next().unwrap().contains(way_out), "{error}");
            assert_eq!(files_in(&saved), before);
        }
    }
    open(&saved).check().unwrap();
    // As a version left it that let one begin there.
    fs::write(saved.join("job-7.record"), "").unwrap();
    let error = run(&job, &often(Survival::in_folder(&saved))).unwrap_err();
    let way_out = "ardea savepoint FOLDER --to PLACE";
    assert!(error.what_next().unwrap().contains(way_out), "{error}");
}

/// A file of a savepoint whose name begins so.
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
    for begins in ["block-", "snapshot-", "savepoint.manifest"] {
        let (job, place) = (job_of(begins), folder.path().join(format!("new-{begins}")));
        let fresh = || often(Survival::in_folder(&place));
        let damaged = file_of(&saved, begins);
        let whole = fs::read(&damaged).unwrap();
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&damaged, bytes).unwrap();
        let error = run(&job, &fresh().from_savepoint(&saved)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged, "{error}");
        // It is broken off, as if it had been killed.
        let error = run(&job, &fresh()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
        let way_out = format!("recovery.from={}", saved.display());
        for part in [&way_out[..], "recovery.start_over"] {
            assert!(error.what_next().unwrap().contains(part), "{error}");
        }
        fs::write(&damaged, whole).unwrap();
        let told = Told::default();
        let begin = told.of(fresh().from_savepoint(&saved));
        assert_eq!(run(&job, &begin).unwrap().end, SurvivalEnd::Completed);
        assert!(told.any(|notice| matches!(notice, Notice::FromSavepoint { .. })));
        // It has begun, and need not be told again.
        let again = run(&job, &fresh()).unwrap();
        assert_eq!(again.end, SurvivalEnd::CompletedBefore);
    }
    let (job, place) = (job_of("gone"), folder.path().join("new-gone"));
    let gone = file_of(&saved, "snapshot-");
    fs::rename(&gone, folder.path().join("aside")).unwrap();
    let from = || often(Survival::in_folder(&place)).from_savepoint(&saved);
    let error = run(&job, &from()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchSnapshot, "{error}");
    let error = run(&job, &often(Survival::in_folder(&place))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
    fs::rename(folder.path().join("aside"), gone).unwrap();
    assert_eq!(run(&job, &from()).unwrap().end, SurvivalEnd::Completed);
    let (job, place) = (job_of("nothing"), folder.path().join("new"));
    let fresh = || often(Survival::in_folder(&place));
    let begun = run(&job, &fresh().from_savepoint(folder.path().join("none")));
    assert_eq!(begun.unwrap_err().code(), ErrorCode::ReadFailed);
    // Of what never was nothing is noted.
    run(&job, &fresh()).unwrap();
}

#[test]
fn a_savepoint_that_was_broken_off_is_forgotten_by_who_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    fs::write(file_of(&saved, "block-"), "").unwrap();
    let fresh = || often(Survival::in_folder(folder.path().join("new")));
    let job = elsewhere(folder.path(), [1, 1, 1]);
    run(&job, &fresh().from_savepoint(&saved)).unwrap_err();
    let over = run(&job, &fresh().start_over(true)).unwrap();
    assert_eq!(over.end, SurvivalEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    assert_eq!(
        run(&job, &fresh()).unwrap().end,
        SurvivalEnd::CompletedBefore
    );
}

#[test]
fn a_job_that_has_begun_from_a_savepoint_needs_it_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let saved = saved_half_way(folder.path());
    let fresh = || often(Survival::in_folder(folder.path().join("new"))).from_savepoint(&saved);
    let new = Windows {
        limit: Arc::new(AtomicU64::new(NUMBERS * 3 / 4)),
        ..elsewhere(folder.path(), [1, 1, 1])
    };
    let stopped = with(&new, &fresh(), |handle| {
        some_snapshots(handle);
        handle.stop();
    });
    assert_eq!(stopped.unwrap().end, SurvivalEnd::Stopped);
    fs::write(saved.join("savepoint.manifest"), "damaged").unwrap();
    let goes_on = |job: &Windows| {
        let told = Told::default();
        let survived = run(job, &told.of(fresh())).unwrap();
        let is_away = |notice: &Notice| matches!(notice, Notice::SavepointAway { .. });
        assert!(told.any(is_away), "{:?}", told.all());
        survived.end
    };
    let quick = elsewhere(folder.path(), [1, 1, 1]);
    assert_eq!(goes_on(&quick), SurvivalEnd::Completed);
    fs::rename(&saved, folder.path().join("moved")).unwrap();
    assert_eq!(goes_on(&quick), SurvivalEnd::CompletedBefore);
    // One with state of its own has never begun from there, and who starts over needs it.
    let own = survival(folder.path()).from_savepoint(&saved);
    let error = run(&quick, &own).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState, "{error}");
    let error = run(&quick, &fresh().start_over(true)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    fs::create_dir(&saved).unwrap();
    fs::write(saved.join("savepoint.manifest"), "damaged").unwrap();
    let error = run(&quick, &fresh().start_over(true)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SnapshotDamaged, "{error}");
    // Until it has begun anew what it had counts.
    assert_eq!(goes_on(&quick), SurvivalEnd::CompletedBefore);
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
            let hint = error.what_next().unwrap();
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
        some_snapshots(handle);
        refuses(&|to| handle.savepoint(to).map(drop));
        refuses(&|to| savepoint(&state, to, PATIENCE).map(drop));
        handle.stop();
    })
    .unwrap();
    refuses(&|to| savepoint(&state, to, PATIENCE).map(drop));
}
