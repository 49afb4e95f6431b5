//! The check at submission that a job can keep its processing guarantee on a cluster.

use std::collections::BTreeMap;
use std::path::{Path, absolute};

use ardea_checkpoint::cluster::{CheckpointConfig, write_states};
use ardea_checkpoint::local::{address_of, check_address};
use ardea_checkpoint::savepoint::JobStateSchema;
use ardea_coordination::control::JobRef;
use ardea_coordination::packing::JobDemand;
use ardea_core::{Dag, Error, ErrorCode, Guarantee, Instance, Result};

const FOLDER: &str = "checkpoints.folder";
const FROM: &str = "recovery.from";

/// Makes the folders of the checkpoints and of the savepoint to start from absolute, unless they
/// are in a bucket.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if a folder is in a bucket and this program has no client for it,
/// or is no valid path.
pub(super) fn make_folders_absolute(settings: &mut BTreeMap<String, String>) -> Result<()> {
    for key in [FOLDER, FROM] {
        let Some(folder) = settings.get_mut(key).filter(|folder| !folder.is_empty()) else {
            continue;
        };
        if let Some(address) = address_of(Path::new(folder)) {
            // The workers run this program, so its missing bucket support is reported now.
            check_address(address)?;
            continue;
        }
        let whole = absolute(&*folder).map_err(|error| {
            let what = format!("{key}={folder} names no folder");
            Error::new(ErrorCode::InvalidConfig, what).because(error)
        })?;
        *folder = whole.to_string_lossy().into_owned();
    }
    Ok(())
}

/// Adds the state schema of a job with a guarantee to its demand.
///
/// # Errors
/// For a job that starts from a savepoint, any error that prevents creating its steps here: the
/// states could not be compared.
pub(super) fn add_states(
    dag: &Dag,
    settings: &BTreeMap<String, String>,
    demand: &mut JobDemand,
) -> Result<()> {
    let set = |key: &str| settings.get(key).map_or("", String::as_str);
    if matches!(set("guarantee"), "" | "none") {
        return Ok(());
    }
    match JobStateSchema::of(dag) {
        Ok(states) => write_states(&states, demand),
        Err(error) if !set(FROM).is_empty() => Err(error),
        // A step that can't be created here may be creatable where it runs.
        Err(_) => Ok(()),
    }
}

/// Returns the guarantee of a job. Refuses a job that can't keep it: its checkpoint folder is not
/// shared by all processes, or a step can't snapshot its state.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] and [`ErrorCode::InvalidJob`].
pub(super) fn check_guarantee(
    dag: &Dag,
    settings: &BTreeMap<String, String>,
    job: &JobRef,
) -> Result<Guarantee> {
    let Some(promise) = CheckpointConfig::by(settings, job)? else {
        return Ok(Guarantee::None);
    };
    let guarantee = promise.survival.promised();
    check_steps(dag, guarantee)?;
    Ok(guarantee)
}

fn check_steps(dag: &Dag, guarantee: Guarantee) -> Result<()> {
    for vertex in dag.vertices() {
        // A step that can't be created here may be creatable where it runs.
        let Ok(processor) = vertex.supplier().supply(Instance::ONLY) else {
            continue;
        };
        if let Some(what) = processor.unsaved_state() {
            let what =
                format!("it would forget {what}, although the guarantee of the job is {guarantee}");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .in_vertex(vertex.name(), 0)
                .hint("submit the job without that guarantee, or without this step"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Inbox, Ordinal, Outbox, Processor, Vertex, supplier};

    struct Forgetful;

    impl Processor for Forgetful {
        fn process(&mut self, _: Ordinal, _: &mut Inbox, _: &mut Outbox) -> Result<()> {
            Ok(())
        }

        fn unsaved_state(&self) -> Option<&'static str> {
            Some("everything")
        }
    }

    fn check(settings: &[(&str, &str)]) -> Result<Guarantee> {
        let mut dag = Dag::new();
        dag.vertex(Vertex::new("step", supplier(|| Forgetful)));
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        let job = JobRef {
            cluster: "harbour".into(),
            name: "words".into(),
            submission: 1,
        };
        check_guarantee(&dag, &settings.collect(), &job)
    }

    #[test]
    fn a_step_that_forgets_is_refused_by_its_name_if_the_job_promises_something() {
        check(&[("checkpoints.folder", "/mnt/state")]).unwrap();
        let promises = [
            ("guarantee", "exactly-once"),
            ("checkpoints.folder", "/mnt/state"),
        ];
        let error = check(&promises).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("everything"), "{error}");
        assert!(error.to_string().contains("step"), "{error}");
        let elsewhere = ("checkpoints.folder", "here");
        let error = check(&[promises[0], elsewhere]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }

    #[test]
    fn a_folder_is_named_from_the_root_on() {
        let mut settings = BTreeMap::from([(FOLDER.to_string(), "here".to_string())]);
        make_folders_absolute(&mut settings).unwrap();
        let here = std::env::current_dir().unwrap().join("here");
        assert_eq!(settings[FOLDER], here.display().to_string());
    }

    #[test]
    fn a_bucket_is_named_as_it_is_where_it_can_be_reached() {
        let address = "s3://states/words";
        let mut settings = BTreeMap::from([(FOLDER.to_string(), address.to_string())]);
        match (make_folders_absolute(&mut settings), check_address(address)) {
            (Ok(()), Ok(())) => assert_eq!(settings[FOLDER], address),
            // Built without a client for buckets.
            (Err(error), Err(_)) => assert!(error.to_string().contains(address), "{error}"),
            wrong => panic!("{wrong:?}"),
        }
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_repeated() {
        for key in [FOLDER, FROM] {
            let address = "s3://key:secret@states/words".to_string();
            let error = make_folders_absolute(&mut BTreeMap::from([(key.to_string(), address)]));
            let error = error.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
