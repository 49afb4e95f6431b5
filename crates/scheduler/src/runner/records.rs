//! What is written down of jobs and containers, so that whoever comes later finds them: small files of JSON.
//!
//! Each is replaced as a whole, by a rename. None is synced to the disk: what they tell of are processes, which a crash of the
//! machine ends as well, and their start of the machine is written beside their number.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_core::{Error, ErrorCode, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::ProcessMark;
use crate::{Ending, LaunchPlan};

/// `job.json`: what is wanted of a job here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobFile {
    /// The job.
    pub(crate) launch: LaunchPlan,
    /// The newest call about all containers, and the highest mastership in any call.
    pub(crate) newest: Order,
    /// The containers that there should be.
    pub(crate) wanted: Vec<ContainerRequest>,
    /// When the job was killed, in milliseconds since 1970; nothing of it is started after that.
    pub(crate) killed_at: Option<u64>,
}

impl JobFile {
    /// The container, if it should be there.
    pub(crate) fn wanted(
        &self,
        id: ardea_coordination::packing::ContainerId,
    ) -> Option<&ContainerRequest> {
        self.wanted.iter().find(|request| request.id == id)
    }
}

/// `run.json`: the latest life of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFile {
    /// Which life.
    pub(crate) incarnation: u64,
    /// For which call it was started.
    pub(crate) asked: Order,
    /// Its process.
    pub(crate) process: ProcessMark,
    /// The position in its standard error at which it begins.
    pub(crate) stderr_from: u64,
    /// Its control group, if it has one.
    pub(crate) cgroup: Option<PathBuf>,
    /// What was asked for, in case `job.json` gets lost; earlier versions did not write it.
    #[serde(default)]
    pub(crate) request: Option<ContainerRequest>,
}

/// `end.json`: how a container's process has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndFile {
    /// Which life; another one than that of `run.json` says nothing.
    pub(crate) incarnation: u64,
    /// How.
    pub(crate) how: Ending,
    /// What else is known of it.
    pub(crate) remark: Option<String>,
}

/// What is found where a record should be.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// There is none.
    Nothing,
    /// What is there is no record, for this reason.
    Damaged(Error),
    /// A record.
    Whole(T),
}

/// Looks at a record. An error says that it can't be read now, not that it is damaged.
pub(crate) fn look<T: DeserializeOwned>(path: &Path) -> Result<Found<T>> {
    let damaged = |why: Box<dyn std::error::Error + Send + Sync>| {
        Found::Damaged(cannot(ErrorCode::ReadFailed, "understand", path, why)
            .hint("another version of ardea, or somebody else, wrote it: stop what it tells of by hand, and remove it"))
    };
    match std::fs::read(path) {
        Ok(text) => Ok(match serde_json::from_slice(&text) {
            Ok(record) => Found::Whole(record),
            Err(error) => damaged(error.into()),
        }),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(Found::Nothing),
            io::ErrorKind::IsADirectory => Ok(damaged(error.into())),
            _ => Err(cannot(ErrorCode::ReadFailed, "read", path, error)),
        },
    }
}

/// Reads a record; `None` if there is none.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match look(path)? {
        Found::Nothing => Ok(None),
        Found::Damaged(error) => Err(error),
        Found::Whole(record) => Ok(Some(record)),
    }
}

/// What a record is called that was damaged.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".damaged");
    path.with_file_name(name)
}

/// Gives a damaged record another name, in place of one that was put aside before; that name.
pub(crate) fn put_aside(path: &Path) -> Result<PathBuf> {
    let aside = aside(path);
    remove(&aside)?;
    let moved = std::fs::rename(path, &aside);
    moved.map_err(|error| cannot(ErrorCode::WriteFailed, "put aside", path, error))?;
    Ok(aside)
}

/// Writes a record, as a whole or not at all.
pub(crate) fn write(path: &Path, record: &impl Serialize) -> Result<()> {
    let failed = |error: io::Error| cannot(ErrorCode::WriteFailed, "write", path, error);
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // Several processes may write the same record: each has a scratch file of its own.
    let mut scratch = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    scratch.write_all(&text).map_err(failed)?;
    scratch.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// When a file was written last, in milliseconds since 1970, as far as that is known.
pub(crate) fn changed_ms(path: &Path) -> Option<u64> {
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Removes a file or folder; that there is none is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cannot(ErrorCode::WriteFailed, "remove", path, error))
        }
        _ => Ok(()),
    }
}

/// An error about a file.
pub(crate) fn cannot(
    code: ErrorCode,
    what: &str,
    path: &Path,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::new(code, format!("cannot {what} {}", path.display())).because(why)
}
