//! A job that is to be submitted, and is known to fit.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Component, Path, PathBuf};

use ardea_config::Resolved;
use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
use ardea_coordination::packing::{JobDemand, PackingPlan, ResourceManagers};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, Parallelisms};
use ardea_rest::{ClusterSettings, Plans, SubmitRequest, check_job_name, is_of_the_cluster};
use ardea_scheduler::SLURM_OPTIONS;

use crate::cluster::Modules;

use super::check::check_settings;
use super::demand::demand;
use super::keeps::{check_keeps, name_folders, tell_states};
use super::stays::check_stays;

/// What is to be submitted.
pub struct Wanted<'a> {
    /// The job.
    pub job: &'a dyn Job,
    /// Its name on the cluster, if that is another one.
    pub name: Option<String>,
    /// The program that is to run in its containers.
    pub executable: PathBuf,
    /// What it is called there.
    pub executable_name: String,
    /// Files and folders that go along; they come to lie beside the program.
    pub files: Vec<PathBuf>,
    /// The arguments of the program.
    pub arguments: Vec<String>,
}

/// A job that is to be submitted to a cluster, and is known to fit.
#[derive(Debug)]
pub struct Prepared {
    /// What it asks for.
    pub demand: JobDemand,
    /// How it was packed here; the cluster packs it again.
    pub plan: PackingPlan,
    /// The files of its package: where they are, and what they are called within it.
    pub files: Vec<(PathBuf, String)>,
    /// What is submitted; the package is not known yet.
    request: SubmitRequest,
    /// What is to be said of arguments that name a file here, and nothing in a container.
    strays: Vec<String>,
}

impl Prepared {
    /// Describes the job, packs it, and looks whether its files are there.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if its graph can't run, or not so spread; [`ErrorCode::ResourcesImpossible`] if it doesn't fit, with the numbers;
    /// [`ErrorCode::InvalidConfig`] for a wrong name, policy or setting; [`ErrorCode::ReadFailed`] if a file isn't there.
    pub fn of(
        wanted: &Wanted<'_>,
        cluster: &ClusterSettings,
        settings: &Resolved,
        modules: &Modules,
    ) -> Result<Self> {
        let name = wanted.name.as_deref().unwrap_or(wanted.job.name());
        check_job_name(name)?;
        check_settings(settings, cluster, modules)?;
        let files = files(wanted)?;
        let program = wanted.job.program(&Parallelisms::new())?;
        let mut demand = demand(name, &program.dag, cluster.instance)?;
        let of_the_job = of_the_job(settings)?;
        tell_states(&program.dag, &of_the_job, &mut demand)?;
        let request = SubmitRequest {
            definition: JobDefinition {
                job: JobRef {
                    cluster: cluster.name.clone(),
                    name: name.to_string(),
                    submission: random(),
                },
                program: ProgramRef {
                    package: String::new(),
                    executable: wanted.executable_name.clone(),
                    arguments: wanted.arguments.clone(),
                },
                packing: cluster.packing.clone(),
                scheduler: cluster.scheduler.clone(),
                settings: of_the_job,
                version: env!("CARGO_PKG_VERSION").into(),
            },
            demand: demand.clone(),
            packing: cluster.packed_within.clone(),
        };
        cluster.instances.check(&demand, None)?;
        let plan = pack(&request, &modules.managers)?;
        check_stays(&program.dag, &plan)?;
        let definition = &request.definition;
        check_keeps(&program.dag, &definition.settings, &definition.job)?;
        Ok(Prepared {
            demand,
            plan,
            strays: strays(&wanted.arguments, &files),
            files,
            request,
        })
    }

    /// The job, as one submission of it.
    pub fn job(&self) -> &JobRef {
        &self.request.definition.job
    }

    /// That it gets fewer containers than were asked for, if it does: none is without an instance.
    pub fn notice(&self) -> Option<String> {
        let asked = self.request.packing.containers?.get() as usize;
        let (packed, instances) = (self.plan.containers().len(), self.plan.instance_count());
        (packed < asked).then(|| {
            format!(
                "job.containers={asked} asks for more than there is to run: {instances} instances are in {packed} containers"
            )
        })
    }

    /// That arguments name files here which its containers don't have, or not by that name: each runs in a folder of its own.
    pub fn notice_of_strays(&self) -> Option<String> {
        (!self.strays.is_empty()).then(|| self.strays.join("; "))
    }

    /// Its plans, as they would be.
    pub fn plans(&self) -> Plans {
        Plans::of(&self.demand, Some((1, self.plan.clone())), &[])
    }

    /// What is submitted to the cluster of this name, once its package has this SHA-256.
    pub fn request(&self, cluster: &str, package: String) -> SubmitRequest {
        let mut request = self.request.clone();
        request.definition.job.cluster = cluster.to_string();
        request.definition.program.package = package;
        request
    }
}

/// Packs it as the cluster will.
fn pack(request: &SubmitRequest, managers: &ResourceManagers) -> Result<PackingPlan> {
    managers
        .get(&request.definition.packing)?
        .pack(&request.demand, &request.packing)
}

/// What its processes have to know of the settings, and its scheduler.
fn of_the_job(settings: &Resolved) -> Result<BTreeMap<String, String>> {
    let mut written = settings.written();
    written.retain(|key, _| key == SLURM_OPTIONS || !is_of_the_cluster(key));
    name_folders(&mut written)?;
    Ok(written)
}

/// The files of the package, each under its own name.
fn files(wanted: &Wanted<'_>) -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![(wanted.executable.clone(), wanted.executable_name.clone())];
    for path in &wanted.files {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else {
            let what = format!("{} is the name of no file", path.display());
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("name a file or a folder that is to go along"));
        };
        std::fs::metadata(path).map_err(|error| {
            let what = format!("cannot read {}, which is to go along", path.display());
            Error::new(ErrorCode::ReadFailed, what)
                .because(error)
                .hint("check the path and its permissions")
        })?;
        if files.iter().any(|(_, other)| *other == name) {
            let what = format!("two files that are to go along are called {name:?}");
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("they come to lie in one folder: rename one, or put them into folders"));
        }
        files.push((path.clone(), name));
    }
    Ok(files)
}

/// Of arguments, and of what stands behind a `=` in them, that are relative paths of files here: what they should be in a container. Each runs in
/// a folder of its own, in which is what goes along.
fn strays(arguments: &[String], files: &[(PathBuf, String)]) -> Vec<String> {
    let mut told = Vec::new();
    for argument in arguments {
        let value = argument
            .split_once('=')
            .map_or(&**argument, |(_, value)| value);
        let path = Path::new(value);
        let mut parts = path.components().filter(|part| *part != Component::CurDir);
        let first = parts.next().map(Component::as_os_str);
        let is_there = files.iter().any(|(_, name)| first == Some(name.as_ref()));
        if path.is_absolute() || !path.is_file() || is_there {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let goes_along = files.iter().any(|(from, _)| from == path);
        let what = match goes_along {
            true => format!("{value} is called {name} where containers run"),
            false if name == value => format!(
                "{value} is not where containers run: name it from the root on, or take it along (--file {value})"
            ),
            false => format!(
                "{value} is not where containers run: name it from the root on, or take it along (--file {value}) and name it {name}"
            ),
        };
        if !told.contains(&what) {
            told.push(what);
        }
    }
    told
}

/// A number that no other submission has; std's seeds are random.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u128(
        std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_nanos()),
    );
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_is_a_file_here_and_not_in_a_container_is_told() {
        // Tests run in the folder of their crate.
        let along = ["src", "tests/state_on_disk.rs"].map(|path| {
            let path = PathBuf::from(path);
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (path, name)
        });
        let told = |argument: &str| strays(&[argument.to_string()], &along).pop();
        for fine in [
            "src/lib.rs",
            "./src/lib.rs",
            "state_on_disk.rs",
            "none.txt",
            "/etc/hosts",
            ".",
            "src",
        ] {
            assert_eq!(told(fine), None, "{fine}");
        }
        let told = |argument: &str| told(argument).unwrap();
        assert!(told("--in=Cargo.toml").ends_with("(--file Cargo.toml)"));
        assert!(
            told("tests/state_on_disk.rs")
                .ends_with("is called state_on_disk.rs where containers run")
        );
        assert!(
            told("tests/on_cluster/main.rs")
                .ends_with("(--file tests/on_cluster/main.rs) and name it main.rs")
        );
        let twice = ["Cargo.toml", "Cargo.toml"].map(String::from);
        assert_eq!(strays(&twice, &[]).len(), 1);
    }
}
