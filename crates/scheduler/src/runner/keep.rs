//! Keeps the records of containers that run: one that is removed or damaged is written again, of what this runner knows; and tells those
//! who ask for a job what others have mended.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::Result;

use super::folders::JobFolder;
use super::records::{Found, RunFile};
use super::{Inner, blocking};

/// How often records are looked at.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Keeps records for as long as the runner is there.
pub(super) async fn keep_records(runner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LOOKS_EVERY).await;
        let Some(runner) = runner.upgrade() else {
            return;
        };
        // What can't be written now may be the next time.
        let _ = blocking(move || {
            let watched = runner.live().watched.clone();
            for ((job, id), run) in watched {
                let _ = runner.keep(&job, id, &run);
            }
            let asked: Vec<JobFolder> = runner.live().feeds.keys().cloned().collect();
            for job in asked {
                let _ = runner.tell_put_aside(&job);
            }
            Ok(())
        })
        .await;
    }
}

impl Inner {
    /// Writes a container's record again if it is not whole any more. Blocks for no lock.
    fn keep(self: &Arc<Self>, job: &JobFolder, id: ContainerId, run: &RunFile) -> Result<()> {
        let container = job.container(id);
        if matches!(container.run()?, Found::Whole(_)) || !container.path().is_dir() {
            return Ok(());
        }
        let Some(_lock) = container.try_lock()? else {
            return Ok(());
        };
        // Of one that has ended whoever starts it again finds out what is known.
        if !matches!(run.process.open(), Ok(Some(process)) if !process.has_ended()) {
            return Ok(());
        }
        let path = container.run_path();
        let what = match container.run()? {
            Found::Whole(_) => return Ok(()),
            Found::Nothing => format!("{} was gone", path.display()),
            Found::Damaged(why) => {
                let aside = self.put_aside(&path)?;
                format!("{}; it is {} now", why.without_hint(), aside.display())
            }
        };
        container.set_run(run)?;
        self.remark(job, Some(id), format!("{what}, and was written again"));
        Ok(())
    }
}
