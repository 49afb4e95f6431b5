//! What a container leaves behind: processes that it started and that outlived it, found by a mark in their environment.
//!
//! A process group holds what a container starts in the ordinary way; a process that has left the group, or whose leader
//! died long ago, is found by the variable that all of a container's processes inherit. A process that has thrown its
//! environment away as well is nobody's any more.

use std::io;
use std::path::Path;

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
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
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

/// Whether the process has this mark; one that can't be read is another user's, or gone.
fn is_marked(pid: u32, mark_prefix: &str) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|variable| {
        variable
            .strip_prefix(MARK_VARIABLE.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|value| value.starts_with(mark_prefix.as_bytes()))
    })
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
