//! `ardea submit`: brings a job to a cluster.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea::cluster::Modules;
use ardea::job::{Console, Prepared, Wanted, connect, submit, told};
use ardea_bench::cluster::BENCH_ARGUMENT;
use ardea_config::{Resolved, nearest};
use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode};
use ardea_engine::Job;
use ardea_rest::ClusterSettings;
use serde_json::json;

use crate::args::{SubmitArgs, Where};
use crate::commands::jobs;
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, topology_file};

/// What ardea itself is called in a package.
const PROGRAM: &str = "ardea";

/// Submits a topology or a job that comes with ardea, with ardea as its program; a program that is a job does it itself.
pub fn run(args: &SubmitArgs, context: &Context) -> Result<(), Failure> {
    let Some(job) = Own::find(&args.what, &args.args)? else {
        return Err(hand_over(args, context));
    };
    let prepared = job.prepared(&args.name, &args.files, &args.place, context)?;
    let cluster = context.cluster(&args.place)?;
    let mut console = Console::of_process(context.quiet || context.json);
    let target = connect(&cluster, &prepared.job().name, &Modules::builtin())?;
    let patience = (!args.detach).then_some(cluster.patience);
    let submitted = submit(&prepared, &*target, patience, &mut |step| {
        console.tell(&step)
    })?;
    console.clear();
    match context.json {
        true => stdout::print_json(&json!(submitted)),
        false if context.quiet => Ok(()),
        false => stdout::print(&told(&submitted)),
    }
}

/// A job whose program is ardea itself.
pub struct Own {
    job: Box<dyn Job>,
    /// What goes along beside what the user names.
    file: Option<PathBuf>,
    arguments: Vec<String>,
}

impl Own {
    /// The topology in this file, or the job of this name that comes with ardea; none if it is neither.
    pub fn find(what: &Path, rest: &[String]) -> Result<Option<Self>, Failure> {
        if topology_file::is_one(what) {
            if let Some(first) = rest.first() {
                return Err(Failure::usage(
                    format!("a topology in a file has no arguments, such as {first:?}"),
                    "its settings stand in the file",
                ));
            }
            let called = what.file_name().unwrap_or(what.as_os_str());
            return Ok(Some(Own {
                job: Box::new(topology_file::read(what)?),
                file: Some(what.to_path_buf()),
                arguments: vec![called.to_string_lossy().into_owned()],
            }));
        }
        let name = what.to_string_lossy();
        if what.exists() || !ardea_examples::jobs().iter().any(|job| job.name == name) {
            return Ok(None);
        }
        let pipeline = (jobs::find(&name)?.build)(rest)?;
        let words = std::iter::once(name.to_string()).chain(rest.iter().cloned());
        Ok(Some(Own {
            job: Box::new(pipeline),
            file: None,
            arguments: words.collect(),
        }))
    }

    /// The job, packed for a cluster; nobody is asked.
    pub fn prepared(
        &self,
        name: &Option<String>,
        files: &[PathBuf],
        place: &Where,
        context: &Context,
    ) -> Result<Prepared, Failure> {
        let (resolved, cluster) = context.of_cluster(place)?;
        self.prepared_with(name, files, &resolved, &cluster)
    }

    /// The same with these settings.
    pub fn prepared_with(
        &self,
        name: &Option<String>,
        files: &[PathBuf],
        resolved: &Resolved,
        cluster: &ClusterSettings,
    ) -> Result<Prepared, Failure> {
        let along = self.file.iter().chain(files);
        let wanted = Wanted {
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

/// Is the worker of a container of such a job, of which the command line has the file or name, and the arguments.
pub fn work(start: WorkerStart) -> Result<(), Failure> {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let own = match words.split_first() {
        Some((what, [told])) if what == BENCH_ARGUMENT => {
            return Ok(ardea_bench::cluster::work(start, told)?);
        }
        Some((what, rest)) => Own::find(Path::new(what), rest)?,
        None => None,
    };
    let Some(own) = own else {
        return Err(Failure::usage(
            "this is the worker of no job that ardea knows",
            "submit the job again, with the same version of ardea",
        ));
    };
    Ok(ardea::job::work(start, &*own.job, &Modules::builtin())?)
}

/// Becomes the program, told to submit itself; comes back only if that failed.
fn hand_over(args: &SubmitArgs, context: &Context) -> Failure {
    let mut options = shared_options(&args.place, context);
    options.extend(args.name.iter().map(|name| format!("--name={name}")));
    let files = args.files.iter();
    options.extend(files.map(|path| format!("--file={}", path.display())));
    options.extend(args.detach.then(|| "--detach".to_string()));
    become_program(&args.what, "submit", &options, &args.args)
}

/// What every command of a program that is a job is told.
pub fn shared_options(place: &Where, context: &Context) -> Vec<String> {
    let mut options = context.settings_options();
    options.extend(place.cluster.iter().map(|name| format!("--cluster={name}")));
    options.extend(place.at.iter().map(|base| format!("--at={base}")));
    options.extend(context.json.then(|| "--json".to_string()));
    options.extend(context.quiet.then(|| "--quiet".to_string()));
    options
}

/// Becomes a program that is a job; comes back only if that failed.
pub fn become_program(
    program: &Path,
    command: &str,
    options: &[String],
    args: &[String],
) -> Failure {
    // A name without a folder means the file here, and not one of the system's programs.
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
    const WHAT_MAY_BE: &str = "name a topology (.yaml), a job that comes with ardea (`ardea jobs`), or a program that is a job (ardea::main)";
    let is_missing = error.kind() == io::ErrorKind::NotFound && !here.exists();
    let what = match is_missing {
        true => format!("there is no {}", program.display()),
        false => format!(
            "{} is no topology by its name, which would end in .yaml or .yml, and can't be run as a program",
            program.display()
        ),
    };
    let meant = meant(program, Path::new(".")).filter(|_| is_missing);
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

/// What somebody probably meant by the name of no file: a job that comes with ardea, or a topology in this folder.
fn meant(name: &Path, folder: &Path) -> Option<String> {
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
        let meant = |name: &str| meant(Path::new(name), folder.path());
        assert_eq!(meant("wordcuont").as_deref(), Some("wordcount"));
        assert_eq!(meant("sensornet").as_deref(), Some("sensor-net.yaml"));
        assert_eq!(meant("something-else-entirely"), None);
    }
}
