//! Tests of the ownership of a job's folder.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, FaultTolerantJob, JobEnd, look};
use ardea_checkpoint::store::{
    CheckpointId, CheckpointStore, LocalDirStore, MemoryStore, ObjectStore, StoreConfig,
};
use ardea_core::ErrorCode;
use ardea_engine::Node;

use crate::accounts;
use crate::site::{
    held, known_everywhere, node, often, quick, run, some_checkpoints, survival, until, with,
};
use crate::windows::Windows;

const NUMBERS: u64 = 3_000;
/// The number of inspections of a running job.
const LOOKS: u32 = 20;

#[test]
fn two_at_a_time_do_not_get_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), NUMBERS);
    let node = Node::start(node()).unwrap();
    let survival = survival(folder.path());
    let first = FaultTolerantJob::open(&job, &node, &survival).unwrap();
    let error = FaultTolerantJob::open(&job, &node, &survival)
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::WrongState);
    let process = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&process), "{error}");
    assert_eq!(first.run().unwrap().end, JobEnd::Completed);
}

#[test]
fn of_two_that_share_a_place_without_a_lock_one_goes_on_and_the_other_ends_with_that() {
    let place = Arc::new(MemoryStore::new());
    let within = || {
        often(FaultTolerance::within(
            Arc::clone(&place) as Arc<dyn ObjectStore>
        ))
    };
    let seldom = within().every(Duration::from_millis(300));
    let error = with(&accounts::first().pipeline, &seldom, |first| {
        until("a checkpoint is made", || {
            first.is_over() || first.figures().checkpoints > 0
        });
        loop {
            let second = with(&accounts::first().pipeline, &within(), |second| {
                until("one has ended", || second.is_over() || first.is_over());
                second.stop();
            });
            match second {
                // The first process was faster.
                Err(error) if error.code() == ErrorCode::Superseded => {}
                ended => {
                    let ended = ended.unwrap();
                    assert_eq!(ended.end, JobEnd::Stopped);
                    assert!(ended.figures.began_from.is_some());
                    break;
                }
            }
        }
    })
    .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Superseded);
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn another_jobs_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = quick(folder.path(), NUMBERS);
    run(&job, &survival(folder.path())).unwrap();
    job.name = "others".into();
    let error = run(&job, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongCluster);
    for part in ["\"windows\"", "\"others\""] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_job_with_other_vertices_is_refused_with_what_differs_and_nothing_is_lost_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = held(folder.path(), NUMBERS);
    with(&job, &survival(folder.path()), |handle| {
        known_everywhere(&job, handle);
        handle.cancel();
    })
    .unwrap_err();
    job.limit.store(u64::MAX, Ordering::SeqCst);
    job.counts = "totals".into();
    let error = run(&job, &survival(folder.path())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    for part in ["\"counts\"", "open", "\"totals\""] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    job.counts = "counts".into();
    run(&job, &survival(folder.path())).unwrap();
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn what_is_in_a_folder_can_be_looked_at_and_few_files_are_left_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 20_000);
    let survived = run(&job, &survival(folder.path())).unwrap();
    let state = folder.path().join("state");
    let looked = look(&state, true).unwrap();
    assert_eq!((&*looked.job, looked.end), ("windows", Some("completed")));
    assert_eq!(
        looked.checkpoints.len(),
        3.min(survived.figures.checkpoints as usize)
    );
    let newest = looked.checkpoints.last().unwrap();
    assert_eq!(Some(newest.epoch), looked.committed);
    let report = newest.report.as_ref().unwrap();
    let names: Vec<&str> = report
        .vertices
        .iter()
        .map(|vertex| &*vertex.vertex)
        .collect();
    assert_eq!(names, ["counts", "files", "numbers"]);
    assert!(newest.took.is_some());
    let manifests = |ending: &str| {
        let files = fs::read_dir(&state).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).count()
    };
    assert!(manifests(".record") <= 2, "{}", manifests(".record"));
    assert!(manifests(".manifest") <= 4, "{}", manifests(".manifest"));
    assert_eq!(manifests(".writing"), 0);
    assert_nothing_is_left(&state);
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(
        look(nothing.path(), false).unwrap_err().code(),
        ErrorCode::NoSuchCheckpoint
    );
    let error = look(&nothing.path().join("x"), false).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}

/// Checks that all blocks in a job's folder belong to its checkpoints.
fn assert_nothing_is_left(state: &Path) {
    let folder = Arc::new(LocalDirStore::open(state).unwrap());
    let store = CheckpointStore::open(folder, "windows", StoreConfig::default()).unwrap();
    let all = CheckpointId::start_of(u64::MAX);
    assert_eq!(store.sweep(all).unwrap().files, 0);
}

#[test]
fn what_a_job_that_was_stopped_has_begun_to_write_is_not_left_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let job = held(folder.path(), NUMBERS);
    for _ in 0..5 {
        let lived = with(&job, &survival(folder.path()), |handle| {
            some_checkpoints(handle);
            handle.stop();
        });
        assert_eq!(lived.unwrap().end, JobEnd::Stopped);
        assert_nothing_is_left(&folder.path().join("state"));
    }
}

#[test]
fn what_a_life_began_from_goes_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let job = held(folder.path(), NUMBERS);
    let survival = survival(folder.path());
    let life = |is_first: bool| {
        let lived = with(&job, &survival, |handle| {
            some_checkpoints(handle);
            let began_from = handle.figures().began_from;
            assert_eq!(began_from.is_none(), is_first);
            if let Some(epoch) = began_from {
                let ending = format!("-{}.manifest", epoch.0);
                until("its checkpoint is gone", || {
                    let files = fs::read_dir(folder.path().join("state")).unwrap();
                    let mut names = files.flatten().map(|file| file.file_name());
                    !names.any(|name| name.to_string_lossy().ends_with(&ending))
                });
            }
            handle.stop();
        });
        assert_eq!(lived.unwrap().end, JobEnd::Stopped);
    };
    life(true);
    life(false);
}

#[test]
fn a_job_that_runs_can_be_looked_at_again_and_again_and_is_never_taken_for_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let job = held(folder.path(), 20_000);
    let node = Node::start(node()).unwrap();
    let survival = survival(folder.path());
    let surviving = FaultTolerantJob::open(&job, &node, &survival).unwrap();
    let handle = surviving.handle();
    let state = folder.path().join("state");
    let looks = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            until("a checkpoint is made", || handle.figures().checkpoints > 0);
            let mut looks = 0;
            while !handle.is_over() {
                let looked = look(&state, looks % 2 == 0).unwrap();
                for checkpoint in looked.checkpoints {
                    checkpoint.report.unwrap();
                }
                looks += 1;
                if looks == LOOKS {
                    job.limit.store(u64::MAX, Ordering::SeqCst);
                }
            }
            looks
        });
        surviving.run().unwrap();
        looking.join().unwrap()
    });
    assert!(looks >= LOOKS, "{looks}");
}
