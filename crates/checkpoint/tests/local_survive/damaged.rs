//! Tests of jobs whose checkpoints are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::{RecoveryEvent, SAVEPOINT_TIMEOUT, look, savepoint};
use ardea_core::{ErrorCode, Guarantee};

use crate::site::{ReceivedNotices, held, quick, run, survival, until, with};
use crate::windows::Windows;

const NUMBERS: u64 = 20_000;

/// Runs a job to half of its input, as if it had been killed.
fn half(folder: &Path, guarantee: Guarantee) -> Windows {
    let job = held(folder, NUMBERS);
    let survival = survival(folder).guarantee(guarantee);
    with(&job, &survival, |handle| {
        until("some checkpoints are made", || {
            handle.is_over() || handle.figures().checkpoints >= 5
        });
        handle.cancel();
    })
    .unwrap_err();
    quick(folder, NUMBERS)
}

/// Returns the path of the newest checkpoint's manifest.
fn newest_manifest(folder: &Path) -> PathBuf {
    let state = folder.join("state");
    let looked = look(&state, false).unwrap();
    let newest = looked.checkpoints.last().unwrap();
    let id = newest.report.as_ref().unwrap().id;
    state.join(format!(
        "checkpoint-{}-{}.manifest",
        id.generation, id.epoch.0
    ))
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_exactly_once_job_does_not_go_on_from_an_older_checkpoint_unless_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let job = half(folder.path(), Guarantee::ExactlyOnce);
    let manifest = newest_manifest(folder.path());
    damage(&manifest);
    let error = run(&job, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged, "{error}");
    let name = manifest.file_name().unwrap().to_str().unwrap();
    assert!(error.to_string().contains(name), "{error}");
    assert!(error.hint_text().unwrap().contains("recovery.go_back"));
    let state = folder.path().join("state");
    let error = savepoint(&state, &folder.path().join("saved"), SAVEPOINT_TIMEOUT).unwrap_err();
    assert!(error.hint_text().unwrap().contains("recovery.go_back"));
    let looked = look(&state, true).unwrap();
    assert!(looked.checkpoints.last().unwrap().report.is_err());
    let told = ReceivedNotices::default();
    run(&job, &told.of(survival(folder.path())).go_back(true)).unwrap();
    let skipped =
        |notice: &RecoveryEvent| matches!(notice, RecoveryEvent::CheckpointSkipped { .. });
    assert!(told.any(skipped), "{:?}", told.all());
    // No result is lost; some results may be published twice.
    let counted: u64 = job.published().iter().map(|told| told & 0xffff).sum();
    assert!(counted >= NUMBERS, "{counted}");
}

#[test]
fn a_checkpoint_that_was_mended_or_brought_back_is_taken() {
    let ruins: [fn(&Path); 2] = [damage, |path| fs::remove_file(path).unwrap()];
    for ruin in ruins {
        let folder = tempfile::tempdir().unwrap();
        let job = half(folder.path(), Guarantee::ExactlyOnce);
        let manifest = newest_manifest(folder.path());
        let copy = fs::read(&manifest).unwrap();
        ruin(&manifest);
        let error = run(&job, &survival(folder.path())).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged, "{error}");
        fs::write(&manifest, copy).unwrap();
        run(&job, &survival(folder.path())).unwrap();
        assert_eq!(job.published(), Windows::expected(NUMBERS));
    }
}

#[test]
fn an_at_least_once_job_goes_on_from_the_checkpoint_before_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let job = half(folder.path(), Guarantee::AtLeastOnce);
    damage(&newest_manifest(folder.path()));
    let told = ReceivedNotices::default();
    let survival = told.of(survival(folder.path()));
    run(&job, &survival.guarantee(Guarantee::AtLeastOnce)).unwrap();
    let skipped =
        |notice: &RecoveryEvent| matches!(notice, RecoveryEvent::CheckpointSkipped { .. });
    assert!(told.any(skipped), "{:?}", told.all());
    let counted: u64 = job.published().iter().map(|told| told & 0xffff).sum();
    assert!(counted >= NUMBERS, "{counted}");
}

#[test]
fn a_block_that_is_damaged_is_found_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let job = half(folder.path(), Guarantee::ExactlyOnce);
    let state = folder.path().join("state");
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "block") {
            damage(&path);
        }
    }
    assert!(
        look(&state, false)
            .unwrap()
            .checkpoints
            .last()
            .unwrap()
            .report
            .is_ok()
    );
    assert!(
        look(&state, true)
            .unwrap()
            .checkpoints
            .last()
            .unwrap()
            .report
            .is_err()
    );
    let error = run(&job, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged, "{error}");
    assert!(error.to_string().contains(".block"), "{error}");
}

#[test]
fn a_damaged_record_is_told_and_a_job_can_start_over() {
    let folder = tempfile::tempdir().unwrap();
    let job = half(folder.path(), Guarantee::ExactlyOnce);
    let state = folder.path().join("state");
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "record") {
            damage(&path);
        }
    }
    let error = run(&job, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
    assert!(error.to_string().contains(".record"), "{error}");
    fs::remove_dir_all(&job.output).unwrap();
    fs::create_dir(&job.output).unwrap();
    run(&job, &survival(folder.path()).start_over(true)).unwrap();
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}
