//! What a container leaves behind: processes that it started and that outlived it, found by a mark in their environment.
//!
//! A process group holds what a container starts in the ordinary way; a process that has left the group, or whose leader
//! died long ago, is found by the variable that all of a container's processes inherit. A process that has thrown its
//! environment away as well is nobody's any more.

use std::io;
use std::path::Path;

use ardea_coordination::control::{ContainerRequest, WORKER_START_VARIABLE, WorkerStart};

use super::gate::OWN_PROCESS_VARIABLE;
use super::process::ProcessMark;

/// The variable that marks the processes of a container.
pub(super) const MARK_VARIABLE: &str = "ARDEA_CONTAINER";

/// The mark of the processes of a container, of one of its lives. It is not the beginning of another life's.
pub(super) fn mark(container_folder: &Path, incarnation: u64) -> String {
    format!("{}{incarnation};", any_life(container_folder))
}

/// What the marks of all lives of a container begin with.
pub(super) fn any_life(container_folder: &Path) -> String {
    format!("{}#", container_folder.display())
}

/// What the marks of all containers of a job begin with.
pub(super) fn any_container(job_folder: &Path) -> String {
    format!("{}/", job_folder.display())
}

/// A container's own process, as its environment tells of it.
#[derive(Debug)]
pub(super) struct OwnProcess {
    /// Which life.
    pub(super) incarnation: u64,
    /// The process.
    pub(super) process: ProcessMark,
    /// What was asked for, as far as the process was told.
    pub(super) request: Option<ContainerRequest>,
}

/// The container's process that runs, of its latest life: not one that this has started. Costs as much as [`end_all`].
pub(super) fn own_process(container_folder: &Path) -> io::Result<Option<OwnProcess>> {
    let prefix = any_life(container_folder);
    let mut latest: Option<OwnProcess> = None;
    for pid in numbers()? {
        let Some(incarnation) = own_life(pid, &prefix) else {
            continue;
        };
        let Ok(process) = ProcessMark::of(pid) else {
            continue;
        };
        // Looked at again behind the mark: the number may have become another's.
        let is_same = own_life(pid, &prefix) == Some(incarnation);
        if is_same
            && latest
                .as_ref()
                .is_none_or(|latest| latest.incarnation < incarnation)
        {
            latest = Some(OwnProcess {
                incarnation,
                process,
                request: request_of(pid),
            });
        }
    }
    Ok(latest)
}

/// Which life a process is the own process of, if it is that of a container whose marks begin like this.
fn own_life(pid: u32, mark_prefix: &str) -> Option<u64> {
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

/// Ends all processes whose mark begins like this. Each is looked at once more through a handle before it is ended.
///
/// Reads the environment of every process of this user: some ten milliseconds on a machine with a thousand.
pub(super) fn end_all(mark_prefix: &str) -> io::Result<()> {
    // What is ended may just be starting another.
    for _ in 0..8 {
        if !end_those_seen(mark_prefix)? {
            break;
        }
    }
    Ok(())
}

fn end_those_seen(mark_prefix: &str) -> io::Result<bool> {
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

/// The numbers of all processes.
fn numbers() -> io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Whether the process has this mark.
fn is_marked(pid: u32, mark_prefix: &str) -> bool {
    variable(pid, MARK_VARIABLE).is_some_and(|mark| mark.starts_with(mark_prefix))
}

/// A variable that the process was started with; none of one that can't be read, which is another user's, or gone.
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
        end_all(&mark(folder.path(), 1)).expect("looked");
        first.wait().expect("it has ended");
        assert!(second.try_wait().expect("asked").is_none());
        end_all(&any_life(folder.path())).expect("looked");
        second.wait().expect("it has ended");
    }
}
