//! A job that is packed and ready to be submitted.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Component, Path, PathBuf};

use ardea_config::Resolved;
use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
use ardea_coordination::packing::{JobDemand, PackingConfig, PackingPlan, PackingPolicies};
use ardea_coordination::placement::{PlacementConfig, TrafficRates};
use ardea_core::{Dag, Error, ErrorCode, Guarantee, Result};
use ardea_engine::{ExecutionMode, Job, ModeChoice, NodeConfig, Parallelisms};
use ardea_rest::{ClusterSettings, Plans, SubmitRequest, check_job_name, is_cluster_setting};
use ardea_scheduler::SLURM_OPTIONS;
use ardea_worker::check_isolation;

use crate::cluster::Modules;

use super::check::check_settings;
use super::demand::demand;
use super::guarantee_check::{add_states, check_guarantee, make_folders_absolute};
use super::locality_check::check_locality;

/// The setting of the execution mode.
const MODE: &str = "mode";

/// The setting of the declared rates of edges.
const RATES: &str = "placement.rates";

/// A job to submit, with its program, files and arguments.
pub struct SubmissionSpec {
    /// The job.
    pub job: Box<dyn Job>,
    /// Its name on the cluster, if it differs from the job's own.
    pub name: Option<String>,
    /// The program to run in its containers.
    pub executable: PathBuf,
    /// The program's file name in a container.
    pub executable_name: String,
    /// Files and folders to ship; they are placed beside the program.
    pub files: Vec<PathBuf>,
    /// The arguments of the program.
    pub arguments: Vec<String>,
}

impl SubmissionSpec {
    /// Returns a job whose program is this one, under the file name `executable_name`.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if this program's own file can't be found.
    pub fn of_this_program(
        job: Box<dyn Job>,
        executable_name: impl Into<String>,
        arguments: Vec<String>,
    ) -> Result<Self> {
        Ok(SubmissionSpec {
            job,
            name: None,
            executable: own_program()?,
            executable_name: executable_name.into(),
            files: Vec::new(),
            arguments,
        })
    }
}

/// Chooses the execution mode of the job; `None` if it is the default.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if the job cannot run on a cluster in the configured mode.
fn choose_mode(dag: &Dag, settings: &Resolved, guarantee: Guarantee) -> Result<Option<ModeChoice>> {
    // The schema of a benchmark may lack the settings of nodes.
    if settings.value(MODE).is_none() {
        return Ok(None);
    }
    let choice = ModeChoice::of_part(dag, &NodeConfig::from_settings(settings)?, guarantee)?;
    Ok(Some(choice).filter(|choice| choice.wanted != ExecutionMode::Continuous))
}

/// Returns the reasons for the mode of a job, if the mode may not be the expected one.
fn notice_of_mode(mode: &ModeChoice) -> Option<String> {
    let reasons = mode.objections.join("; ");
    (!reasons.is_empty()).then(|| format!("mode={}: {reasons}", mode.name()))
}

/// Returns the path of this program, even if its file has been replaced.
fn own_program() -> Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        return Ok(own);
    }
    std::env::current_exe().map_err(|error| {
        Error::new(ErrorCode::ReadFailed, "cannot find this program's own file")
            .because(error)
            .hint("mount /proc")
    })
}

/// Returns the file name of this program.
pub fn own_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_ref().and_then(|program| program.file_name());
    let name = name.map(|name| name.to_string_lossy().into_owned());
    // Linux adds this suffix if the file was replaced while the program runs.
    let name = name.map(|name| name.trim_end_matches(" (deleted)").to_string());
    name.unwrap_or_else(|| "job".into())
}

/// A job that is packed and ready to be submitted to a cluster.
#[derive(Debug)]
pub struct Prepared {
    /// Its resource demand.
    pub demand: JobDemand,
    /// The packing plan computed here; the cluster packs it again.
    pub plan: PackingPlan,
    /// The files of its package: local paths, and names within the package.
    pub files: Vec<(PathBuf, String)>,
    /// The request, without the package's hash.
    request: SubmitRequest,
    /// Notices about arguments that name a file here, but no file in a container.
    strays: Vec<String>,
    /// A notice about the execution mode.
    mode: Option<String>,
}

impl Prepared {
    /// Builds the job's graph, packs it, and checks that its files exist.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if its graph can't run, or not on several containers;
    /// [`ErrorCode::ResourcesImpossible`] if the job doesn't fit into containers, with the numbers;
    /// [`ErrorCode::InvalidConfig`] for a wrong name, policy or setting; [`ErrorCode::ReadFailed`]
    /// if a file can't be read.
    pub fn of(
        wanted: &SubmissionSpec,
        cluster: &ClusterSettings,
        settings: &Resolved,
        modules: &Modules,
    ) -> Result<Self> {
        let name = wanted.name.as_deref().unwrap_or(wanted.job.name());
        check_job_name(name)?;
        check_settings(settings, cluster, modules)?;
        let files = files(wanted)?;
        let program = wanted.job.program(&Parallelisms::new())?;
        check_isolation(&*wanted.job, &program)?;
        let mut demand = demand(name, &program.dag, cluster.instance)?;
        let of_the_job = of_the_job(settings)?;
        add_states(&program.dag, &of_the_job, &mut demand)?;
        let mut request = SubmitRequest {
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
            packing: placement(settings, &cluster.packing_config, &mut demand)?,
            demand: demand.clone(),
        };
        cluster.instances.check(&demand, None)?;
        let plan = pack(&request, &modules.managers)?;
        check_locality(&program.dag, &plan)?;
        let definition = &request.definition;
        let guarantee = check_guarantee(&program.dag, &definition.settings, &definition.job)?;
        let mode = choose_mode(&program.dag, settings, guarantee)?;
        if let Some(mode) = &mode {
            let chosen = mode.name().to_string();
            request.definition.settings.insert(MODE.into(), chosen);
        }
        Ok(Prepared {
            demand,
            plan,
            mode: mode.as_ref().and_then(notice_of_mode),
            strays: strays(&wanted.arguments, &files),
            files,
            request,
        })
    }

    /// The job's cluster, its name, and the number of this submission.
    pub fn job(&self) -> &JobRef {
        &self.request.definition.job
    }

    /// Returns a notice if the job gets fewer containers than requested, because each needs an
    /// instance, and one about its execution mode.
    pub fn notice(&self) -> Option<String> {
        let asked = self
            .request
            .packing
            .containers
            .map(|asked| asked.get() as usize);
        let (packed, instances) = (self.plan.containers().len(), self.plan.instance_count());
        let containers = asked.filter(|asked| packed < *asked).map(|asked| {
            format!(
                "job.containers={asked} is more than needed: {instances} instances are in {packed} containers"
            )
        });
        let notices = [containers, self.mode.clone()];
        let notices: Vec<String> = notices.into_iter().flatten().collect();
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Returns a notice if arguments name files here that containers don't have under that name:
    /// each container runs in a folder of its own.
    pub fn notice_of_strays(&self) -> Option<String> {
        (!self.strays.is_empty()).then(|| self.strays.join("; "))
    }

    /// Returns the plans that the job would have.
    pub fn plans(&self) -> Plans {
        Plans::of(&self.demand, Some((1, self.plan.clone())), &[])
    }

    /// Returns the request to the cluster named `cluster`, for the package with the SHA-256
    /// `package`.
    pub fn request(&self, cluster: &str, package: String) -> SubmitRequest {
        let mut request = self.request.clone();
        request.definition.job.cluster = cluster.to_string();
        request.definition.program.package = package;
        request
    }
}

/// Writes the declared rates into the demand. Returns the packing configuration with the options of
/// placement by traffic.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if a declared rate is invalid, or of an edge that the job lacks.
fn placement(
    settings: &Resolved,
    packing: &PackingConfig,
    demand: &mut JobDemand,
) -> Result<PackingConfig> {
    let mut packing = packing.clone();
    // The schema of a benchmark may lack the settings of placement.
    if settings.value(RATES).is_some() {
        let config = PlacementConfig::from_settings(settings)?;
        TrafficRates::declare(&config.rates, demand).map_err(|why| {
            let hint = "give records a second for edges of the job, such as lines>words=20000";
            settings.refuse(RATES, why).hint(hint)
        })?;
        config.write_into(&mut packing);
    }
    Ok(packing)
}

/// Packs the job as the cluster will.
fn pack(request: &SubmitRequest, managers: &PackingPolicies) -> Result<PackingPlan> {
    managers
        .get(&request.definition.packing)?
        .pack(&request.demand, &request.packing)
}

/// Returns the settings for the job's processes and its scheduler.
fn of_the_job(settings: &Resolved) -> Result<BTreeMap<String, String>> {
    let mut written = settings.non_defaults();
    written.retain(|key, _| key == SLURM_OPTIONS || !is_cluster_setting(key));
    make_folders_absolute(&mut written)?;
    Ok(written)
}

/// Returns the files of the package with their names in it, which must differ.
fn files(wanted: &SubmissionSpec) -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![(wanted.executable.clone(), wanted.executable_name.clone())];
    for path in &wanted.files {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else {
            let what = format!("{} does not name a file", path.display());
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("name a file or a folder to ship")
            );
        };
        std::fs::metadata(path).map_err(|error| {
            let what = format!(
                "cannot read {}, which is to be shipped with the job",
                path.display()
            );
            Error::new(ErrorCode::ReadFailed, what)
                .because(error)
                .hint("check the path and its permissions")
        })?;
        if files.iter().any(|(_, other)| *other == name) {
            let what = format!("two shipped files have the same name {name:?}");
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("all are placed in one folder: rename one, or put them into folders"));
        }
        files.push((path.clone(), name));
    }
    Ok(files)
}

/// Returns notices for arguments (or their part after `=`) that are relative paths of files here,
/// with the path to use in a container. Each container runs in a folder that holds the shipped
/// files.
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
                "{value} does not exist where containers run: use an absolute path, or ship it (--file {value})"
            ),
            false => format!(
                "{value} does not exist where containers run: use an absolute path, or ship it (--file {value}) and name it {name}"
            ),
        };
        if !told.contains(&what) {
            told.push(what);
        }
    }
    told
}

/// Returns a random number for a submission, from std's random hasher seeds.
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
