//! `ardea submit`: submits a job to a cluster.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea::cluster::Modules;
use ardea::job::{Console, Prepared, SubmissionSpec, connect, submission_text, submit};
#[cfg(feature = "bench")]
use ardea_bench::cluster::BENCH_ARGUMENT;
use ardea_config::{Resolved, nearest};
use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode};
use ardea_engine::Job;
use ardea_rest::ClusterSettings;
use serde_json::json;

use crate::args::{ClusterArgs, SubmitArgs};
use crate::commands::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, topology_file};

/// The file name of ardea in a package.
const PROGRAM: &str = "ardea";

/// Submits a topology or a job that comes with ardea, with ardea as its program. A job program
/// submits itself.
pub fn run(args: &SubmitArgs, context: &Context) -> Result<(), Failure> {
    let Some(job) = BuiltinJob::find(&args.what, &args.args)? else {
        return Err(delegate(args, context));
    };
    let prepared = job.prepared(&args.name, &args.files, &args.place, context)?;
    let cluster = context.cluster(&args.place)?;
    let mut console = Console::of_process(context.quiet || context.json);
    let target = connect(&cluster, &prepared.job().name, &Modules::builtin())?;
    let patience = (!args.detach).then_some(cluster.patience);
    let submitted = submit(&prepared, &*target, patience, &mut |step| {
        console.show_step(&step)
    })?;
    console.clear();
    match context.json {
        true => stdout::print_json(&json!(submitted)),
        false if context.quiet => Ok(()),
        false => stdout::print(&submission_text(&submitted)),
    }
}

/// A job whose program is ardea itself.
pub struct BuiltinJob {
    job: Box<dyn Job>,
    /// The topology file, which is shipped besides the user's files.
    file: Option<PathBuf>,
    arguments: Vec<String>,
}

impl BuiltinJob {
    /// Finds the topology in this file, or the job of this name that comes with ardea; `None` if it
    /// is neither.
    pub fn find(what: &Path, rest: &[String]) -> Result<Option<Self>, Failure> {
        if topology_file::is_one(what) {
            if let Some(first) = rest.first() {
                return Err(Failure::usage(
                    format!("a topology in a file has no arguments, such as {first:?}"),
                    "its settings are in the file",
                ));
            }
            let called = what.file_name().unwrap_or(what.as_os_str());
            return Ok(Some(BuiltinJob {
                job: Box::new(topology_file::read(what)?),
                file: Some(what.to_path_buf()),
                arguments: vec![called.to_string_lossy().into_owned()],
            }));
        }
        let name = what.to_string_lossy();
        if what.exists() || !ardea_examples::jobs().iter().any(|job| job.name == name) {
            return Ok(None);
        }
        let pipeline = (examples::find(&name)?.build)(rest)?;
        let words = std::iter::once(name.to_string()).chain(rest.iter().cloned());
        Ok(Some(BuiltinJob {
            job: Box::new(pipeline),
            file: None,
            arguments: words.collect(),
        }))
    }

    /// Packs the job for a cluster, without contacting one.
    pub fn prepared(
        &self,
        name: &Option<String>,
        files: &[PathBuf],
        place: &ClusterArgs,
        context: &Context,
    ) -> Result<Prepared, Failure> {
        let (resolved, cluster) = context.of_cluster(place)?;
        self.prepared_with(name, files, &resolved, &cluster)
    }

    /// Like [`prepared`](Self::prepared), with the settings `resolved` and `cluster`.
    pub fn prepared_with(
        &self,
        name: &Option<String>,
        files: &[PathBuf],
        resolved: &Resolved,
        cluster: &ClusterSettings,
    ) -> Result<Prepared, Failure> {
        let along = self.file.iter().chain(files);
        let wanted = SubmissionSpec {
            job: &*self.job,
            name: name.clone(),
            executable: PathBuf::from("/proc/self/exe"),
            executable_name: PROGRAM.into(),
            files: along.cloned().collect(),
            arguments: self.arguments.clone(),
        };
        let modules = Modules::builtin();
        Ok(Prepared::of(&wanted, cluster, resolved, &modules)?)
    }
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
        Some((what, rest)) => BuiltinJob::find(Path::new(what), rest)?,
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

/// Replaces this process by the program, which submits itself; returns only on failure.
fn delegate(args: &SubmitArgs, context: &Context) -> Failure {
    let mut options = shared_options(&args.place, context);
    options.extend(args.name.iter().map(|name| format!("--name={name}")));
    let files = args.files.iter();
    options.extend(files.map(|path| format!("--file={}", path.display())));
    options.extend(args.detach.then(|| "--detach".to_string()));
    become_program(&args.what, "submit", &options, &args.args)
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
