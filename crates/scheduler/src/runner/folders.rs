//! The folders of jobs and containers.
//!
//! ```text
//! FOLDER/jobs/word-count-5f3a…/        a job, by name and submission
//!     job.json  lock                   its requested state
//!     container-3/
//!         run.json  end.json  lock     its latest incarnation
//!         run.json.damaged             a damaged record, renamed
//!         stdout.log  stderr.log  …    its output
//!         work/                        its working folder, with links to the package's files
//! ```

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result};

use super::records::{self, EndFile, JobFile, RecordState, RunFile, cannot};

/// The maximum length of the job's name within its folder's name.
const MOST_NAME_BYTES: usize = 100;

/// The folder of a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct JobFolder(PathBuf);

impl JobFolder {
    /// Returns the folder of this job, below a runner's folder.
    pub(crate) fn of(runner: &Path, job: &JobRef) -> Self {
        let mut name = String::new();
        for byte in job.name.bytes() {
            if name.len() >= MOST_NAME_BYTES {
                break;
            }
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(byte.into()),
                _ => name.push_str(&format!("%{byte:02X}")),
            }
        }
        JobFolder(jobs(runner).join(format!("{name}-{:016x}", job.submission)))
    }

    /// Returns the folders of all jobs below a runner's folder.
    pub(crate) fn all(runner: &Path) -> Result<Vec<Self>> {
        let folder = jobs(runner);
        Ok(entries(&folder)?.into_iter().map(JobFolder).collect())
    }

    /// Returns the path of this folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the last path component: the job's name and submission.
    pub(super) fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the path of the job's record.
    pub(super) fn job_path(&self) -> PathBuf {
        self.0.join("job.json")
    }

    /// Reads the job's record.
    pub(crate) fn job(&self) -> Result<Option<JobFile>> {
        records::read(&self.job_path())
    }

    /// Writes the job's record.
    pub(crate) fn set_job(&self, job: &JobFile) -> Result<()> {
        records::write(&self.job_path(), job)
    }

    /// Waits for the exclusive lock on the job's record, which is released on drop or with the
    /// process.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.0, "lock")
    }

    /// Waits for the exclusive lock on the file `name` in the job's folder.
    pub(crate) fn lock_named(&self, name: &str) -> Result<File> {
        lock(&self.0, name)
    }

    /// Returns a container's folder.
    pub(crate) fn container(&self, id: ContainerId) -> ContainerFolder {
        ContainerFolder(self.0.join(format!("container-{id}")))
    }

    /// Returns the containers that have a folder.
    pub(crate) fn containers(&self) -> Result<Vec<ContainerId>> {
        let mut ids: Vec<_> = entries(&self.0)?
            .iter()
            .filter_map(|path| path.file_name()?.to_str()?.strip_prefix("container-"))
            .filter_map(|number| Some(ContainerId(number.parse().ok()?)))
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

/// The name of the working folder of a container's process.
pub(super) const WORK: &str = "work";

/// The folder of a container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerFolder(PathBuf);

impl ContainerFolder {
    /// Returns the path of this folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the working folder of the container's process.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join(WORK)
    }

    /// Returns the path of the record of the container's latest incarnation.
    pub(super) fn run_path(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Reads the record of the container's latest incarnation.
    pub(super) fn run(&self) -> Result<RecordState<RunFile>> {
        records::read_state(&self.run_path())
    }

    /// Writes the record of an incarnation as the latest.
    pub(crate) fn set_run(&self, run: &RunFile) -> Result<()> {
        records::write(&self.run_path(), run)
    }

    /// Returns true if an incarnation of the container was started, or was about to be started.
    pub(super) fn has_lived(&self) -> bool {
        self.0.join("stderr.log").exists()
    }

    /// Returns the recorded end of this incarnation, if there is one.
    pub(crate) fn end(&self, incarnation: u64) -> Result<Option<EndFile>> {
        let end = self.latest_end()?;
        Ok(end.filter(|end| end.incarnation == incarnation))
    }

    /// Returns the recorded end of the latest ended incarnation, if there is one.
    pub(super) fn latest_end(&self) -> Result<Option<EndFile>> {
        match records::read_state(&self.end_path())? {
            RecordState::Valid(end) => Ok(Some(end)),
            // A damaged record is overwritten with the next end.
            RecordState::Missing | RecordState::Damaged(_) => Ok(None),
        }
    }

    /// Returns the path of the record `end.json`.
    pub(super) fn end_path(&self) -> PathBuf {
        self.0.join("end.json")
    }

    /// Records the end of an incarnation.
    pub(crate) fn set_end(&self, end: &EndFile) -> Result<()> {
        records::write(&self.end_path(), end)
    }

    /// Waits for the exclusive lock on starting and stopping the container, which is released on
    /// drop or with the process.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.0, "lock")
    }

    /// Acquires the lock on starting and stopping the container if it is free, or returns `None`.
    pub(super) fn try_lock(&self) -> Result<Option<File>> {
        try_lock(&self.0, "lock")
    }
}

fn jobs(runner: &Path) -> PathBuf {
    runner.join("jobs")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| cannot(ErrorCode::ReadFailed, "read", folder, error);
    match std::fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry.map_err(failed)?.path()))
            .collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// Creates `folder` if it is missing, and waits for the exclusive lock on the file `name` in it.
fn lock(folder: &Path, name: &str) -> Result<File> {
    let file = to_lock(folder, name)?;
    let locked = file.lock();
    locked.map_err(|error| cannot(ErrorCode::WriteFailed, "lock", folder, error))?;
    Ok(file)
}

fn try_lock(folder: &Path, name: &str) -> Result<Option<File>> {
    let file = to_lock(folder, name)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(cannot(ErrorCode::WriteFailed, "lock", folder, error))
        }
    }
}

fn to_lock(folder: &Path, name: &str) -> Result<File> {
    let failed = |error| cannot(ErrorCode::WriteFailed, "lock", folder, error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let file = File::options()
        .create(true)
        .append(true)
        .open(folder.join(name));
    file.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_job_leads_out_of_the_folder_and_no_two_submissions_share_one() {
        let names = ["..", "a/b", "", "ä", ".hidden", &"x".repeat(10_000)];
        let mut folders = std::collections::BTreeSet::new();
        for name in names {
            for submission in [1, 2] {
                let job = JobRef {
                    cluster: "test".into(),
                    name: name.into(),
                    submission,
                };
                let folder = JobFolder::of(Path::new("/f"), &job);
                assert_eq!(folder.path().parent(), Some(Path::new("/f/jobs")));
                let last = folder.path().file_name().and_then(|name| name.to_str());
                assert!(last.is_some_and(|name| name.len() < 128 && name.is_ascii()));
                assert!(folders.insert(folder));
            }
        }
    }

    #[test]
    fn containers_are_found_by_their_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = JobFolder(folder.path().join("job"));
        assert!(job.containers().expect("none yet").is_empty());
        for id in [3, 20, 1] {
            drop(job.container(ContainerId(id)).lock().expect("locked"));
        }
        std::fs::create_dir(job.path().join("container-x")).expect("made");
        let found = job.containers().expect("read");
        assert_eq!(found, [1, 3, 20].map(ContainerId));
    }
}
