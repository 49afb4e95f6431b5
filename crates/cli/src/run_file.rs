//! What is known of the host of a cluster on this machine while it runs: a file in the cluster's folder.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode, Result};
use serde_json::{Value, json};

/// A host that runs, or ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunFile {
    /// Its process.
    pub pid: u32,
    /// When that process was started, in ticks of the kernel's: another process with its number was started at another time.
    pub started: u64,
    /// Where its interface is.
    pub api: String,
}

/// Where the file is.
fn path(cluster: &ClusterSettings) -> PathBuf {
    cluster.directory.join("host.json")
}

/// Where the host writes what it has to say.
pub fn log_path(cluster: &ClusterSettings) -> PathBuf {
    cluster.directory.join("host.log")
}

impl RunFile {
    /// Of this process.
    pub fn of_this_process(api: &str) -> Self {
        let pid = std::process::id();
        RunFile {
            pid,
            started: started(pid).unwrap_or(0),
            api: api.to_string(),
        }
    }

    /// The host that runs now, if one does.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file is there and can't be read. One that says nothing is of a host that died early.
    pub fn running(cluster: &ClusterSettings) -> Result<Option<Self>> {
        let path = path(cluster);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let what = format!("cannot read {}", path.display());
                return Err(Error::new(ErrorCode::ReadFailed, what)
                    .because(error)
                    .hint("check its permissions"));
            }
        };
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let host = (|| {
            Some(RunFile {
                pid: u32::try_from(value["pid"].as_u64()?).ok()?,
                started: value["started"].as_u64()?,
                api: value["api"].as_str()?.to_string(),
            })
        })();
        Ok(host.filter(RunFile::is_running))
    }

    /// Whether its process is still there.
    pub fn is_running(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Writes the file, as a whole or not at all.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn write(&self, cluster: &ClusterSettings) -> Result<()> {
        let path = path(cluster);
        let text = json!({ "pid": self.pid, "started": self.started, "api": self.api });
        let part = path.with_extension(format!("{}.part", self.pid));
        write_then_rename(&part, &path, &format!("{text}\n")).map_err(|error| {
            // What is left of it helps nobody.
            let _ = fs::remove_file(&part);
            let what = format!("cannot write {}", path.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check cluster.directory, its permissions and the free space")
        })
    }

    /// Removes the file, if it is of this host.
    pub fn remove(&self, cluster: &ClusterSettings) {
        if Self::running(cluster).ok().flatten().as_ref() == Some(self) {
            // A file that stays names a process that is gone.
            let _ = fs::remove_file(path(cluster));
        }
    }
}

fn write_then_rename(part: &Path, path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(part, path)
}

/// When a process was started, in ticks since the machine was; none if there is no such process, or only what is left of it.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have anything in it.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    // The state is the third field, the start the twenty-second.
    let ticks = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea::job::read_settings;

    #[test]
    fn a_host_is_known_as_long_as_its_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("ardea.toml");
        fs::write(&config, "").unwrap();
        let own = format!("cluster.directory={}", folder.path().join("a/b").display());
        let (_, _, cluster) = read_settings(Some(&config), &[own]).unwrap();
        assert_eq!(RunFile::running(&cluster).unwrap(), None);
        let host = RunFile::of_this_process("http://127.0.0.1:7400");
        host.write(&cluster).unwrap();
        assert_eq!(RunFile::running(&cluster).unwrap(), Some(host.clone()));

        let earlier = RunFile {
            started: host.started.wrapping_sub(1),
            ..host.clone()
        };
        earlier.write(&cluster).unwrap();
        assert_eq!(RunFile::running(&cluster).unwrap(), None);
        fs::write(path(&cluster), "{").unwrap();
        assert_eq!(RunFile::running(&cluster).unwrap(), None);

        host.write(&cluster).unwrap();
        host.remove(&cluster);
        assert!(!path(&cluster).exists());
    }
}
