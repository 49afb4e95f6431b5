//! The recordings of a run of a job.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ardea_core::{Dag, Error, ErrorCode, Result};

use super::{InstanceRecording, escaped, instance_folder, read_failed, recordable_vertices};

/// The first part of the name of a run's folder; the number of the run follows.
const PREFIX: &str = "run-";

/// The recordings of one run of a job.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    folder: PathBuf,
    number: u64,
    threads: NonZeroU32,
}

impl RecordedRun {
    /// Finds a run of the job `job` in the folder of `micro_batch.record`: the latest, or the one
    /// with this number.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if there is none.
    pub fn find(record: &Path, job: &str, number: Option<u64>) -> Result<Self> {
        let job_folder = record.join(escaped(job));
        let runs = match fs::exists(&job_folder) {
            Ok(false) => Vec::new(),
            _ => numbers(&job_folder)?,
        };
        let hint = "run the job with mode=micro-batch and this folder as micro_batch.record";
        let missing = |what: String| Error::new(ErrorCode::ReadFailed, what);
        let Some(latest) = runs.last() else {
            let what = format!("{} has no recording of the job {job:?}", record.display());
            return Err(missing(what).hint(hint));
        };
        let number = number.unwrap_or(*latest);
        if !runs.contains(&number) {
            let list: Vec<String> = runs.iter().map(u64::to_string).collect();
            let what = format!(
                "{} has no run {number} of the job {job:?}",
                record.display()
            );
            return Err(missing(what).hint(format!("its runs are {}", list.join(", "))));
        }
        let folder = folder_of(&job_folder, number);
        let path = folder.join("threads");
        let threads = fs::read_to_string(&path).map_err(|error| read_failed(&path, error))?;
        let threads = threads.parse::<NonZeroU32>().map_err(|error| {
            missing(format!("{} is not a number of threads", path.display())).because(error)
        })?;
        Ok(RecordedRun {
            folder,
            number,
            threads,
        })
    }

    /// Returns the number of the run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of cooperative threads of the run's node. The graph of the replay must be
    /// that of a node with as many.
    pub fn threads(&self) -> NonZeroU32 {
        self.threads
    }

    /// Reads the recording of an instance.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the job has no such vertex, or its vertex no such instance;
    /// [`ErrorCode::InvalidJob`] if the vertex is not recordable, with the reason.
    pub fn instance(&self, dag: &Dag, vertex: &str, instance: u32) -> Result<InstanceRecording> {
        let vertices = recordable_vertices(dag);
        let recorded: Vec<&str> = vertices
            .iter()
            .filter(|(_, reason)| reason.is_none())
            .map(|(name, _)| &**name)
            .collect();
        let hint = format!("recorded steps are {}", recorded.join(", "));
        match vertices.iter().find(|(name, _)| &**name == vertex) {
            None => {
                let what = format!("the job has no step {vertex:?}");
                return Err(Error::new(ErrorCode::InvalidConfig, what).hint(hint));
            }
            Some((_, Some(reason))) => {
                let what = format!("the step {vertex:?} is not recorded: {reason}");
                return Err(Error::new(ErrorCode::InvalidJob, what).hint(hint));
            }
            Some(_) => {}
        }
        let folder = instance_folder(&self.folder, vertex, instance);
        if folder.is_dir() {
            return InstanceRecording::open(&folder);
        }
        let first = instance_folder(&self.folder, vertex, 0);
        let what = format!("the step {vertex:?} has no recorded instance {instance}");
        let error = Error::new(ErrorCode::InvalidConfig, what);
        Err(match InstanceRecording::open(&first) {
            Ok(first) => {
                let last = first.instance().parallelism.saturating_sub(1);
                error.hint(format!("its instances are 0 to {last}"))
            }
            Err(_) => {
                error.hint("it works in other processes, or the run was that of another program")
            }
        })
    }
}

/// Returns the folder of a run in the folder of its job.
pub(super) fn folder_of(job_folder: &Path, number: u64) -> PathBuf {
    job_folder.join(format!("{PREFIX}{number}"))
}

/// Returns the numbers of a job's runs in order.
///
/// # Errors
/// [`ErrorCode::ReadFailed`].
pub(super) fn numbers(job_folder: &Path) -> Result<Vec<u64>> {
    let failed = |error| read_failed(job_folder, error);
    let mut runs = Vec::new();
    for entry in fs::read_dir(job_folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        runs.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    runs.sort_unstable();
    Ok(runs)
}
