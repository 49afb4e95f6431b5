//! The end of a container's process: how it ended, written down before the kernel forgets it; and nothing left behind.

use std::time::Duration;

use ardea_core::Result;

use super::folders::ContainerFolder;
use super::leftovers;
use super::limits;
use super::process::ProcessHandle;
use super::records::{self, EndFile, Found, RunFile};
use crate::Ending;

/// How long the process that started a container is waited for to write down how it ended.
const FOR_PARENT: Duration = Duration::from_millis(500);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Finds out how a life has ended, and writes it down. `process` is what is left of it, if anything is. Any number of tasks and
/// processes may do this at the same time. Blocks for half a second at most.
pub(super) fn conclude(
    folder: &ContainerFolder,
    run: &RunFile,
    process: Option<&ProcessHandle>,
) -> Result<EndFile> {
    let mut looks = FOR_PARENT.as_millis() / LOOK_EVERY.as_millis();
    let how = loop {
        if let Some(end) = folder.end(run.incarnation)? {
            // Whoever wrote it may have died before the next step.
            if let Some(process) = process {
                process.reap();
            }
            return Ok(end);
        }
        if let Some(how) = process.and_then(ProcessHandle::ending_of_child) {
            break how;
        }
        if looks == 0 || !process.is_some_and(ProcessHandle::is_awaited_by_parent) {
            // The other one may have written it between the two looks.
            match folder.end(run.incarnation)? {
                Some(end) => return Ok(end),
                None => break Ending::Unknown,
            }
        }
        looks -= 1;
        std::thread::sleep(LOOK_EVERY);
    };
    let path = folder.end_path();
    let damaged = match records::look::<EndFile>(&path)? {
        Found::Damaged(_) => Some(format!(
            "{} was damaged, and is written anew",
            path.display()
        )),
        _ => None,
    };
    let end = EndFile {
        incarnation: run.incarnation,
        how,
        remark: run.cgroup.as_deref().and_then(limits::leave).or(damaged),
    };
    folder.set_end(&end)?;
    if let Some(process) = process {
        process.reap();
    }
    Ok(end)
}

/// Ends what a life has left behind.
pub(super) fn sweep(folder: &ContainerFolder, run: &RunFile) -> Result<()> {
    let mark = leftovers::mark(folder.path(), run.incarnation);
    leftovers::end_all(&mark).map_err(|error| {
        let code = ardea_core::ErrorCode::SchedulerUnavailable;
        super::records::cannot(code, "end what was left of", folder.path(), error)
    })?;
    if let Some(group) = &run.cgroup {
        let _ = limits::leave(group);
    }
    Ok(())
}
