//! The files by which the scheduler and the script in a Slurm job communicate, in the container's
//! folder.

use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OutputBounds;
use serde::{Deserialize, Serialize};

use crate::runner::folders::{ContainerFolder, JobFolder};
use crate::runner::output;
use crate::runner::records::{self, EndFile, cannot};
use crate::{LaunchPlan, RunningContainer, TUNE_MALLOC};

/// The script that keeps a container running.
const SCRIPT: &str = include_str!("container.sh");

/// A placeholder for the unknown incarnation in a worker's start parameters; the script replaces
/// it.
const ANY_INCARNATION: u64 = 0x5f5f_6c69_6665_5f5f;

/// `latest_incarnation.json`: the latest incarnation of a container, written by the script.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Incarnation {
    /// The incarnation.
    pub(super) incarnation: u64,
    /// The address of the Slurm node that the incarnation runs on.
    pub(super) host: String,
    /// The name of the Slurm node that the incarnation runs on.
    pub(super) node: String,
    /// The Slurm step of the incarnation, such as `17.3`.
    pub(super) step: String,
    /// The position in the container's standard error at which this incarnation's output starts.
    pub(super) stderr_from: u64,
}

impl Incarnation {
    /// Returns the description of the running container.
    pub(super) fn running(&self, container: ContainerId) -> RunningContainer {
        RunningContainer {
            worker: self.worker(container),
            host: self.host.clone(),
            host_name: None,
            process: format!("step {} on {}", self.step, self.node),
        }
    }

    /// Returns the worker id of this incarnation of `container`.
    pub(super) fn worker(&self, container: ContainerId) -> WorkerId {
        WorkerId {
            container,
            incarnation: self.incarnation,
        }
    }
}

/// `restart.json`: the latest requested restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Restart {
    /// The number of the scheduler call that requested the restart. An older call is ignored.
    pub(super) order: Order,
    /// The incarnation to replace; the next incarnation must be greater.
    pub(super) after: u64,
}

/// Returns the latest incarnation of a container, and its recorded end if it has ended.
pub(super) fn latest(folder: &ContainerFolder) -> Result<Option<(Incarnation, Option<EndFile>)>> {
    let Some(life) = latest_incarnation(folder)? else {
        return Ok(None);
    };
    let end = folder.end(life.incarnation)?;
    Ok(Some((life, end)))
}

/// Returns the latest incarnation of a container, if it was ever started.
pub(super) fn latest_incarnation(folder: &ContainerFolder) -> Result<Option<Incarnation>> {
    records::read(&folder.path().join("life.json"))
}

/// Returns the latest recorded end of the container's incarnations.
pub(super) fn latest_end(folder: &ContainerFolder) -> Result<Option<EndFile>> {
    records::read(&folder.path().join("end.json"))
}

/// Returns the latest requested restart.
pub(super) fn restart(folder: &ContainerFolder) -> Result<Option<Restart>> {
    records::read(&folder.path().join("restart.json"))
}

/// Records a requested restart.
pub(super) fn set_restart(folder: &ContainerFolder, restart: &Restart) -> Result<()> {
    records::write(&folder.path().join("restart.json"), restart)
}

/// Signals to the script that the next incarnation may start without delay.
pub(super) fn let_go(folder: &ContainerFolder) -> Result<()> {
    touch(&folder.path().join("go"))
}

/// Signals to the script that no further incarnation may start.
pub(super) fn stop(folder: &ContainerFolder) -> Result<()> {
    touch(&folder.path().join("stop"))
}

fn touch(path: &Path) -> Result<()> {
    std::fs::write(path, "").map_err(|error| cannot(ErrorCode::WriteFailed, "write", path, error))
}

/// Writes all files that a container needs to start, and returns the script's arguments for
/// `sbatch`.
pub(super) fn prepare(
    job: &JobFolder,
    launch: &LaunchPlan,
    request: &ContainerRequest,
    package: &Path,
    executable: &Path,
    bounds: &OutputBounds,
) -> Result<Vec<String>> {
    let folder = job.container(request.id);
    let script = job.path().join("container.sh");
    put(&script, SCRIPT)?;
    put(&job.path().join("environment.sh"), &environment(launch)?)?;
    put(&folder.path().join("start.json"), &start(launch, request)?)?;
    let output = output::start(folder.path(), *bounds).to_variable()?;
    put(&folder.path().join("output.json"), &output)?;
    crate::runner::prepare_work_folder(&folder.work(), package)?;
    records::remove(&folder.path().join("stop"))?;
    let text = |path: &Path| {
        path.to_str().map(String::from).ok_or_else(|| {
            let what = format!("{} is not UTF-8, which Slurm needs", path.display());
            Error::new(ErrorCode::InvalidConfig, what)
        })
    };
    let mut arguments = vec![text(&script)?, text(folder.path())?, text(executable)?];
    arguments.extend(launch.definition.program.arguments.clone());
    Ok(arguments)
}

/// Writes a file atomically, since a script may be reading it.
fn put(path: &PathBuf, text: &str) -> Result<()> {
    let scratch = path.with_extension(format!("{}.new", std::process::id()));
    let put = std::fs::write(&scratch, text).and_then(|()| std::fs::rename(&scratch, path));
    put.map_err(|error| cannot(ErrorCode::WriteFailed, "write", path, error))
}

/// Returns a worker's start parameters, with placeholders for its host and incarnation.
fn start(launch: &LaunchPlan, request: &ContainerRequest) -> Result<String> {
    let start = launch.worker_start(request, ANY_INCARNATION, "@HOST@");
    let text = serde_json::to_string(&start).map_err(|error| {
        Error::new(
            ErrorCode::Internal,
            "the start parameters of a worker can't be serialized",
        )
        .because(error)
    })?;
    Ok(text.replacen(&ANY_INCARNATION.to_string(), "@INCARNATION@", 1))
}

/// Returns the environment variables of all containers, in shell syntax.
fn environment(launch: &LaunchPlan) -> Result<String> {
    let mut text = String::new();
    for (name, value) in &launch.environment {
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("{name:?} can't be the name of a variable in a Slurm job"),
            ));
        }
        let value = value.replace('\'', r"'\''");
        text.push_str(&format!("export {name}='{value}'\n"));
    }
    text.push_str(TUNE_MALLOC);
    text.push('\n');
    Ok(text)
}
