//! Repair of the records of running containers: rewrites a removed or damaged record from memory.
//! Repairs by other runners are reported to the job's subscribers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::Result;

use super::folders::JobFolder;
use super::records::{RecordState, RunFile};
use super::{Inner, blocking};

/// The interval at which records are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Checks and repairs the records periodically as long as the runner exists.
pub(super) async fn repair_records(runner: Weak<Inner>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(runner) = runner.upgrade() else {
            return;
        };
        // Failures are retried at the next check.
        let _ = blocking(move || {
            let watched = runner.live().watched.clone();
            for ((job, id), run) in watched {
                let _ = runner.repair_record(&job, id, &run);
            }
            let asked: Vec<JobFolder> = runner.live().feeds.keys().cloned().collect();
            for job in asked {
                let _ = runner.report_set_aside(&job);
            }
            Ok(())
        })
        .await;
    }
}

impl Inner {
    /// Rewrites a container's record if it is missing or damaged. Does not wait for locks.
    fn repair_record(
        self: &Arc<Self>,
        job: &JobFolder,
        id: ContainerId,
        run: &RunFile,
    ) -> Result<()> {
        let container = job.container(id);
        if matches!(container.run()?, RecordState::Valid(_)) || !container.path().is_dir() {
            return Ok(());
        }
        let Some(_lock) = container.try_lock()? else {
            return Ok(());
        };
        // For an ended container, the next start recovers the state.
        if !matches!(run.process.open(), Ok(Some(process)) if !process.has_ended()) {
            return Ok(());
        }
        let path = container.run_path();
        let what = match container.run()? {
            RecordState::Valid(_) => return Ok(()),
            RecordState::Missing => format!("{} was gone", path.display()),
            RecordState::Damaged(why) => {
                let aside = self.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
        };
        container.set_run(run)?;
        self.notify(job, Some(id), format!("{what}, and was written again"));
        Ok(())
    }
}
