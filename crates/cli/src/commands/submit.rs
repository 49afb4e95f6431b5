//! `ardea submit` and `ardea upgrade`: jobs that come with ardea, topologies, job programs and
//! scripts of Python.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea::cluster::Modules;
use ardea::command_line::{self, ClusterArgs, Context};
use ardea::console::Failure;
use ardea::job::SubmissionSpec;
#[cfg(feature = "bench")]
use ardea_bench::cluster::BENCH_ARGUMENT;
use ardea_config::nearest;
use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode};

use crate::args::{PythonArgs, SubmitArgs, UpgradeArgs};
use crate::commands::{examples, python_job};
use crate::topology_file;

/// The file name of ardea in a package.
const PROGRAM: &str = "ardea";

/// Submits a topology or a job that comes with ardea, with ardea as its program. A job program
/// submits itself.
pub fn run(args: &SubmitArgs, context: &Context) -> Result<(), Failure> {
    let given = &args.options;
    python_job::check(&args.what, &args.python)?;
    if let Some(job) = builtin_job(&args.what, &args.args)? {
        return command_line::submit(job, given, context);
    }
    let mut options = shared_options(&given.place, context);
    options.extend(given.name.iter().map(|name| format!("--name={name}")));
    options.extend(file_options(&given.files));
    options.extend(given.detach.then(|| "--detach".to_string()));
    Err(submit_itself(
        (&args.what, &args.python),
        "submit",
        &options,
        &args.args,
    ))
}

/// Upgrades to a job that comes with ardea, with ardea as its program. A job program upgrades by
/// itself.
pub fn upgrade(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    let given = &args.options;
    python_job::check(&args.what, &args.python)?;
    if let Some(job) = builtin_job(&args.what, &args.args)? {
        return command_line::upgrade(job, &args.job, given, context);
    }
    let mut options = shared_options(&given.place, context);
    options.push(format!("--name={}", args.job));
    options.extend(file_options(&given.files));
    let within = given.within.iter();
    options.extend(within.map(|within| format!("--within={}ms", within.as_millis())));
    options.extend(given.detach.then(|| "--detach".to_string()));
    Err(submit_itself(
        (&args.what, &args.python),
        "upgrade",
        &options,
        &args.args,
    ))
}

/// Replaces this process by a job program, or by the interpreter of a script; returns only on
/// failure.
fn submit_itself(
    (what, python): (&Path, &PythonArgs),
    command: &str,
    options: &[String],
    args: &[String],
) -> Failure {
    match python_job::is_one(what) {
        true => python_job::become_interpreter(what, python, command, options, args),
        false => become_program(what, command, options, args),
    }
}

fn file_options(files: &[PathBuf]) -> impl Iterator<Item = String> {
    let files = files.iter();
    files.map(|path| format!("--file={}", path.display()))
}

/// Finds the topology in the file `what`, or the job of this name that comes with ardea; `None` if
/// it is neither.
pub fn builtin_job(what: &Path, rest: &[String]) -> Result<Option<SubmissionSpec>, Failure> {
    if topology_file::is_one(what) {
        if let Some(first) = rest.first() {
            return Err(Failure::usage(
                format!("a topology in a file has no arguments, such as {first:?}"),
                "its settings are in the file",
            ));
        }
        let called = what.file_name().unwrap_or(what.as_os_str());
        let words = vec![called.to_string_lossy().into_owned()];
        let topology = Box::new(topology_file::read(what)?);
        let mut job = SubmissionSpec::of_this_program(topology, PROGRAM, words)?;
        job.files.push(what.to_path_buf());
        return Ok(Some(job));
    }
    let name = what.to_string_lossy();
    if what.exists() || !ardea_examples::jobs().iter().any(|job| job.name == name) {
        return Ok(None);
    }
    let pipeline = Box::new((examples::find(&name)?.build)(rest)?);
    let words = std::iter::once(name.to_string()).chain(rest.iter().cloned());
    let job = SubmissionSpec::of_this_program(pipeline, PROGRAM, words.collect())?;
    Ok(Some(job))
}

/// Runs the worker of a container of a builtin job. The command line has the job's file or name,
/// and its arguments.
pub fn work(start: WorkerStart) -> Result<(), Failure> {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let own = match words.split_first() {
        #[cfg(feature = "bench")]
        Some((what, [told])) if what == BENCH_ARGUMENT => {
            return Ok(ardea_bench::cluster::work(start, told)?);
        }
        Some((what, rest)) => builtin_job(Path::new(what), rest)?,
        None => None,
    };
    let Some(own) = own else {
        return Err(Failure::usage(
            "this worker was started for a job that ardea does not know",
            "submit the job again, with the same version of ardea",
        ));
    };
    Ok(ardea::job::work(start, &*own.job, &Modules::builtin())?)
}

/// Returns the options for every command of a job program.
pub fn shared_options(place: &ClusterArgs, context: &Context) -> Vec<String> {
    let mut options = context.settings_options();
    options.extend(place.cluster.iter().map(|name| format!("--cluster={name}")));
    options.extend(place.at.iter().map(|base| format!("--at={base}")));
    options.extend(context.json.then(|| "--json".to_string()));
    options.extend(context.quiet.then(|| "--quiet".to_string()));
    options
}

/// Replaces this process by a job program; returns only on failure.
pub fn become_program(
    program: &Path,
    command: &str,
    options: &[String],
    args: &[String],
) -> Failure {
    // A name without a folder means a file in the current folder, and not one in `PATH`.
    let here = match program.components().count() {
        1 => Path::new(".").join(program),
        _ => program.to_path_buf(),
    };
    let error = Command::new(&here)
        .arg(command)
        .args(options)
        .arg("--")
        .args(args)
        .exec();
    const WHAT_MAY_BE: &str = "name a topology (.yaml), a job that comes with ardea (`ardea examples`), or a job program (ardea::main)";
    let is_missing = error.kind() == io::ErrorKind::NotFound && !here.exists();
    let what = match is_missing {
        true => format!("there is no {}", program.display()),
        false => format!(
            "{} is no topology by its name (.yaml or .yml), and can't be run as a program",
            program.display()
        ),
    };
    let meant = nearest_name(program, Path::new(".")).filter(|_| is_missing);
    let hint = match meant {
        Some(meant) => format!("did you mean {meant}? {WHAT_MAY_BE}"),
        None => WHAT_MAY_BE.to_string(),
    };
    let failed = Error::new(ErrorCode::ReadFailed, what);
    match is_missing {
        true => failed.hint(hint).into(),
        false => failed.because(error).hint(hint).into(),
    }
}

/// Guesses the job or the topology that was meant by the name of a missing file.
fn nearest_name(name: &Path, folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| PathBuf::from(entry.file_name()));
    let topologies: Vec<PathBuf> = files.filter(|file| topology_file::is_one(file)).collect();
    let stems = topologies.iter().filter_map(|file| {
        let stem = file.file_stem()?.to_str()?;
        Some((stem, file.display().to_string()))
    });
    let jobs = ardea_examples::jobs().iter();
    let known = jobs
        .map(|job| (job.name, job.name.to_string()))
        .chain(stems);
    let known: Vec<(&str, String)> = known.collect();
    let name = name.to_str()?;
    let found = nearest(name, known.iter().map(|(name, _)| *name))?;
    let mut known = known.iter();
    let (_, shown) = known.find(|(name, _)| *name == found)?;
    Some(shown.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_job_or_topology_is_told_the_nearest_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sensor-net.yaml"), "").unwrap();
        let meant = |name: &str| nearest_name(Path::new(name), folder.path());
        assert_eq!(meant("wordcuont").as_deref(), Some("wordcount"));
        assert_eq!(meant("sensornet").as_deref(), Some("sensor-net.yaml"));
        assert_eq!(meant("something-else-entirely"), None);
    }
}
