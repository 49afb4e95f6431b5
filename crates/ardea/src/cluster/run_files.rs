//! The run files of a cluster's hosts on this machine: one per process, in the cluster's folder.
//!
//! A process is identified by its number and by the time at which the kernel started it, so that a
//! later process with the same number is not mistaken for the host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The run file of a host's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RunFile {
    /// The host's name.
    pub(super) name: String,
    /// The cluster's name; empty in files of earlier versions.
    #[serde(default)]
    pub(super) cluster: String,
    /// The only job that the host serves, if any.
    pub(super) job: Option<String>,
    /// The address of the host's REST interface: `http://HOST:PORT`.
    pub(super) api: String,
    /// The configured port, if it was in use when the host started.
    pub(super) taken_port: Option<u16>,
    /// The host's process number.
    pub(super) pid: u32,
    /// The kernel's start time of the process, in clock ticks.
    pub(super) started: u64,
}

/// Returns the folder of the run files.
fn folder(cluster: &Path) -> PathBuf {
    cluster.join("run")
}

impl RunFile {
    /// Creates the run file of this process.
    pub(super) fn of_this_process(
        cluster: &str,
        name: &str,
        job: Option<&str>,
        api: &str,
    ) -> Result<Self> {
        let pid = std::process::id();
        let started = started(pid).ok_or_else(|| {
            Error::new(
                ErrorCode::ReadFailed,
                "cannot read the start time of this process",
            )
            .hint("mount /proc")
        })?;
        Ok(RunFile {
            name: name.to_string(),
            cluster: cluster.to_string(),
            job: job.map(str::to_string),
            api: api.to_string(),
            taken_port: None,
            pid,
            started,
        })
    }

    /// Writes the run file atomically.
    pub(super) fn write(&self, cluster: &Path) -> Result<()> {
        let folder = folder(cluster);
        let path = folder.join(format!("{}.json", self.pid));
        let part = folder.join(format!(".{}.part", self.pid));
        let written = (|| {
            fs::create_dir_all(&folder)?;
            fs::write(&part, serde_json::to_vec(self)?)?;
            fs::rename(&part, &path)
        })();
        written.map_err(|error: io::Error| {
            Error::new(
                ErrorCode::WriteFailed,
                format!("cannot write {}", path.display()),
            )
            .because(error)
            .hint("check the folder's permissions, or name another by cluster.directory")
        })
    }

    /// Writes the run file again if it was removed or damaged, unless the cluster's folder is gone.
    pub(super) fn rewrite_if_missing(&self, cluster: &Path) {
        let path = folder(cluster).join(format!("{}.json", self.pid));
        if cluster.is_dir() && RunFile::read(&path).as_ref() != Some(self) {
            // A failed write is tried again the next time.
            let _ = self.write(cluster);
        }
    }

    /// Returns true if the host's process runs.
    pub(super) fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Removes the run file.
    pub(super) fn remove(&self, cluster: &Path) {
        // An absent file counts as removed.
        let _ = fs::remove_file(folder(cluster).join(format!("{}.json", self.pid)));
    }

    fn read(path: &Path) -> Option<RunFile> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Returns the run files of all running hosts; removes the files of ended processes, including
    /// partial files.
    pub(super) fn all(cluster: &Path) -> Vec<RunFile> {
        let mut alive = Vec::new();
        let entries = fs::read_dir(folder(cluster)).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(pid) = written_by(&path) else {
                continue;
            };
            let file = RunFile::read(&path);
            // An unreadable file may be just being written.
            let is_alive = |pid| started(pid).is_some();
            if !file
                .as_ref()
                .map_or_else(|| is_alive(pid), RunFile::is_alive)
            {
                // Failure to remove it is harmless.
                let _ = fs::remove_file(&path);
            } else if is_whole(&path) {
                alive.extend(file);
            }
        }
        alive.sort_by(|one, other| one.name.cmp(&other.name));
        alive
    }
}

/// Returns the process that has written a file of this folder, from the file's name: `PID.json`, or
/// `.PID.part` for a partial one.
fn written_by(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let half = || name.strip_prefix('.')?.strip_suffix(".part");
    name.strip_suffix(".json").or_else(half)?.parse().ok()
}

fn is_whole(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Returns the kernel's start time of a process, if it runs and is no zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_is_known_and_another_of_its_number_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut file =
            RunFile::of_this_process("local", "a", Some("b"), "http://127.0.0.1:1").unwrap();
        file.write(folder.path()).unwrap();
        assert_eq!(RunFile::all(folder.path()), [file.clone()]);
        file.started += 1;
        file.write(folder.path()).unwrap();
        assert!(RunFile::all(folder.path()).is_empty());
        assert!(RunFile::all(folder.path()).is_empty());
    }

    #[test]
    fn files_of_dead_processes_are_removed_whole_or_not_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let own = RunFile::of_this_process("local", "a", None, "http://127.0.0.1:1").unwrap();
        own.write(folder.path()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let run = super::folder(folder.path());
        let living = std::process::id();
        for name in [
            format!(".{dead}.part"),
            format!("{dead}.json"),
            format!(".{living}.part"),
            "another".to_string(),
        ] {
            fs::write(run.join(name), "{").unwrap();
        }
        assert_eq!(RunFile::all(folder.path()), [own]);
        let left = fs::read_dir(run).unwrap().flatten();
        let mut left: Vec<String> = left
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        let mut stay = [
            format!(".{living}.part"),
            format!("{living}.json"),
            "another".to_string(),
        ];
        stay.sort();
        assert_eq!(left, stay);
    }

    #[test]
    fn a_file_that_was_removed_or_truncated_is_written_again_unless_the_cluster_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = folder.path().join("cluster");
        let file = RunFile::of_this_process("local", "a", None, "http://127.0.0.1:1").unwrap();
        file.write(&cluster).unwrap();
        fs::remove_dir_all(cluster.join("run")).unwrap();
        file.rewrite_if_missing(&cluster);
        assert_eq!(RunFile::all(&cluster).first(), Some(&file));
        fs::write(cluster.join(format!("run/{}.json", file.pid)), "").unwrap();
        assert!(RunFile::all(&cluster).is_empty());
        file.rewrite_if_missing(&cluster);
        assert_eq!(RunFile::all(&cluster).first(), Some(&file));
        fs::remove_dir_all(&cluster).unwrap();
        file.rewrite_if_missing(&cluster);
        assert!(!cluster.exists());
    }
}
