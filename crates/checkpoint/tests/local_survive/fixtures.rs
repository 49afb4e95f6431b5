//! Savepoints and folders of jobs that released versions have left: each of them is restored for ever. docs/savepoints.md says how one is
//! added.

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_checkpoint::local::{Survival, SurvivalEnd};
use ardea_checkpoint::savepoint::Savepoint;
use ardea_checkpoint::store::DiskFolder;

use crate::accounts::{self, ACCOUNTS, Job, RECORDS};
use crate::site::{often, run, survival, until, with};

/// How the folders of savepoints begin, and those of jobs.
const SAVEPOINT: &str = "savepoint-";
const JOB: &str = "job-";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Whether those of the present version are to be written, and not read meanwhile.
fn are_wanted() -> bool {
    env::var_os("ARDEA_WRITE_FIXTURE").is_some()
}

/// All that begin so; there is one at least.
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

/// Copies what a job has left, but for its lock.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "ardea.lock" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// Writes the fixtures of the present version, if somebody wants that.
#[test]
fn the_fixtures_of_a_version_are_written_when_they_are_wanted() {
    if !are_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |kind: &str| fixtures().join(format!("{kind}{}", env!("CARGO_PKG_VERSION")));
    // A full snapshot and some increments, and few files.
    let survival = survival(folder.path())
        .every(Duration::from_millis(100))
        .keep(NonZeroUsize::MIN);
    let survived = with(&accounts::first().pipeline, &survival, |handle| {
        until("each account is known", || {
            handle.is_over() || handle.figures().snapshots > 2
        });
        handle.savepoint(place(SAVEPOINT)).unwrap();
        handle.stop();
    });
    assert_eq!(survived.unwrap().end, SurvivalEnd::Stopped);
    copy(&folder.path().join("state"), &place(JOB));
}

/// Goes on from a fixture, and comes to its end with nothing forgotten.
fn goes_on(job: &Job, survival: &Survival, fixture: &Path) {
    let fixture = fixture.display();
    let survived = run(&job.pipeline, survival).unwrap();
    assert_eq!(survived.end, SurvivalEnd::Completed);
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
        let savepoint = Savepoint::open(Arc::new(DiskFolder::open(&place).unwrap())).unwrap();
        savepoint.check().unwrap();
        let before = &savepoint.manifest().vertices["accounts"].states["keys"];
        assert_eq!(before.count.entries, ACCOUNTS, "{}", place.display());
        for job in [accounts::first(), accounts::second()] {
            let folder = tempfile::tempdir().unwrap();
            let begin = often(Survival::in_folder(folder.path())).from_savepoint(&place);
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
