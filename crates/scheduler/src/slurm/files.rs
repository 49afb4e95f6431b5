//! What the scheduler and the script in a Slurm job tell each other, in the container's folder.

use std::path::{Path, PathBuf};

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OutputBounds;
use serde::{Deserialize, Serialize};

use crate::runner::folders::{ContainerFolder, JobFolder};
use crate::runner::output;
use crate::runner::records::{self, EndFile, cannot};
use crate::{KEEPS_MEMORY, LaunchPlan, RunningContainer};

/// The script that keeps a container running.
const SCRIPT: &str = include_str!("container.sh");

/// Stands for the number of a life in what a worker is told, as long as it is not known.
const ANY_INCARNATION: u64 = 0x5f5f_6c69_6665_5f5f;

/// `life.json`: the latest life of a container, written by the script.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Life {
    /// Which one.
    pub(super) incarnation: u64,
    /// The address of its node.
    pub(super) host: String,
    /// The name of its node.
    pub(super) node: String,
    /// Its step: `17.3`.
    pub(super) step: String,
    /// The position in its standard error at which it begins.
    pub(super) stderr_from: u64,
}

impl Life {
    /// As it is told.
    pub(super) fn running(&self, container: ContainerId) -> RunningContainer {
        RunningContainer {
            worker: self.worker(container),
            host: self.host.clone(),
            host_name: None,
            process: format!("step {} on {}", self.step, self.node),
        }
    }

    /// Which life of that container.
    pub(super) fn worker(&self, container: ContainerId) -> WorkerId {
        WorkerId {
            container,
            incarnation: self.incarnation,
        }
    }
}

/// `restart.json`: the latest restart that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Restart {
    /// By this call.
    pub(super) order: Order,
    /// A life after this one is what was asked for.
    pub(super) after: u64,
}

/// The latest life, and how it has ended if it has.
pub(super) fn latest(folder: &ContainerFolder) -> Result<Option<(Life, Option<EndFile>)>> {
    let Some(life) = life(folder)? else {
        return Ok(None);
    };
    let end = folder.end(life.incarnation)?;
    Ok(Some((life, end)))
}

/// The latest life.
pub(super) fn life(folder: &ContainerFolder) -> Result<Option<Life>> {
    records::read(&folder.path().join("life.json"))
}

/// How the latest life that has ended did so.
pub(super) fn latest_end(folder: &ContainerFolder) -> Result<Option<EndFile>> {
    records::read(&folder.path().join("end.json"))
}

/// The latest restart that was asked for.
pub(super) fn restart(folder: &ContainerFolder) -> Result<Option<Restart>> {
    records::read(&folder.path().join("restart.json"))
}

/// Says that a restart was asked for.
pub(super) fn set_restart(folder: &ContainerFolder, restart: &Restart) -> Result<()> {
    records::write(&folder.path().join("restart.json"), restart)
}

/// Says that the next life need not wait.
pub(super) fn let_go(folder: &ContainerFolder) -> Result<()> {
    touch(&folder.path().join("go"))
}

/// Says that there shall be no further life.
pub(super) fn stop(folder: &ContainerFolder) -> Result<()> {
    touch(&folder.path().join("stop"))
}

fn touch(path: &Path) -> Result<()> {
    std::fs::write(path, "").map_err(|error| cannot(ErrorCode::WriteFailed, "write", path, error))
}

/// Writes all that a container needs to be started, and returns what is passed to `sbatch`.
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
    crate::runner::furnish(&folder.work(), package)?;
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

/// Writes a file as a whole: a script may just be reading it.
fn put(path: &PathBuf, text: &str) -> Result<()> {
    let scratch = path.with_extension(format!("{}.new", std::process::id()));
    let put = std::fs::write(&scratch, text).and_then(|()| std::fs::rename(&scratch, path));
    put.map_err(|error| cannot(ErrorCode::WriteFailed, "write", path, error))
}

/// What the worker is told, with gaps for its host and the number of its life.
fn start(launch: &LaunchPlan, request: &ContainerRequest) -> Result<String> {
    let start = launch.worker_start(request, ANY_INCARNATION, "@HOST@");
    let text = serde_json::to_string(&start).map_err(|error| {
        Error::new(
            ErrorCode::Internal,
            "what a worker is told can't be written",
        )
        .because(error)
    })?;
    Ok(text.replacen(&ANY_INCARNATION.to_string(), "@INCARNATION@", 1))
}

/// The variables of all containers, for a shell.
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
    text.push_str(KEEPS_MEMORY);
    text.push('\n');
    Ok(text)
}
