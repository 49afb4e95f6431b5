//! The watch for the ends of containers, both those that this runner has started and those found
//! running.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ardea_coordination::control::WorkerId;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::folders::{ContainerFolder, JobFolder};
use super::process::ProcessHandle;
use super::records::{EndFile, RunFile};
use super::{Inner, Runner, blocking, ending, output};
use crate::{ContainerEvent, RunningContainer};

impl Runner {
    /// Starts to watch for the end of an incarnation, unless it is watched already.
    pub(super) fn watch(
        &self,
        job: &JobFolder,
        id: ContainerId,
        run: RunFile,
        process: ProcessHandle,
    ) {
        let key = (job.clone(), id);
        let before = self.0.live().watched.insert(key, run.clone());
        if before.is_some_and(|before| before.incarnation == run.incarnation) {
            return;
        }
        let (inner, job) = (Arc::clone(&self.0), job.clone());
        tokio::spawn(async move {
            let ended = wait_for(&process).await;
            let folder = job.container(id);
            let life = run.clone();
            let end = match ended {
                Ok(()) => {
                    blocking(move || ending::record_end(&folder, &life, Some(&process))).await
                }
                Err(error) => Err(error),
            };
            inner.unwatch(&job, id, run.incarnation);
            let event = match end {
                Ok(end) => exited(&job.container(id), id, &run, &end),
                // A needless restart is better than a missed end.
                Err(error) => unknown_exit(id, &run, &error),
            };
            inner.send_event(&job, &event);
            let folder = job.container(id);
            let swept = blocking(move || ending::sweep(&folder, &run)).await;
            if let Err(error) = swept {
                let text = error.to_string();
                let container = Some(id);
                inner.send_event(&job, &ContainerEvent::Notice { container, text });
            }
        });
    }
}

impl Inner {
    fn unwatch(&self, job: &JobFolder, id: ContainerId, incarnation: u64) {
        let mut live = self.live();
        let key = (job.clone(), id);
        let watched = live.watched.get(&key);
        if watched.is_some_and(|run| run.incarnation == incarnation) {
            live.watched.remove(&key);
        }
    }
}

/// Waits for the end of a process, which need not be a child of this process.
pub(super) async fn wait_for(process: &ProcessHandle) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorCode::SchedulerUnavailable,
            "can't wait for the end of a container's process",
        )
        .because(error)
        .hint("raise the limit of open files for this process")
    };
    let fd = process.end().map_err(failed)?;
    #[expect(
        deprecated,
        reason = "unsound for types that close their descriptor early; an OwnedFd does not, and what replaces it is unsafe"
    )]
    let fd: AsyncFd<OwnedFd> = AsyncFd::with_interest(fd, Interest::READABLE).map_err(failed)?;
    fd.readable().await.map_err(failed)?.retain_ready();
    Ok(())
}

/// Creates the exit event of an incarnation.
pub(super) fn exited(
    folder: &ContainerFolder,
    container: ContainerId,
    run: &RunFile,
    end: &EndFile,
) -> ContainerEvent {
    let mut last_words = output::last_words(folder.path(), run.stderr_from);
    last_words.extend(end.remark.clone());
    ContainerEvent::Exited {
        worker: WorkerId {
            container,
            incarnation: run.incarnation,
        },
        how: end.how.clone(),
        last_words,
    }
}

fn unknown_exit(container: ContainerId, run: &RunFile, error: &Error) -> ContainerEvent {
    ContainerEvent::Exited {
        worker: WorkerId {
            container,
            incarnation: run.incarnation,
        },
        how: crate::Ending::Unknown,
        last_words: vec![error.to_string()],
    }
}

/// Describes a running container.
pub(super) fn running(host: &str, container: ContainerId, run: &RunFile) -> RunningContainer {
    RunningContainer {
        worker: WorkerId {
            container,
            incarnation: run.incarnation,
        },
        host: host.to_string(),
        host_name: None,
        process: format!("pid {}", run.process.pid()),
    }
}
