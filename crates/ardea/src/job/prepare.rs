//! A job that is to be submitted, and is known to fit.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use ardea_api::{ClusterSettings, Plans, SubmitRequest, check_job_name, is_of_the_cluster};
use ardea_control::{JobDefinition, JobRef, ProgramRef};
use ardea_core::settings::Resolved;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, Parallelisms};
use ardea_packing::{JobDemand, PackingPlan, ResourceManagers};
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
    /// Arguments that name something here, and nothing in a container.
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

    /// That arguments name files here which its containers don't have, if they do: each runs in a folder of its own.
    pub fn notice_of_strays(&self) -> Option<String> {
        let (first, rest) = self.strays.split_first()?;
        let (are, them) = match rest.is_empty() {
            true => ("is", "it"),
            false => ("are", "them"),
        };
        Some(format!(
            "{} {are} here, and not where containers run: name {them} from the root on, or take {them} along (--file {first})",
            self.strays.join(", ")
        ))
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

/// Of the arguments, and what stands behind a `=` in them, those that are relative paths of what is here and does not go along.
fn strays(arguments: &[String], files: &[(PathBuf, String)]) -> Vec<String> {
    let values = arguments.iter().map(|argument| {
        argument
            .split_once('=')
            .map_or(argument.as_str(), |(_, value)| value)
    });
    let is_stray = |value: &&str| {
        let path = Path::new(value);
        let first = path.components().next();
        let goes_along = |(_, name): &(PathBuf, String)| {
            first.is_some_and(|first| first.as_os_str() == name.as_str())
        };
        path.is_relative() && path.exists() && !files.iter().any(goes_along)
    };
    values.filter(is_stray).map(str::to_string).collect()
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
    fn an_argument_that_is_a_file_here_and_does_not_go_along_is_a_stray() {
        // Tests run in the folder of their crate.
        let along = [(PathBuf::from("src"), "src".to_string())];
        let arguments = [
            "Cargo.toml",
            "src/lib.rs",
            "none.txt",
            "/etc/hosts",
            "--in=Cargo.toml",
        ];
        let found = strays(&arguments.map(String::from), &along);
        assert_eq!(found, ["Cargo.toml", "Cargo.toml"]);
    }
}
