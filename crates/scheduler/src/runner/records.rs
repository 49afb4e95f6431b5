//! The persistent records of jobs and containers: small JSON files.
//!
//! Each record is replaced atomically by a rename. Records are not synced, because a crash of the
//! machine also ends the processes that they describe. They contain the boot id of the machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order};
use ardea_core::{Error, ErrorCode, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::ProcessMark;
use crate::{Ending, LaunchPlan};

/// `job.json`: the requested state of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobFile {
    /// The job and its launch parameters.
    pub(crate) launch: LaunchPlan,
    /// The newest call about all containers, with the epoch of the latest leader that made any
    /// call.
    pub(crate) newest: Order,
    /// The requested containers.
    pub(crate) wanted: Vec<ContainerRequest>,
    /// The time of the job's kill, in milliseconds since 1970; no container is started after it.
    pub(crate) killed_at: Option<u64>,
}

impl JobFile {
    /// Returns the request for this container, if the container is requested.
    pub(crate) fn wanted(
        &self,
        id: ardea_coordination::packing::ContainerId,
    ) -> Option<&ContainerRequest> {
        self.wanted.iter().find(|request| request.id == id)
    }
}

/// `run.json`: the latest incarnation of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFile {
    /// The incarnation.
    pub(crate) incarnation: u64,
    /// The call for which the incarnation was started.
    pub(crate) asked: Order,
    /// The identity of the incarnation's process.
    pub(crate) process: ProcessMark,
    /// The position in the container's standard error at which this incarnation's output starts.
    pub(crate) stderr_from: u64,
    /// The incarnation's control group, if it has one.
    pub(crate) cgroup: Option<PathBuf>,
    /// The request for the container, needed if `job.json` is lost. Records of earlier versions
    /// lack it.
    #[serde(default)]
    pub(crate) request: Option<ContainerRequest>,
}

/// `end.json`: the end of a container's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndFile {
    /// The incarnation that ended. The record is ignored if `run.json` has another incarnation.
    pub(crate) incarnation: u64,
    /// The way the process ended.
    pub(crate) how: Ending,
    /// An additional remark on the end, for operators.
    pub(crate) remark: Option<String>,
}

/// The state of a record's file.
#[derive(Debug)]
pub(crate) enum RecordState<T> {
    /// The record does not exist.
    Missing,
    /// The file is no valid record, for this reason.
    Damaged(Error),
    /// The file is this valid record.
    Valid(T),
}

/// Reads the state of a record. An error means that the file can't be read now, not that the record
/// is damaged.
pub(crate) fn read_state<T: DeserializeOwned>(path: &Path) -> Result<RecordState<T>> {
    let damaged = |why: Box<dyn std::error::Error + Send + Sync>| {
        RecordState::Damaged(cannot(ErrorCode::ReadFailed, "understand", path, why)
            .hint("the file was damaged or written by another version of ardea: stop the processes that it describes by hand, then remove it"))
    };
    match std::fs::read(path) {
        Ok(text) => Ok(match serde_json::from_slice(&text) {
            Ok(record) => RecordState::Valid(record),
            Err(error) => damaged(error.into()),
        }),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(RecordState::Missing),
            io::ErrorKind::IsADirectory => Ok(damaged(error.into())),
            _ => Err(cannot(ErrorCode::ReadFailed, "read", path, error)),
        },
    }
}

/// Reads a record; `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match read_state(path)? {
        RecordState::Missing => Ok(None),
        RecordState::Damaged(error) => Err(error),
        RecordState::Valid(record) => Ok(Some(record)),
    }
}

/// Returns the path to which a damaged record is renamed.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".damaged");
    path.with_file_name(name)
}

/// Renames a damaged record, replacing an earlier damaged one. Returns the new path.
pub(crate) fn put_aside(path: &Path) -> Result<PathBuf> {
    let aside = aside(path);
    remove(&aside)?;
    let moved = std::fs::rename(path, &aside);
    moved.map_err(|error| cannot(ErrorCode::WriteFailed, "put aside", path, error))?;
    Ok(aside)
}

/// Writes a record atomically.
pub(crate) fn write(path: &Path, record: &impl Serialize) -> Result<()> {
    let failed = |error: io::Error| cannot(ErrorCode::WriteFailed, "write", path, error);
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // Several processes may write the same record, so each uses its own temporary file.
    let mut scratch = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    scratch.write_all(&text).map_err(failed)?;
    scratch.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Returns the modification time of a file, in milliseconds since 1970, if known.
pub(crate) fn changed_ms(path: &Path) -> Option<u64> {
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Removes a file or folder; no error if it is missing.
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

/// Creates an error about a file.
pub(crate) fn cannot(
    code: ErrorCode,
    what: &str,
    path: &Path,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::new(code, format!("cannot {what} {}", path.display())).because(why)
}
