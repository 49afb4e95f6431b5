//! The conformance suite on the scheduler `local`.

use std::sync::Arc;
use std::time::Duration;

use ardea_scheduler::conformance::{Skipped, TestEnvironment, TestPackage};
use ardea_scheduler::{Local, Runner, RunnerConfig, SchedulerKind};

fn stage() -> Result<TestEnvironment, Skipped> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_path_buf();
    Ok(TestEnvironment {
        open: Box::new(move || {
            let programs = Arc::new(TestPackage::packed_in(&path));
            let config = RunnerConfig {
                stop_grace: Duration::from_secs(30),
                ..RunnerConfig::new(&path)
            };
            Box::pin(async move {
                let runner = Runner::open(config, programs).await?;
                Ok(Arc::new(Local::new(runner)) as Arc<dyn SchedulerKind>)
            })
        }),
        kept: Box::new(folder),
    })
}

ardea_scheduler::conformance_suite!(stage);
