//! A job that is repeatedly killed and restarted publishes exactly the expected results.
//!
//! The test program is also the job: in a child process it runs until it is killed or done.
#![forbid(unsafe_code)]

#[path = "windows/mod.rs"]
mod windows;

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant, look};
use ardea_engine::{ExecutionMode, NodeConfig};

use windows::Windows;

const FOLDER: &str = "KILLED_TEST_FOLDER";
const LIFE: &str = "KILLED_TEST_LIFE";
const NUMBERS: u64 = 150_000;
const KILLS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    if let Some(folder) = env::var_os(FOLDER) {
        return be_the_job(&PathBuf::from(folder));
    }
    // The program lists its tests like the standard test harness.
    if env::args().any(|word| word == "--list") {
        println!("killed_at_any_moment: test");
        return ExitCode::SUCCESS;
    }
    killed_at_any_moment();
    println!("test killed_at_any_moment ... ok");
    ExitCode::SUCCESS
}

fn be_the_job(folder: &Path) -> ExitCode {
    let life: u32 = env::var(LIFE)
        .ok()
        .and_then(|life| life.parse().ok())
        .unwrap_or(0);
    let counts = [[2, 2, 2], [3, 1, 2], [1, 3, 1]];
    let job = Windows {
        // The parallelism changes every four attempts.
        instances: counts[(life / 4) as usize % counts.len()],
        ..Windows::again(folder)
    };
    let survival = FaultTolerance::in_folder(folder.join("state"))
        .every(Duration::from_millis(15))
        .pause(Duration::ZERO);
    let node = NodeConfig {
        pin: false,
        // The execution mode changes every three attempts.
        mode: match life / 3 % 2 {
            0 => ExecutionMode::Continuous,
            _ => ExecutionMode::MicroBatch,
        },
        ..NodeConfig::with_threads(2)
    };
    match job.run_fault_tolerant_with(&survival, node) {
        Ok(survived) if survived.end == JobEnd::Completed => ExitCode::SUCCESS,
        Ok(survived) if survived.end == JobEnd::CompletedBefore => ExitCode::SUCCESS,
        outcome => {
            eprintln!("{outcome:?}");
            ExitCode::FAILURE
        }
    }
}

fn start(folder: &Path, life: u32) -> Child {
    let program = env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.env(FOLDER, folder).env(LIFE, life.to_string());
    command.spawn().unwrap()
}

/// Waits at most `within` for the process to end. Returns true if the process has ended.
fn ends(child: &mut Child, within: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "it failed by itself: {status}");
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    false
}

fn killed_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let job = Windows::within(folder.path(), NUMBERS);
    let (began, mut seed) = (Instant::now(), RandomState::new().build_hasher().finish());
    println!("seed {seed}");
    let mut has_ended = false;
    for life in 0..KILLS {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut child = start(folder.path(), life);
        has_ended = ends(&mut child, Duration::from_millis(20 + (seed >> 33) % 400));
        if has_ended {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    if !has_ended {
        let mut child = start(folder.path(), KILLS);
        assert!(ends(&mut child, PATIENCE), "it does not come to its end");
    }
    assert_eq!(job.published(), Windows::expected(NUMBERS));
    let looked = look(&folder.path().join("state"), true).unwrap();
    assert_eq!((looked.end, looked.holder), (Some("completed"), None));
    assert!(
        looked
            .checkpoints
            .iter()
            .all(|checkpoint| checkpoint.report.is_ok())
    );
    println!("took {:?}", began.elapsed());
}
