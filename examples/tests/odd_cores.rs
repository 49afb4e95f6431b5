//! Tests of the scheduler for odd cores: the conformance suite of schedulers, and the cores of its
//! containers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_examples::odd_cores::OddCores;
use ardea_scheduler::conformance::{Skipped, TestEnvironment, TestPackage};
use ardea_scheduler::{Local, Runner, RunnerConfig, SchedulerKind};

fn stage() -> Result<TestEnvironment, Skipped> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_path_buf();
    Ok(TestEnvironment {
        open: Box::new(move || {
            let (path, programs) = (path.clone(), Arc::new(TestPackage::packed_in(&path)));
            Box::pin(async move {
                let runner = Runner::open(RunnerConfig::new(path), programs).await?;
                Ok(Arc::new(OddCores::of(Local::new(runner))) as Arc<dyn SchedulerKind>)
            })
        }),
        kept: Box::new(folder),
    })
}

ardea_scheduler::conformance_suite!(stage);

/// Returns the cores allowed to a process, in the format of the kernel.
fn cores_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("its cores").trim().to_string()
}

#[test]
fn containers_run_on_odd_cores() {
    let case: ardea_scheduler::conformance::Case = |play| {
        Box::pin(async move {
            let members = play.started(1, &[1, 2]).await;
            let count = std::thread::available_parallelism().map_or(1, |count| count.get());
            let odd: Vec<_> = (1..count).step_by(2).map(|core| core.to_string()).collect();
            let expected = if odd.is_empty() {
                "0".to_string()
            } else {
                odd.join(",")
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            for member in &members {
                while cores_of(member.pid) != expected {
                    assert!(
                        Instant::now() < deadline,
                        "{} is not {expected}",
                        cores_of(member.pid)
                    );
                    tokio::task::yield_now().await;
                }
            }
        })
    };
    ardea_scheduler::conformance::run("containers_run_on_odd_cores", stage, case);
}
