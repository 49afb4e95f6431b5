//! Where what is kept of jobs and containers.
//!
//! ```text
//! FOLDER/jobs/word-count-5f3a…/        a job, by name and submission
//!     job.json  lock                   what is wanted of it
//!     container-3/
//!         run.json  end.json  lock     its latest life
//!         run.json.damaged             what was found in the place of that
//!         stdout.log  stderr.log  …    what it wrote
//!         work/                        where it runs; the files of the job's package are there by name
//! ```

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result};

use super::records::{self, EndFile, Found, JobFile, RunFile, cannot};

/// The longest part of a job's name in the name of its folder.
const MOST_NAME_BYTES: usize = 100;

/// The folder of a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct JobFolder(PathBuf);

impl JobFolder {
    /// That of this job, below a runner's folder.
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

    /// All that are below a runner's folder.
    pub(crate) fn all(runner: &Path) -> Result<Vec<Self>> {
        let folder = jobs(runner);
        Ok(entries(&folder)?.into_iter().map(JobFolder).collect())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Its last part: the job's name and submission.
    pub(super) fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Where it is written what is wanted of the job.
    pub(super) fn job_path(&self) -> PathBuf {
        self.0.join("job.json")
    }

    /// What is wanted of the job.
    pub(crate) fn job(&self) -> Result<Option<JobFile>> {
        records::read(&self.job_path())
    }

    /// Writes what is wanted of the job.
    pub(crate) fn set_job(&self, job: &JobFile) -> Result<()> {
        records::write(&self.job_path(), job)
    }

    /// Waits until nobody else changes what is wanted of the job; ends when dropped, or with the process.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.0, "lock")
    }

    /// Waits until nobody else does what this name says.
    pub(crate) fn lock_named(&self, name: &str) -> Result<File> {
        lock(&self.0, name)
    }

    /// A container's folder.
    pub(crate) fn container(&self, id: ContainerId) -> ContainerFolder {
        ContainerFolder(self.0.join(format!("container-{id}")))
    }

    /// The containers that have a folder.
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

/// The folder of a container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerFolder(PathBuf);

impl ContainerFolder {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where its process runs.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Where its latest life is written down.
    pub(super) fn run_path(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Its latest life, as it is written down.
    pub(super) fn run(&self) -> Result<Found<RunFile>> {
        records::look(&self.run_path())
    }

    /// Begins a life.
    pub(crate) fn set_run(&self, run: &RunFile) -> Result<()> {
        records::write(&self.run_path(), run)
    }

    /// Whether a life of it was begun, or was about to.
    pub(super) fn has_lived(&self) -> bool {
        self.0.join("stderr.log").exists()
    }

    /// How the life of that number has ended, if that is known.
    pub(crate) fn end(&self, incarnation: u64) -> Result<Option<EndFile>> {
        let end = self.latest_end()?;
        Ok(end.filter(|end| end.incarnation == incarnation))
    }

    /// How the latest life of which that is known has ended.
    pub(super) fn latest_end(&self) -> Result<Option<EndFile>> {
        match records::look(&self.end_path())? {
            Found::Whole(end) => Ok(Some(end)),
            // It is written anew, with what is known then.
            Found::Nothing | Found::Damaged(_) => Ok(None),
        }
    }

    /// Where it is written how a life has ended.
    pub(super) fn end_path(&self) -> PathBuf {
        self.0.join("end.json")
    }

    /// Says how a life has ended.
    pub(crate) fn set_end(&self, end: &EndFile) -> Result<()> {
        records::write(&self.end_path(), end)
    }

    /// Waits until nobody else starts or stops the container; ends when dropped, or with the process.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.0, "lock")
    }

    /// The same, if nobody else has it.
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

/// Makes the folder if it is not there, and locks it. Blocks.
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
