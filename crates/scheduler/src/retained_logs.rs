//! Retained output of a job's containers, readable after the job's end and without any process of
//! the cluster.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result};

use crate::runner::folders::JobFolder;
use crate::runner::output;
use crate::runner::records::cannot;
use crate::{LogPiece, LogRequest};

/// The limits of the retained output of killed jobs, in one folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionLimits {
    /// The retention time after the kill of a job.
    pub time: Duration,
    /// The maximum size of the output of all killed jobs, in bytes. The output of the job killed
    /// first is removed first.
    pub bytes: u64,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        RetentionLimits {
            time: Duration::from_secs(24 * 3600),
            bytes: 4 << 30,
        }
    }
}

/// The retained output of the containers of one submission of a job, in one folder.
///
/// The output is retained within [`RetentionLimits`] after the job's end, a day by default. All
/// methods block on disk I/O.
#[derive(Clone, Debug)]
pub struct RetainedLogs(JobFolder);

impl RetainedLogs {
    /// Finds the output of the job below `folder`, the [folder](crate::RunnerConfig::folder) of a
    /// runner or of Slurm. Returns `None` if there is no output.
    pub fn find(folder: &Path, job: &JobRef) -> Option<Self> {
        let folder = JobFolder::of(folder, job);
        folder.path().is_dir().then_some(RetainedLogs(folder))
    }

    /// Returns the path of the job's output below `folder`, whether or not the output exists.
    pub fn place(folder: &Path, job: &JobRef) -> PathBuf {
        JobFolder::of(folder, job).path().to_path_buf()
    }

    /// Returns the job's folder, which has a folder for each container.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Returns the containers with output, sorted by id.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`] if the folder can't be read.
    pub fn containers(&self) -> Result<Vec<ContainerId>> {
        match self.0.path().read_dir() {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(cannot(ErrorCode::ReadFailed, "read", self.0.path(), error))
            }
            _ => self.0.containers(),
        }
    }

    /// Returns a piece of a container's output. The piece is empty if the container has written
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`] if the output can't be read.
    pub fn read(&self, container: ContainerId, request: &LogRequest) -> Result<LogPiece> {
        let folder = self.0.container(container);
        match output::piece(folder.path(), request) {
            Err(error) if error.code() == ErrorCode::NoSuchContainer => Ok(LogPiece {
                position: 0,
                bytes: Vec::new(),
                end: 0,
            }),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogFile;

    #[test]
    fn what_containers_wrote_is_found_by_the_submission_and_read_without_a_runner() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = |submission| JobRef {
            cluster: "harbour".into(),
            name: "word count".into(),
            submission,
        };
        let own = JobFolder::of(folder.path(), &job(7));
        let container = own.container(ContainerId(3));
        std::fs::create_dir_all(container.path()).expect("made");
        std::fs::write(container.path().join("stdout.log"), "one\ntwo\n").expect("written");
        assert!(RetainedLogs::find(folder.path(), &job(8)).is_none());
        let kept = RetainedLogs::find(folder.path(), &job(7)).expect("it is there");
        assert_eq!(kept.folder(), own.path());
        assert_eq!(kept.containers().expect("read"), [ContainerId(3)]);
        let read = |file| kept.read(ContainerId(3), &LogRequest::tail(file, 1));
        assert_eq!(read(LogFile::Stdout).expect("read").bytes, b"two\n");
        assert!(read(LogFile::Stderr).expect("nothing").bytes.is_empty());
    }
}
