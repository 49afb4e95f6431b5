//! The handling of the end of a container's process: records the exit status before the kernel
//! discards it, and kills leftover processes.

use std::time::Duration;

use ardea_core::Result;

use super::folders::ContainerFolder;
use super::limits;
use super::orphans;
use super::process::ProcessHandle;
use super::records::{self, EndFile, RecordState, RunFile};
use crate::Ending;

/// The time that the parent of an ended process has to record the exit status.
const PARENT_TIMEOUT: Duration = Duration::from_millis(500);

/// The poll interval for the exit status.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Determines the exit status of an incarnation, and records it. `process` is the zombie of its
/// process, if there is one. Safe to call concurrently from any number of tasks and processes.
/// Blocks for half a second at most.
pub(super) fn record_end(
    folder: &ContainerFolder,
    run: &RunFile,
    process: Option<&ProcessHandle>,
) -> Result<EndFile> {
    let mut looks = PARENT_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
    let how = loop {
        if let Some(end) = folder.end(run.incarnation)? {
            // The runner that recorded the exit status may have died before it reaped the process.
            if let Some(process) = process {
                process.reap();
            }
            return Ok(end);
        }
        if let Some(how) = process.and_then(ProcessHandle::exit_status_of_child) {
            break how;
        }
        if looks == 0 || !process.is_some_and(ProcessHandle::is_awaited_by_parent) {
            // The parent may have recorded the exit status between the two checks.
            match folder.end(run.incarnation)? {
                Some(end) => return Ok(end),
                None => break Ending::Unknown,
            }
        }
        looks -= 1;
        std::thread::sleep(POLL_INTERVAL);
    };
    let path = folder.end_path();
    let damaged = match records::read_state::<EndFile>(&path)? {
        RecordState::Damaged(_) => Some(format!(
            "{} was damaged and has been rewritten",
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

/// Kills the leftover processes of an incarnation.
pub(super) fn sweep(folder: &ContainerFolder, run: &RunFile) -> Result<()> {
    let mark = orphans::mark(folder.path(), run.incarnation);
    orphans::kill_all(&mark).map_err(|error| {
        let code = ardea_core::ErrorCode::SchedulerUnavailable;
        super::records::cannot(code, "end the leftover processes of", folder.path(), error)
    })?;
    if let Some(group) = &run.cgroup {
        let _ = limits::leave(group);
    }
    Ok(())
}
