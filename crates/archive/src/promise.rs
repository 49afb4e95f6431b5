//! What a job of a cluster promises, and where its snapshots are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ardea_control::{JobDefinition, JobRef};
use ardea_core::settings::{Resolver, Schema};
use ardea_core::{Error, ErrorCode, Result};
use ardea_recovery::{Dropping, SURVIVAL_SETTINGS, Survival, address_of};

/// What a job promises by its settings, and how it keeps that.
#[derive(Clone, Debug)]
pub struct Promise {
    /// When its epochs end, how many snapshots are kept, and the like.
    pub survival: Survival,
    /// The folder of its snapshots, which is this submission's alone.
    pub folder: PathBuf,
    /// Where the state is that the job begins with, if it doesn't begin with nothing: a savepoint, or what another job has left.
    pub from: Option<PathBuf>,
    /// What of that may be left behind.
    pub dropping: Dropping,
}

impl Promise {
    /// By the settings of a definition; none if it promises nothing.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for settings that make no sense, or mean nothing on a cluster, or without a folder that all
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
            from if is_whole(Path::new(from)) => Some(PathBuf::from(from)),
            from => {
                let what = format!("recovery.from={from} is another folder for each process");
                return Err(Error::new(ErrorCode::InvalidConfig, what)
                    .hint("name a folder that all hosts see, from the root on"));
            }
        };
        let dropping = Dropping::listed(resolved.text("recovery.drop")?);
        let folder = folder_of(survival.directory(), job)?;
        Ok(Some(Promise {
            survival,
            folder,
            from,
            dropping,
        }))
    }
}

/// Whether it means the same in each process: a path from the root on, or a part of a bucket.
fn is_whole(place: &Path) -> bool {
    place.is_absolute() || address_of(place).is_some()
}

/// The folder of a submission, below that of the settings.
fn folder_of(directory: Option<&Path>, job: &JobRef) -> Result<PathBuf> {
    let wrong = |why: &str| {
        let what = format!("the job {:?} promises to survive, and {why}", job.name);
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "name a folder that all hosts see by the same path, such as one of a file server: --set snapshots.folder=/PATH",
        )
    };
    let directory = directory.ok_or_else(|| wrong("has no folder for its snapshots"))?;
    if !directory.is_absolute() {
        let shown = directory.display();
        return Err(wrong(&format!(
            "{shown} is another folder for each process"
        )));
    }
    Ok(directory.join(format!("{}-{:x}", job.name, job.submission)))
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
        assert_eq!(promise.folder, Path::new("/mnt/state/words-2a"));
    }

    #[test]
    fn a_job_that_promises_nothing_needs_no_folder_and_one_that_does_an_absolute_one() {
        assert!(by(&[("snapshots.folder", "here")]).unwrap().is_none());
        let exactly = ("guarantee", "exactly-once");
        for settings in [&[exactly][..], &[exactly, ("snapshots.folder", "here")]] {
            let error = by(settings).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(
                error.what_next().unwrap().contains("snapshots.folder"),
                "{error}"
            );
        }
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
        assert_eq!(promise.from, Some("/mnt/saved".into()));
        assert!(promise.dropping.has_vertex("tops"));
        assert_eq!(from("").unwrap().unwrap().from, None);
        assert!(from("s3://saved/words").unwrap().unwrap().from.is_some());
        let error = from("saved").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(error.to_string().contains("recovery.from=saved"), "{error}");
    }
}
