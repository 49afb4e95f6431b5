//! Which processes of this machine are hosts of a cluster: a file each, in the cluster's folder.
//!
//! A process is known by its number and the moment at which the kernel started it, so that another one of the same number is
//! never taken for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The process of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RunFile {
    /// The host.
    pub(super) name: String,
    /// The cluster that it is of; hosts of earlier versions do not say.
    #[serde(default)]
    pub(super) cluster: String,
    /// The job that it is for, if it is for one.
    pub(super) job: Option<String>,
    /// Where its interface is: `http://HOST:PORT`.
    pub(super) api: String,
    /// The port that its interface was to have, if something else had it.
    pub(super) taken_port: Option<u16>,
    /// Its process.
    pub(super) pid: u32,
    /// When the kernel started it, in its own ticks.
    pub(super) started: u64,
}

/// The folder with the files.
fn folder(cluster: &Path) -> PathBuf {
    cluster.join("run")
}

impl RunFile {
    /// Of this process.
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
                "cannot tell when this process was started",
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

    /// Writes it, in one step.
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

    /// Writes it again if somebody has removed or damaged it, while the cluster's folder is there.
    pub(super) fn keep(&self, cluster: &Path) {
        let path = folder(cluster).join(format!("{}.json", self.pid));
        if cluster.is_dir() && RunFile::read(&path).as_ref() != Some(self) {
            // If it can't be written now, it may be the next time.
            let _ = self.write(cluster);
        }
    }

    /// Whether its process runs.
    pub(super) fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Removes it.
    pub(super) fn remove(&self, cluster: &Path) {
        // What is not there is removed.
        let _ = fs::remove_file(folder(cluster).join(format!("{}.json", self.pid)));
    }

    fn read(path: &Path) -> Option<RunFile> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Of all hosts that run; files of those that don't are removed, also halves that could not be written.
    pub(super) fn all(cluster: &Path) -> Vec<RunFile> {
        let mut alive = Vec::new();
        let entries = fs::read_dir(folder(cluster)).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(pid) = written_by(&path) else {
                continue;
            };
            let file = RunFile::read(&path);
            // One that can't be read may just be written, or is about to be written again.
            let is_alive = |pid| started(pid).is_some();
            if !file
                .as_ref()
                .map_or_else(|| is_alive(pid), RunFile::is_alive)
            {
                // That it can't be removed hinders nobody.
                let _ = fs::remove_file(&path);
            } else if is_whole(&path) {
                alive.extend(file);
            }
        }
        alive.sort_by(|one, other| one.name.cmp(&other.name));
        alive
    }
}

/// The process that has written a file of this folder, by the file's name: `PID.json`, or `.PID.part` before it is whole.
fn written_by(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let half = || name.strip_prefix('.')?.strip_suffix(".part");
    name.strip_suffix(".json").or_else(half)?.parse().ok()
}

fn is_whole(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// When the kernel started a process, if it runs and is no zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
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
        file.keep(&cluster);
        assert_eq!(RunFile::all(&cluster).first(), Some(&file));
        fs::write(cluster.join(format!("run/{}.json", file.pid)), "").unwrap();
        assert!(RunFile::all(&cluster).is_empty());
        file.keep(&cluster);
        assert_eq!(RunFile::all(&cluster).first(), Some(&file));
        fs::remove_dir_all(&cluster).unwrap();
        file.keep(&cluster);
        assert!(!cluster.exists());
    }
}
