//! Orphans: processes started by a container that outlive it, found by a mark in their environment.
//!
//! A process group contains the ordinary child processes of a container. A process that has left
//! the group, or whose group leader died long ago, is found by the environment variable that all
//! processes of a container inherit. A process that has also cleared its environment can't be
//! attributed to a container.

use std::io;
use std::path::Path;

use ardea_coordination::control::{ContainerRequest, WORKER_START_VARIABLE, WorkerStart};

use super::process::ProcessMark;
use super::record_then_start::OWN_PROCESS_VARIABLE;

/// The environment variable that marks the processes of a container.
pub(super) const MARK_VARIABLE: &str = "ARDEA_CONTAINER";

/// Returns the mark of an incarnation's processes. The mark is no prefix of another incarnation's
/// mark.
pub(super) fn mark(container_folder: &Path, incarnation: u64) -> String {
    format!("{}{incarnation};", container_mark_prefix(container_folder))
}

/// Returns the prefix of the marks of all incarnations of a container.
pub(super) fn container_mark_prefix(container_folder: &Path) -> String {
    format!("{}#", container_folder.display())
}

/// Returns the prefix of the marks of all containers of a job.
pub(super) fn any_container(job_folder: &Path) -> String {
    format!("{}/", job_folder.display())
}

/// The main process of a container, as described by its environment.
#[derive(Debug)]
pub(super) struct MainProcess {
    /// The container's incarnation.
    pub(super) incarnation: u64,
    /// The identity of the process.
    pub(super) process: ProcessMark,
    /// The requested container, as far as the process's environment contains it.
    pub(super) request: Option<ContainerRequest>,
}

/// Returns the running main process of a container's latest incarnation, and not a process started
/// by it. Costs as much as [`kill_all`].
pub(super) fn find_main_process(container_folder: &Path) -> io::Result<Option<MainProcess>> {
    let prefix = container_mark_prefix(container_folder);
    let mut latest: Option<MainProcess> = None;
    for pid in numbers()? {
        let Some(incarnation) = main_process_incarnation(pid, &prefix) else {
            continue;
        };
        let Ok(process) = ProcessMark::of(pid) else {
            continue;
        };
        // Checked again after creating the mark: the pid may have been reused.
        let is_same = main_process_incarnation(pid, &prefix) == Some(incarnation);
        if is_same
            && latest
                .as_ref()
                .is_none_or(|latest| latest.incarnation < incarnation)
        {
            latest = Some(MainProcess {
                incarnation,
                process,
                request: request_of(pid),
            });
        }
    }
    Ok(latest)
}

/// Returns the incarnation if the process is the main process of a container whose mark has this
/// prefix; `None` otherwise.
fn main_process_incarnation(pid: u32, mark_prefix: &str) -> Option<u64> {
    let mark = variable(pid, MARK_VARIABLE)?;
    let is_own = variable(pid, OWN_PROCESS_VARIABLE)?.parse() == Ok(pid);
    let life = mark.strip_prefix(mark_prefix)?.strip_suffix(';')?.parse();
    life.ok().filter(|_| is_own)
}

fn request_of(pid: u32) -> Option<ContainerRequest> {
    let start = variable(pid, WORKER_START_VARIABLE)?;
    let start: WorkerStart = serde_json::from_str(&start).ok()?;
    Some(ContainerRequest {
        id: start.worker.container,
        required: start.resources,
        attributes: Default::default(),
    })
}

/// Kills all processes whose mark has this prefix. Each process is checked again through a process
/// handle before it is killed.
///
/// Reads the environment of every process of this user: some ten milliseconds with a thousand
/// processes.
pub(super) fn kill_all(mark_prefix: &str) -> io::Result<()> {
    // A process that is being killed may just have started another process.
    for _ in 0..8 {
        if !kill_marked(mark_prefix)? {
            break;
        }
    }
    Ok(())
}

fn kill_marked(mark_prefix: &str) -> io::Result<bool> {
    let mut any = false;
    for pid in numbers()? {
        if pid == std::process::id() || !is_marked(pid, mark_prefix) {
            continue;
        }
        let Ok(process) = ProcessMark::of(pid) else {
            continue;
        };
        if let Some(handle) = process.open()?
            && is_marked(pid, mark_prefix)
            && !handle.has_ended()
        {
            handle.kill();
            any = true;
        }
    }
    Ok(any)
}

/// Returns the pids of all processes.
fn numbers() -> io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Returns true if the mark of the process has this prefix.
fn is_marked(pid: u32, mark_prefix: &str) -> bool {
    variable(pid, MARK_VARIABLE).is_some_and(|mark| mark.starts_with(mark_prefix))
}

/// Returns a variable from the initial environment of a process. Returns `None` if the variable is
/// not set or can't be read, because the process belongs to another user or has ended.
fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    String::from_utf8(value.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn only_processes_with_the_mark_are_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |incarnation| {
            Command::new("cat")
                .env(MARK_VARIABLE, mark(folder.path(), incarnation))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("a process")
        };
        let (mut first, mut second) = (start(1), start(2));
        kill_all(&mark(folder.path(), 1)).expect("looked");
        first.wait().expect("it has ended");
        assert!(second.try_wait().expect("asked").is_none());
        kill_all(&container_mark_prefix(folder.path())).expect("looked");
        second.wait().expect("it has ended");
    }
}
