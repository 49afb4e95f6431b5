//! Checkpoint settings of a cluster job: guarantee, location, initial state.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::local::{AllowedDrops, FAULT_TOLERANCE_SETTINGS, FaultTolerance, address_of, part_of};
use ardea_config::{Resolver, Schema};
use ardea_coordination::control::{JobDefinition, JobRef};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The prefix of a `recovery.from` value that names the in-memory state of a job.
const IN_MEMORY: &str = "memory:";

/// The location of a job's checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckpointLocation {
    /// A folder shared by all hosts, or a prefix in a bucket, used by this submission only.
    Folder(PathBuf),
    /// The memory of the cluster's hosts.
    Memory,
    /// A folder like [`Folder`](Self::Folder), with a copy in the memory of hosts. The copy is read
    /// first.
    Both(PathBuf),
}

impl CheckpointLocation {
    /// Returns true if hosts store checkpoints in memory.
    pub fn is_in_memory(&self) -> bool {
        !matches!(self, CheckpointLocation::Folder(_))
    }
}

impl fmt::Display for CheckpointLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointLocation::Folder(folder) | CheckpointLocation::Both(folder) => {
                write!(f, "{}", folder.display())
            }
            CheckpointLocation::Memory => f.write_str("the memory of the cluster's hosts"),
        }
    }
}

/// The location of a job's initial state, as named by `recovery.from`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// A folder or a prefix in a bucket: a savepoint, or the state of another job.
    Folder(PathBuf),
    /// The state of another job in the memory of the cluster's hosts, by its key (`words#2a`). Set
    /// by the leader for a job that [follows](crate::local::LeaderCheckpointBackend::follow)
    /// another.
    Memory(String),
}

impl Origin {
    fn named(from: &str) -> Result<Self> {
        if let Some(job) = from.strip_prefix(IN_MEMORY) {
            return Ok(Origin::Memory(job.to_string()));
        }
        let path = Path::new(from);
        // The path must be the same for each process: absolute, or a bucket address.
        if path.is_absolute() || address_of(path).is_some() {
            return Ok(Origin::Folder(path.to_path_buf()));
        }
        let what = format!("recovery.from={from} is another folder for each process");
        Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("name a folder that all hosts see, from the root on"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Folder(folder) => write!(f, "{}", folder.display()),
            Origin::Memory(job) => write!(f, "{IN_MEMORY}{job}"),
        }
    }
}

/// Checkpoint settings of a cluster job.
#[derive(Clone, Debug)]
pub struct CheckpointConfig {
    /// The fault-tolerance settings.
    pub survival: FaultTolerance,
    /// The location of the checkpoints.
    pub place: CheckpointLocation,
    /// The location of the initial state, if any: a savepoint, or the state of another job.
    pub from: Option<Origin>,
    /// The parts of the initial state that may be dropped.
    pub dropping: AllowedDrops,
}

impl CheckpointConfig {
    /// Reads the settings of a job definition; `None` if the job has no guarantee.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for invalid settings, settings without meaning
    /// on a cluster, or a folder that is not the same for all hosts.
    pub fn of(definition: &JobDefinition) -> Result<Option<Self>> {
        CheckpointConfig::by(&definition.settings, &definition.job)
    }

    /// Reads the checkpoint settings of `job` from `settings`; `None` if the job has no guarantee.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub fn by(settings: &BTreeMap<String, String>, job: &JobRef) -> Result<Option<Self>> {
        let schema = Schema::of(FAULT_TOLERANCE_SETTINGS);
        let known = settings
            .iter()
            .filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        let Some(survival) = FaultTolerance::from_settings(&resolved)? else {
            return Ok(None);
        };
        let from = match resolved.text("recovery.from")? {
            "" => None,
            from => Some(Origin::named(from)?),
        };
        let dropping = AllowedDrops::listed(resolved.text("recovery.drop")?);
        let place = match resolved.text("checkpoints.folder")? {
            "" => CheckpointLocation::Memory,
            _ => {
                let folder = folder_of(survival.directory(), job)?;
                match resolved.flag("checkpoints.memory")? {
                    true => CheckpointLocation::Both(folder),
                    false => CheckpointLocation::Folder(folder),
                }
            }
        };
        Ok(Some(CheckpointConfig {
            survival,
            place,
            from,
            dropping,
        }))
    }
}

/// Returns the folder of a job's submission, a subfolder of the configured `directory`.
fn folder_of(directory: Option<&Path>, job: &JobRef) -> Result<PathBuf> {
    let wrong = |why: &str| {
        let what = format!("the job {:?} has a guarantee, and {why}", job.name);
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "name a folder that all hosts see by the same path, such as one of a file server (--set checkpoints.folder=/PATH), or a \
             part of a bucket; or leave it out: then checkpoints are in the memory of the cluster's hosts",
        )
    };
    let directory = directory.ok_or_else(|| wrong("its checkpoints are in no folder"))?;
    if !directory.is_absolute() && address_of(directory).is_none() {
        let shown = directory.display();
        return Err(wrong(&format!(
            "{shown} is another folder for each process"
        )));
    }
    let own = format!("{}-{:x}", job.name, job.submission);
    Ok(part_of(directory, &own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobRef {
        JobRef {
            cluster: "harbour".into(),
            name: "words".into(),
            submission: 0x2a,
        }
    }

    fn by(settings: &[(&str, &str)]) -> Result<Option<CheckpointConfig>> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        CheckpointConfig::by(&settings.collect(), &job())
    }

    #[test]
    fn each_submission_has_a_folder_of_its_own() {
        let exactly = ("guarantee", "exactly-once");
        let promise = by(&[
            exactly,
            ("checkpoints.folder", "/mnt/state"),
            ("job.x", "y"),
        ]);
        let promise = promise.unwrap().unwrap();
        assert_eq!(
            promise.place,
            CheckpointLocation::Folder("/mnt/state/words-2a".into())
        );
        let too = ("checkpoints.memory", "on");
        let promise = by(&[exactly, ("checkpoints.folder", "/mnt/state"), too]);
        let promise = promise.unwrap().unwrap();
        assert_eq!(
            promise.place,
            CheckpointLocation::Both("/mnt/state/words-2a".into())
        );
        let bucket = "s3://states/jobs?endpoint=http://[::1]:9000";
        let promise = by(&[exactly, ("checkpoints.folder", bucket)]);
        let own = "s3://states/jobs/words-2a?endpoint=http://[::1]:9000";
        assert_eq!(
            promise.unwrap().unwrap().place,
            CheckpointLocation::Folder(own.into())
        );
    }

    #[test]
    fn a_folder_has_to_be_the_same_for_all_processes() {
        assert!(by(&[("checkpoints.folder", "here")]).unwrap().is_none());
        let exactly = ("guarantee", "exactly-once");
        let error = by(&[exactly, ("checkpoints.folder", "here")]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(
            error.hint_text().unwrap().contains("checkpoints.folder"),
            "{error}"
        );
    }

    #[test]
    fn checkpoints_without_a_folder_are_in_the_memory_of_hosts() {
        let promise = by(&[("guarantee", "exactly-once")]).unwrap().unwrap();
        assert_eq!(promise.place, CheckpointLocation::Memory);
        assert!(promise.place.to_string().contains("memory"));
    }

    #[test]
    fn a_savepoint_to_begin_from_is_named_from_the_root_on() {
        let from = |from| {
            by(&[
                ("guarantee", "exactly-once"),
                ("checkpoints.folder", "/mnt/state"),
                ("recovery.from", from),
                ("recovery.drop", "tops"),
            ])
        };
        let promise = from("/mnt/saved").unwrap().unwrap();
        assert_eq!(promise.from, Some(Origin::Folder("/mnt/saved".into())));
        assert!(promise.dropping.has_vertex("tops"));
        assert_eq!(from("").unwrap().unwrap().from, None);
        assert!(from("s3://saved/words").unwrap().unwrap().from.is_some());
        let left = from("memory:words#2a").unwrap().unwrap().from.unwrap();
        assert_eq!(left, Origin::Memory(job().key()));
        assert_eq!(left.to_string(), "memory:words#2a");
        let error = from("saved").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(error.to_string().contains("recovery.from=saved"), "{error}");
    }
}
