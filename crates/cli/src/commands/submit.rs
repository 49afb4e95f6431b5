//! `ardea submit`: brings a job to a cluster.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea::job::{Console, Prepared, Wanted, connect, submit, told};
use ardea_control::WorkerStart;
use ardea_core::{Error, ErrorCode};
use serde_json::json;

use crate::args::{SubmitArgs, Where};
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, topology_file};

/// What ardea itself is called in a package.
const PROGRAM: &str = "ardea";

/// Submits a topology, with ardea as its program; a program that is a job does it itself.
pub fn run(args: &SubmitArgs, context: &Context) -> Result<(), Failure> {
    if !topology_file::is_one(&args.what) {
        return Err(hand_over(args, context));
    }
    if let Some(first) = args.args.first() {
        return Err(Failure::usage(
            format!("a topology in a file has no arguments, such as {first:?}"),
            "its settings stand in the file",
        ));
    }
    let prepared = prepared(&args.what, &args.name, &args.files, &args.place, context)?;
    let cluster = context.cluster(&args.place)?;
    let mut console = Console::of_process(context.quiet || context.json);
    let target = connect(&cluster)?;
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

/// A topology in a file, packed for a cluster; nobody is asked.
pub fn prepared(
    file: &Path,
    name: &Option<String>,
    files: &[PathBuf],
    place: &Where,
    context: &Context,
) -> Result<Prepared, Failure> {
    let topology = topology_file::read(file)?;
    let (resolved, cluster) = context.of_cluster(place)?;
    let called = file.file_name().unwrap_or(file.as_os_str());
    let mut along = vec![file.to_path_buf()];
    along.extend_from_slice(files);
    let wanted = Wanted {
        job: &topology,
        name: name.clone(),
        executable: PathBuf::from("/proc/self/exe"),
        executable_name: PROGRAM.into(),
        files: along,
        arguments: vec![called.to_string_lossy().into_owned()],
    };
    Ok(Prepared::of(&wanted, &cluster, &resolved)?)
}

/// Is the worker of a container of such a job: of the topology in the file that is the only argument.
pub fn work(start: WorkerStart) -> Result<(), Failure> {
    let Some(file) = std::env::args_os().nth(1) else {
        return Err(Failure::usage(
            "a worker of a topology is told the file that describes it",
            "submit the job again, with the same version of ardea",
        ));
    };
    let topology = topology_file::read(Path::new(&file))?;
    Ok(ardea::job::work(start, &topology)?)
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
    let what = format!("cannot run {}", program.display());
    Error::new(ErrorCode::ReadFailed, what)
        .because(error)
        .hint("name a topology (.yaml), or a program that is a job (ardea::main)")
        .into()
}
