//! What a job of a cluster promises, and where its snapshots are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::local::{Dropping, SURVIVAL_SETTINGS, Survival, address_of, part_of};
use ardea_config::{Resolver, Schema};
use ardea_coordination::control::{JobDefinition, JobRef};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// What a setting begins with that names what a job has left in memory.
const IN_MEMORY: &str = "memory:";

/// Where the snapshots of a job are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a folder that all hosts see, or a part of a bucket, which is this submission's alone.
    Folder(PathBuf),
    /// In the memory of the cluster's hosts.
    Memory,
    /// In such a place, and read from the memory of hosts as far as they are there as well.
    Both(PathBuf),
}

impl Place {
    /// Whether hosts have to keep something of it.
    pub fn is_in_memory(&self) -> bool {
        !matches!(self, Place::Folder(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Folder(folder) | Place::Both(folder) => write!(f, "{}", folder.display()),
            Place::Memory => f.write_str("the memory of the cluster's hosts"),
        }
    }
}

/// Where state is that a job begins with, as `recovery.from` names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// In this folder, or part of a bucket: a savepoint, or what another job has left.
    Folder(PathBuf),
    /// In the memory of the cluster's hosts: what another job has left, which is named as its processes name it (`words#2a`). Only one that follows
    /// it [gets](crate::local::Snapshots::follow) such a setting.
    Memory(String),
}

impl Origin {
    fn named(from: &str) -> Result<Self> {
        if let Some(job) = from.strip_prefix(IN_MEMORY) {
            return Ok(Origin::Memory(job.to_string()));
        }
        let path = Path::new(from);
        // It has to mean the same in each process: a path from the root on, or a part of a bucket.
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

/// What a job promises by its settings, and how it keeps that.
#[derive(Clone, Debug)]
pub struct Promise {
    /// When its epochs end, how many snapshots are kept, and the like.
    pub survival: Survival,
    /// Where its snapshots are.
    pub place: Place,
    /// Where the state is that the job begins with, if it doesn't begin with nothing: a savepoint, or what another job has left.
    pub from: Option<Origin>,
    /// What of that may be left behind.
    pub dropping: Dropping,
}

impl Promise {
    /// By the settings of a definition; none if it promises nothing.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for settings that make no sense, or mean nothing on a cluster, or name a folder that not all
    /// hosts could see.
    pub fn of(definition: &JobDefinition) -> Result<Option<Self>> {
        Promise::by(&definition.settings, &definition.job)
    }

    /// The same, by settings.
    ///
    /// # Errors
    /// The same.
    pub fn by(settings: &BTreeMap<String, String>, job: &JobRef) -> Result<Option<Self>> {
        let schema = Schema::of(SURVIVAL_SETTINGS);
        let known = settings
            .iter()
            .filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        let Some(survival) = Survival::from_settings(&resolved)? else {
            return Ok(None);
        };
        let from = match resolved.text("recovery.from")? {
            "" => None,
            from => Some(Origin::named(from)?),
        };
        let dropping = Dropping::listed(resolved.text("recovery.drop")?);
        let place = match resolved.text("snapshots.folder")? {
            "" => Place::Memory,
            _ => {
                let folder = folder_of(survival.directory(), job)?;
                match resolved.flag("snapshots.memory")? {
                    true => Place::Both(folder),
                    false => Place::Folder(folder),
                }
            }
        };
        Ok(Some(Promise {
            survival,
            place,
            from,
            dropping,
        }))
    }
}

/// The folder of a submission, below that of the settings.
fn folder_of(directory: Option<&Path>, job: &JobRef) -> Result<PathBuf> {
    let wrong = |why: &str| {
        let what = format!("the job {:?} promises to survive, and {why}", job.name);
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "name a folder that all hosts see by the same path, such as one of a file server (--set snapshots.folder=/PATH), or a \
             part of a bucket; or leave it out: then snapshots are in the memory of the cluster's hosts",
        )
    };
    let directory = directory.ok_or_else(|| wrong("its snapshots are in no folder"))?;
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

    fn by(settings: &[(&str, &str)]) -> Result<Option<Promise>> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        Promise::by(&settings.collect(), &job())
    }

    #[test]
    fn each_submission_has_a_folder_of_its_own() {
        let exactly = ("guarantee", "exactly-once");
        let promise = by(&[exactly, ("snapshots.folder", "/mnt/state"), ("job.x", "y")]);
        let promise = promise.unwrap().unwrap();
        assert_eq!(promise.place, Place::Folder("/mnt/state/words-2a".into()));
        let too = ("snapshots.memory", "on");
        let promise = by(&[exactly, ("snapshots.folder", "/mnt/state"), too]);
        let promise = promise.unwrap().unwrap();
        assert_eq!(promise.place, Place::Both("/mnt/state/words-2a".into()));
        let bucket = "s3://states/jobs?endpoint=http://[::1]:9000";
        let promise = by(&[exactly, ("snapshots.folder", bucket)]);
        let own = "s3://states/jobs/words-2a?endpoint=http://[::1]:9000";
        assert_eq!(promise.unwrap().unwrap().place, Place::Folder(own.into()));
    }

    #[test]
    fn a_folder_has_to_be_the_same_for_all_processes() {
        assert!(by(&[("snapshots.folder", "here")]).unwrap().is_none());
        let exactly = ("guarantee", "exactly-once");
        let error = by(&[exactly, ("snapshots.folder", "here")]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(
            error.what_next().unwrap().contains("snapshots.folder"),
            "{error}"
        );
    }

    #[test]
    fn snapshots_without_a_folder_are_in_the_memory_of_hosts() {
        let promise = by(&[("guarantee", "exactly-once")]).unwrap().unwrap();
        assert_eq!(promise.place, Place::Memory);
        assert!(promise.place.to_string().contains("memory"));
    }

    #[test]
    fn a_savepoint_to_begin_from_is_named_from_the_root_on() {
        let from = |from| {
            by(&[
                ("guarantee", "exactly-once"),
                ("snapshots.folder", "/mnt/state"),
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
