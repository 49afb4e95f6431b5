//! The program.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ardea_api::ClusterSettings;
use ardea_core::settings::parse_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::Job;
use ardea_recovery::{Embedded, KeptStates, SAVING, Survival, savepoint};
use ardea_savepoint::Dropping;

use super::arguments::{Arguments, Command, Options, help};
use super::console::{Console, told};
use super::embedded::{self, End};
use super::failure::{exit_code, told_as_json, told_as_text};
use super::kept::KeptJob;
use super::kept_settings::KeptSettings;
use super::prepare::{Prepared, Wanted};
use super::profile::{read_settings, read_settings_over, schema};
use super::saved::{Comparison, SavedJob, remembered};
use super::submit::submit;
use super::target::connect;
use super::upgrade::{UPGRADES_WITHIN, told_of_upgrade, upgrade};
use super::words::words;
use super::worker::{as_worker, work};
use crate::cluster::{Modules, as_host, be_host};

/// The exit code of a job that a first Ctrl-C brought to an early end.
const ENDED_EARLY: u8 = 4;

/// The whole program: reads the command line, and runs, shows or submits the job that `describe` makes of the arguments which are the
/// job's own. In a container of a cluster it is the worker of that job. See [`ardea::job`](crate::job) for the commands.
///
/// `describe` is called in every process of the job, with the same arguments, and has to describe the same job.
pub fn main<J, F>(describe: F) -> ExitCode
where
    J: Job + Embedded,
    F: Fn(&[String]) -> Result<J>,
{
    main_with(Modules::builtin(), describe)
}

/// As [`main`], with parts of one's own beside those that come with Ardea: packing policies, schedulers, metrics sinks, transports, package
/// stores.
/// Settings choose them by name, as in `--set cluster.packing=by-rack`.
pub fn main_with<J, F>(modules: Modules, describe: F) -> ExitCode
where
    J: Job + Embedded,
    F: Fn(&[String]) -> Result<J>,
{
    let mut is_json = false;
    let given = words(std::env::args_os().skip(1));
    let outcome = given.and_then(|given| run(&given, modules, &describe, &mut is_json));
    let (error, code) = match outcome {
        Ok(End::Completed) => return ExitCode::SUCCESS,
        Ok(End::Early) => return ExitCode::from(ENDED_EARLY),
        // Whoever read the output has seen enough: a normal end.
        Err(error) if error.code() == ErrorCode::OutputClosed => return ExitCode::SUCCESS,
        Err(error) => {
            let code = exit_code(&error);
            (error, code)
        }
    };
    let text = match is_json {
        true => format!("{}\n", told_as_json(&error, code)),
        false => told_as_text(&error),
    };
    // If standard error is closed there is nobody to tell.
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}

fn run<J: Job + Embedded>(
    given: &[String],
    modules: Modules,
    describe: &dyn Fn(&[String]) -> Result<J>,
    is_json: &mut bool,
) -> Result<End> {
    if let Some(start) = as_host()? {
        return be_host(start, modules).map(|()| End::Completed);
    }
    if let Some(start) = as_worker()? {
        return work(start, &describe(given)?, &modules).map(|()| End::Completed);
    }
    let Arguments {
        command,
        options,
        of_job,
    } = Arguments::read(given)?;
    *is_json = options.json;
    if command == Command::Help {
        return print(&help(&own_name())).map(|()| End::Completed);
    }
    let (mut resolved, node, mut cluster) = read_settings(options.config.as_deref(), &options.set)?;
    match &command {
        Command::Snapshots(folder) => {
            return snapshots(folder, &options).map(|()| End::Completed);
        }
        Command::Savepoint(folder) => {
            return save(folder, &options).map(|()| End::Completed);
        }
        _ => {}
    }
    let job = describe(&of_job)?;
    match &command {
        Command::States => return print_json(&remembered(&job)?).map(|()| End::Completed),
        Command::Diff(old) => {
            let dropping = Dropping::listed(resolved.text("recovery.drop")?);
            return compare(old, &job, &dropping, &options).map(|()| End::Completed);
        }
        _ => {}
    }
    if command == Command::Run {
        return match Survival::from_settings(&resolved)? {
            Some(survival) => embedded::run_surviving(&job, node, &survival),
            None => embedded::run(&job, node),
        };
    }
    cluster.api = options.at.clone().or(cluster.api);
    let mut kept = Vec::new();
    if command == Command::Upgrade {
        let name = options.name.as_deref().unwrap_or(job.name());
        let target = connect(&cluster, name, &modules)?;
        let of_job = KeptSettings::of(&*target, name, &schema())?;
        let config = options.config.as_deref();
        (resolved, _, cluster) = read_settings_over(Some(of_job.file()), config, &options.set)?;
        cluster.api = options.at.clone().or(cluster.api);
        kept = of_job.counting(&resolved);
    }
    let wanted = Wanted {
        job: &job,
        name: options.name.clone(),
        executable: own_program()?,
        executable_name: own_name(),
        files: options.files.clone(),
        arguments: of_job,
    };
    let prepared = Prepared::of(&wanted, &cluster, &resolved, &modules)?;
    match command {
        Command::Plan => plan(&prepared, &options)?,
        Command::Upgrade => follow(&prepared, kept, &cluster, &options, &modules)?,
        _ => bring(&prepared, &cluster, &options, &modules)?,
    }
    Ok(End::Completed)
}

fn snapshots(folder: &Path, options: &Options) -> Result<()> {
    let kept = KeptJob::look(folder, options.check)?;
    match options.json {
        true => print_json(&kept.to_json())?,
        false => print(&kept.to_string())?,
    }
    kept.damage().map_or(Ok(()), Err)
}

fn save(folder: &Path, options: &Options) -> Result<()> {
    let to = options.to.clone().unwrap_or_default();
    let saved = SavedJob::written(&to, savepoint(folder, &to, SAVING)?);
    match options.json {
        true => print_json(&saved.to_json()),
        false if options.quiet => Ok(()),
        false => print(&saved.to_string()),
    }
}

fn compare(old: &Path, job: &dyn Embedded, dropping: &Dropping, options: &Options) -> Result<()> {
    let (kept, own) = (KeptStates::look(old)?, remembered(job)?);
    let place = old.display().to_string();
    let found = Comparison::of((&place, &kept), (job.job_name(), &own), dropping);
    match options.json {
        true => print_json(&found.to_json())?,
        false => print(&found.to_string())?,
    }
    found.check()
}

fn plan(prepared: &Prepared, options: &Options) -> Result<()> {
    let plans = prepared.plans();
    match options.json {
        true => print_json(&plans),
        false => print(&plans.to_string()),
    }
}

fn bring(
    prepared: &Prepared,
    cluster: &ClusterSettings,
    options: &Options,
    modules: &Modules,
) -> Result<()> {
    let mut console = Console::of_process(options.quiet || options.json);
    let target = connect(cluster, &prepared.job().name, modules)?;
    let patience = (!options.detach).then_some(cluster.patience);
    let submitted = submit(prepared, &*target, patience, &mut |step| {
        console.tell(&step)
    })?;
    console.clear();
    match options.json {
        true => print_json(&submitted),
        false if options.quiet => Ok(()),
        false => print(&told(&submitted)),
    }
}

fn follow(
    prepared: &Prepared,
    kept: Vec<String>,
    cluster: &ClusterSettings,
    options: &Options,
    modules: &Modules,
) -> Result<()> {
    let patience = match &options.within {
        Some(text) => parse_duration(text).map_err(|why| {
            let what = format!("--within {text} is no time");
            Error::new(ErrorCode::InvalidConfig, what).because(why.to_string())
        })?,
        None => UPGRADES_WITHIN,
    };
    let mut console = Console::of_process(options.quiet || options.json);
    let target = connect(cluster, &prepared.job().name, modules)?;
    let waits = !options.detach;
    let mut upgraded = upgrade(prepared, &*target, patience, waits, &mut |step| {
        console.tell(&step)
    })?;
    upgraded.kept_settings = kept;
    console.clear();
    match options.json {
        true => print_json(&upgraded),
        false if options.quiet => Ok(()),
        false => print(&told_of_upgrade(&upgraded)),
    }
}

/// What the program is called.
fn own_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_ref().and_then(|program| program.file_name());
    let name = name.map(|name| name.to_string_lossy().into_owned());
    // What is replaced by a newer build while it runs is called so by Linux.
    let name = name.map(|name| name.trim_end_matches(" (deleted)").to_string());
    name.unwrap_or_else(|| "job".into())
}

/// Where the program itself is, also when its file has been replaced since.
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

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| {
        Error::new(ErrorCode::Internal, "the result is no JSON")
            .because(error)
            .hint("please report this")
    })?;
    print(&format!("{text}\n"))
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(ErrorCode::OutputClosed, "nobody reads"),
        _ => Error::new(ErrorCode::WriteFailed, "cannot write to standard output").because(error),
    })
}
