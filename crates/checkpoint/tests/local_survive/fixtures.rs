//! Savepoints and job folders written by released versions, each of which must be restorable
//! forever. docs/design/savepoints-and-upgrades.md describes how to add one.

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd};
use ardea_checkpoint::savepoint::Savepoint;
use ardea_checkpoint::store::LocalDirStore;

use crate::accounts::{self, ACCOUNTS, Job, RECORDS};
use crate::site::{often, run, survival, until, with};

/// The prefix of savepoint folders.
const SAVEPOINT: &str = "savepoint-";
const JOB: &str = "job-";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns true if the fixtures of the present version are to be written instead of read.
fn are_wanted() -> bool {
    env::var_os("ARDEA_WRITE_FIXTURE").is_some()
}

/// Returns the paths of all fixtures with the prefix `kind`. There must be at least one.
fn all(kind: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(fixtures()).unwrap();
    let folders = files.map(|file| file.unwrap().path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(kind)
    };
    let found: Vec<_> = folders.filter(is_one).collect();
    assert!(!found.is_empty(), "there is no fixture {kind}…");
    found
}

/// Copies a folder without its lock file.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "ardea.lock" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Writes the fixtures of the present version, if requested.
#[test]
fn the_fixtures_of_a_version_are_written_when_they_are_wanted() {
    if !are_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |kind: &str| fixtures().join(format!("{kind}{}", env!("CARGO_PKG_VERSION")));
    // The fixture has a full checkpoint, some increments, and few files.
    let survival = survival(folder.path())
        .every(Duration::from_millis(100))
        .keep(NonZeroUsize::MIN);
    let survived = with(&accounts::first().pipeline, &survival, |handle| {
        until("each account is known", || {
            handle.is_over() || handle.figures().checkpoints > 2
        });
        handle.savepoint(place(SAVEPOINT)).unwrap();
        handle.stop();
    });
    assert_eq!(survived.unwrap().end, JobEnd::Stopped);
    copy(&folder.path().join("state"), &place(JOB));
}

/// Resumes from a fixture, and checks the results at the end.
fn goes_on(job: &Job, survival: &FaultTolerance, fixture: &Path) {
    let fixture = fixture.display();
    let survived = run(&job.pipeline, survival).unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    let accounts = job.counts();
    assert_eq!(accounts.len() as u64, ACCOUNTS, "{fixture}");
    for (account, counts) in accounts {
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        assert!(first > 1, "{fixture} forgot {account}");
        assert_eq!(last, RECORDS / ACCOUNTS, "{fixture} {account}");
        let all: Vec<u64> = (first..=last).collect();
        assert_eq!(counts, all, "{fixture} {account}");
    }
}

#[test]
fn every_released_versions_savepoint_is_restored() {
    if are_wanted() {
        return;
    }
    for place in all(SAVEPOINT) {
        let savepoint = Savepoint::open(Arc::new(LocalDirStore::open(&place).unwrap())).unwrap();
        savepoint.check().unwrap();
        let before = &savepoint.manifest().vertices["accounts"].states["keys"];
        assert_eq!(before.count.entries, ACCOUNTS, "{}", place.display());
        for job in [accounts::first(), accounts::second()] {
            let folder = tempfile::tempdir().unwrap();
            let begin = often(FaultTolerance::in_folder(folder.path())).from_savepoint(&place);
            goes_on(&job, &begin, &place);
        }
    }
}

#[test]
fn every_released_versions_job_goes_on_in_its_own_folder() {
    if are_wanted() {
        return;
    }
    for place in all(JOB) {
        for job in [accounts::first(), accounts::second()] {
            let folder = tempfile::tempdir().unwrap();
            copy(&place, &folder.path().join("state"));
            goes_on(&job, &survival(folder.path()), &place);
        }
    }
}
