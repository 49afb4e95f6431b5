//! The `main` function of job programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ardea_checkpoint::local::{SAVEPOINT_TIMEOUT, SavedStateSchema, savepoint};
use ardea_checkpoint::savepoint::AllowedDrops;
use ardea_config::parse_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::Job;
use ardea_rest::ClusterSettings;

use super::arguments::{Arguments, Command, Options, help};
use super::checkpoint_report::CheckpointListing;
use super::config_sources::{read_settings, read_settings_over, schema};
use super::console::{Console, submission_text};
use super::prepare::{Prepared, SubmissionSpec};
use super::retained_settings::RetainedSettings;
use super::savepoint_report::{Comparison, SavepointReport, program_states};
use super::submit::submit;
use super::target::connect;
use super::upgrade::{UPGRADE_TIMEOUT, upgrade, upgrade_text};
use super::words::words;
use super::worker::{as_worker, work};
use crate::cluster::{Modules, as_host, be_host};
use crate::console::{Failure, RunSettings, Supervisor, print, print_json};

/// Runs the whole program: parses the command line, and runs, shows or submits the job that
/// `describe` builds from the job's own arguments. In a container of a cluster it is the worker of
/// that job. See [`ardea::job`](crate::job) for the commands.
///
/// `describe` is called in every process of the job, with the same arguments, and must return the
/// same job.
pub fn main<J, F>(describe: F) -> ExitCode
where
    J: Job + 'static,
    F: Fn(&[String]) -> Result<J>,
{
    main_with(Modules::builtin(), describe)
}

/// Like [`main`], with additional modules: packing policies, schedulers, metrics sinks, transports,
/// package stores. Settings select them by name, as in `--set cluster.packing=by-rack`.
pub fn main_with<J, F>(modules: Modules, describe: F) -> ExitCode
where
    J: Job + 'static,
    F: Fn(&[String]) -> Result<J>,
{
    let mut is_json = false;
    let given = words(std::env::args_os().skip(1)).map_err(Failure::from);
    match given.and_then(|given| run(&given, modules, &describe, &mut is_json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(is_json),
    }
}

fn run<J: Job + 'static>(
    given: &[String],
    modules: Modules,
    describe: &dyn Fn(&[String]) -> Result<J>,
    is_json: &mut bool,
) -> Result<(), Failure> {
    if let Some(start) = as_host()? {
        return Ok(be_host(start, modules)?);
    }
    if let Some(start) = as_worker()? {
        return Ok(work(start, &describe(given)?, &modules)?);
    }
    let Arguments {
        command,
        options,
        job_args: of_job,
    } = Arguments::read(given)?;
    *is_json = options.json;
    if command == Command::Help {
        return print(&help(&own_name()));
    }
    let (mut resolved, node, mut cluster) = read_settings(options.config.as_deref(), &options.set)?;
    match &command {
        Command::Checkpoints(folder) => return checkpoints(folder, &options),
        Command::Savepoint(folder) => return save(folder, &options),
        Command::Inspect(folder) => {
            return print_savepoint(&SavepointReport::read(folder, options.check)?, &options);
        }
        _ => {}
    }
    let job = describe(&of_job)?;
    match &command {
        Command::States => return print_as_json(&program_states(&job)?),
        Command::Diff(old) => {
            let dropping = AllowedDrops::listed(resolved.text("recovery.drop")?);
            return compare(old, &job, &dropping, &options);
        }
        Command::Run => {
            let settings = RunSettings::of(&resolved, node, &modules)?;
            return run_here(job, settings, &options);
        }
        _ => {}
    }
    cluster.api = options.at.clone().or(cluster.api);
    let mut kept = Vec::new();
    if command == Command::Upgrade {
        let name = options.name.as_deref().unwrap_or(job.name());
        let target = connect(&cluster, name, &modules)?;
        let of_job = RetainedSettings::of(&*target, name, &schema())?;
        let config = options.config.as_deref();
        (resolved, _, cluster) = read_settings_over(Some(of_job.file()), config, &options.set)?;
        cluster.api = options.at.clone().or(cluster.api);
        kept = of_job.effective(&resolved);
    }
    let wanted = SubmissionSpec {
        job: &job,
        name: options.name.clone(),
        executable: own_program()?,
        executable_name: own_name(),
        files: options.files.clone(),
        arguments: of_job,
    };
    let prepared = Prepared::of(&wanted, &cluster, &resolved, &modules)?;
    match command {
        Command::Plan => plan(&prepared, &options),
        Command::Upgrade => upgrade_job(&prepared, kept, &cluster, &options, &modules),
        _ => submit_job(&prepared, &cluster, &options, &modules),
    }
}

/// Runs the job in this process, which handles interrupts until the job has ended.
fn run_here<J: Job + 'static>(
    job: J,
    settings: RunSettings,
    options: &Options,
) -> Result<(), Failure> {
    let supervisor = Supervisor {
        json: options.json,
        quiet: options.quiet,
        verbose: options.verbose,
        progress: options.progress,
        ..Supervisor::listen()?
    };
    let outcome = supervisor.run(Arc::new(job), settings);
    supervisor.interrupts.release();
    outcome
}

fn checkpoints(folder: &Path, options: &Options) -> Result<(), Failure> {
    let kept = CheckpointListing::look(folder, options.check)?;
    match options.json {
        true => print_json(&kept.to_json())?,
        false => print(&kept.to_string())?,
    }
    kept.damage().map_or(Ok(()), |error| Err(error.into()))
}

fn save(folder: &Path, options: &Options) -> Result<(), Failure> {
    let to = options.to.clone().unwrap_or_default();
    let saved = SavepointReport::written(&to, savepoint(folder, &to, SAVEPOINT_TIMEOUT)?);
    match options.json {
        false if options.quiet => Ok(()),
        _ => print_savepoint(&saved, options),
    }
}

fn print_savepoint(saved: &SavepointReport, options: &Options) -> Result<(), Failure> {
    match options.json {
        true => print_json(&saved.to_json()),
        false => print(&saved.to_string()),
    }
}

fn compare(
    old: &Path,
    job: &dyn Job,
    dropping: &AllowedDrops,
    options: &Options,
) -> Result<(), Failure> {
    let (kept, own) = (SavedStateSchema::look(old)?, program_states(job)?);
    let place = old.display().to_string();
    let found = Comparison::of((&place, &kept), (job.name(), &own), dropping);
    match options.json {
        true => print_json(&found.to_json())?,
        false => print(&found.to_string())?,
    }
    Ok(found.check()?)
}

fn plan(prepared: &Prepared, options: &Options) -> Result<(), Failure> {
    let plans = prepared.plans();
    match options.json {
        true => print_as_json(&plans),
        false => print(&plans.to_string()),
    }
}

fn submit_job(
    prepared: &Prepared,
    cluster: &ClusterSettings,
    options: &Options,
    modules: &Modules,
) -> Result<(), Failure> {
    let mut console = Console::of_process(options.quiet || options.json);
    let target = connect(cluster, &prepared.job().name, modules)?;
    let patience = (!options.detach).then_some(cluster.patience);
    let submitted = submit(prepared, &*target, patience, &mut |step| {
        console.show_step(&step)
    })?;
    console.clear();
    match options.json {
        true => print_as_json(&submitted),
        false if options.quiet => Ok(()),
        false => print(&submission_text(&submitted)),
    }
}

fn upgrade_job(
    prepared: &Prepared,
    kept: Vec<String>,
    cluster: &ClusterSettings,
    options: &Options,
    modules: &Modules,
) -> Result<(), Failure> {
    let patience = match &options.within {
        Some(text) => parse_duration(text).map_err(|why| {
            let what = format!("--within {text} is not a duration");
            Error::new(ErrorCode::InvalidConfig, what).because(why.to_string())
        })?,
        None => UPGRADE_TIMEOUT,
    };
    let mut console = Console::of_process(options.quiet || options.json);
    let target = connect(cluster, &prepared.job().name, modules)?;
    let waits = !options.detach;
    let mut upgraded = upgrade(prepared, &*target, patience, waits, &mut |step| {
        console.show_step(&step)
    })?;
    upgraded.kept_settings = kept;
    console.clear();
    match options.json {
        true => print_as_json(&upgraded),
        false if options.quiet => Ok(()),
        false => print(&upgrade_text(&upgraded)),
    }
}

/// Returns the file name of this program.
fn own_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_ref().and_then(|program| program.file_name());
    let name = name.map(|name| name.to_string_lossy().into_owned());
    // Linux adds this suffix if the file was replaced while the program runs.
    let name = name.map(|name| name.trim_end_matches(" (deleted)").to_string());
    name.unwrap_or_else(|| "job".into())
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

fn print_as_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let value = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorCode::Internal, "the result is no JSON")
            .because(error)
            .hint("please report this")
    })?;
    print_json(&value)
}
