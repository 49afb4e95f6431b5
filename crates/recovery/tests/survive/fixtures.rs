//! Savepoints of released versions: each of them is restored for ever. docs/savepoints.md says how one is added.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_recovery::{Survival, SurvivalEnd};
use ardea_savepoint::Savepoint;
use ardea_snapshot::DiskFolder;

use crate::accounts::{self, ACCOUNTS, RECORDS, with};
use crate::site::{often, run, survival, until};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Writes the fixture of the present version, if somebody wants that.
#[test]
fn the_fixture_of_a_version_is_written_when_it_is_wanted() {
    if std::env::var_os("ARDEA_WRITE_FIXTURE").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = fixtures().join(format!("savepoint-{}", env!("CARGO_PKG_VERSION")));
    with(
        &accounts::first().pipeline,
        &survival(folder.path()),
        |handle| {
            until("each account is known", || {
                handle.is_over() || handle.figures().snapshots > 8
            });
            handle.savepoint(&place).unwrap();
            handle.stop();
        },
    )
    .unwrap();
}

#[test]
fn every_released_versions_fixture_is_restored() {
    // Before the first release there is none.
    for found in fs::read_dir(fixtures()).into_iter().flatten() {
        let place = found.unwrap().path();
        let savepoint = Savepoint::open(Arc::new(DiskFolder::open(&place).unwrap())).unwrap();
        savepoint.check().unwrap();
        let before = &savepoint.manifest().vertices["accounts"].states["keys"];
        assert_eq!(before.count.entries, ACCOUNTS, "{}", place.display());
        for job in [accounts::first(), accounts::second()] {
            let folder = tempfile::tempdir().unwrap();
            let begin = often(Survival::in_folder(folder.path())).from_savepoint(&place);
            let survived = run(&job.pipeline, &begin).unwrap();
            assert_eq!(survived.end, SurvivalEnd::Completed);
            for (account, counts) in job.counts() {
                let (first, last) = (counts[0], counts[counts.len() - 1]);
                assert!(first > 1, "{} forgot {account}", place.display());
                assert_eq!(last, RECORDS / ACCOUNTS, "{} {account}", place.display());
                let all: Vec<u64> = (first..=last).collect();
                assert_eq!(counts, all, "{} {account}", place.display());
            }
        }
    }
}
