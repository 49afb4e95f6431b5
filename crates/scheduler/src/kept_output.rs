//! What a job's containers have written, found where it is kept: also when the job is gone, and when no process of the cluster is up.

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

/// The bounds of the output of jobs that were killed, in one folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptBounds {
    /// The time after the kill for which anything is kept of a job.
    pub time: Duration,
    /// The maximum size of the output of all these jobs, in bytes. That of the job that was killed first goes first.
    pub bytes: u64,
}

impl Default for KeptBounds {
    fn default() -> Self {
        KeptBounds {
            time: Duration::from_secs(24 * 3600),
            bytes: 4 << 30,
        }
    }
}

/// What the containers of one submission of a job have written, as far as one folder has it.
///
/// It is kept within [`KeptBounds`] after the job's end, for a day as a rule. All methods wait for the disk.
#[derive(Clone, Debug)]
pub struct KeptOutput(JobFolder);

impl KeptOutput {
    /// What a runner with that [folder](crate::RunnerConfig::folder), or Slurm with that one, has of the job; nothing if it has none.
    pub fn find(folder: &Path, job: &JobRef) -> Option<Self> {
        let folder = JobFolder::of(folder, job);
        folder.path().is_dir().then_some(KeptOutput(folder))
    }

    /// Where it would be below that folder, whether or not there is any.
    pub fn place(folder: &Path, job: &JobRef) -> PathBuf {
        JobFolder::of(folder, job).path().to_path_buf()
    }

    /// Where it is: a folder with one for each container.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The containers that have been there, by number.
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

    /// A piece of what a container has written; an empty one if it has written nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`] if it can't be read.
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
        assert!(KeptOutput::find(folder.path(), &job(8)).is_none());
        let kept = KeptOutput::find(folder.path(), &job(7)).expect("it is there");
        assert_eq!(kept.folder(), own.path());
        assert_eq!(kept.containers().expect("read"), [ContainerId(3)]);
        let read = |file| kept.read(ContainerId(3), &LogRequest::tail(file, 1));
        assert_eq!(read(LogFile::Stdout).expect("read").bytes, b"two\n");
        assert!(read(LogFile::Stderr).expect("nothing").bytes.is_empty());
    }
}
