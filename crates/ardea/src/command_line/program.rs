//! The command line of a job program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ardea_core::Result;
use ardea_engine::Job;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use super::{
    CheckpointsArgs, ClusterArgs, Context, EXIT_CODES, GlobalOptions, ReplayOptions, SavepointArgs,
    SubmitOptions, UpgradeOptions, checkpoints, compare, exit_code, plan, replay,
    report_usage_code, run_as_process_of_cluster, savepoint, stored_states, submit, thread_count,
    upgrade, usage_error,
};
use crate::cluster::Modules;
use crate::console::{Failure, print_json, words};
use crate::job::{SubmissionSpec, own_name, program_states, work};

/// A job of Ardea. Without a command it runs in this process, and all words are the job's own
/// arguments
#[derive(Parser, Debug)]
#[command(after_help = EXIT_CODES, subcommand_required = true, max_term_width = 120)]
struct ProgramArgs {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: ProgramCommand,
}

/// The commands of a job program.
#[derive(Subcommand, Debug)]
enum ProgramCommand {
    /// Run the job in this process until it ends; Ctrl-C drains it (with a guarantee: stops it with
    /// a checkpoint), a second one stops it at once
    Run {
        /// Number of cooperative threads (default: all cores)
        #[arg(long, value_name = "N", value_parser = thread_count)]
        threads: Option<u32>,
        /// Serve the job's web page; the default address is 127.0.0.1:7401, or another free port
        #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
        ui: Option<String>,
        #[command(flatten)]
        job: JobArguments,
    },
    /// Show the job's graph, and how it would be packed for a cluster; runs nothing
    Plan {
        /// The cluster; its settings are in the table [clusters.NAME] of ardea.toml
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        #[command(flatten)]
        job: JobArguments,
    },
    /// Submit the job to a cluster
    Submit {
        #[command(flatten)]
        options: SubmitOptions,
        #[command(flatten)]
        job: JobArguments,
    },
    /// Upgrade a running job to this program, keeping its state; rolls back automatically if this
    /// program fails to start
    Upgrade {
        /// Name of the job
        #[arg(long, value_name = "JOB")]
        name: String,
        #[command(flatten)]
        options: UpgradeOptions,
        #[command(flatten)]
        job: JobArguments,
    },
    /// List the checkpoints of a job with a guarantee
    Checkpoints(CheckpointsArgs),
    /// Write a savepoint of a job with a guarantee (all its state, in a separate folder), or
    /// inspect one
    Savepoint(SavepointArgs),
    /// Check whether this program can restore the states of a savepoint or of a job
    Diff {
        /// A job of a cluster, or the folder of a savepoint or of a job
        #[arg(value_name = "OLD")]
        old: PathBuf,
        #[command(flatten)]
        place: ClusterArgs,
        #[command(flatten)]
        job: JobArguments,
    },
    /// Run recorded micro-batches of one instance again (`--set micro_batch.record=DIR`), and check
    /// that the output is the same to the byte
    Replay {
        #[command(flatten)]
        options: ReplayOptions,
        #[command(flatten)]
        job: JobArguments,
    },
    /// Print the job's state schema as JSON
    States {
        #[command(flatten)]
        job: JobArguments,
    },
}

/// The job's own arguments, which begin at the first word that is no option, or after `--`.
#[derive(clap::Args, Debug)]
struct JobArguments {
    /// The job's own arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true)]
    args: Vec<String>,
}

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
    let given = std::env::args_os().skip(1).collect();
    ExitCode::from(main_of(&ProgramFile::Executable, given, modules, describe))
}

/// The file that a container of a cluster runs as the job's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramFile {
    /// The executable of this process.
    Executable,
    /// Another file, which calls [`main_of`]: a script that an interpreter runs.
    Script {
        /// The path of the file.
        path: PathBuf,
        /// Its name in a container.
        name: String,
    },
}

/// Like [`main_with`], for a program in another file than this executable, with the words `given`
/// after its name. Returns the exit code.
pub fn main_of<J, F>(file: &ProgramFile, given: Vec<OsString>, modules: Modules, describe: F) -> u8
where
    J: Job + 'static,
    F: Fn(&[String]) -> Result<J>,
{
    let work = |start| {
        let job = describe(&words(given.iter().cloned())?)?;
        Ok(work(start, &job, &modules)?)
    };
    if let Some(outcome) = run_as_process_of_cluster(&modules, work) {
        return exit_code(outcome, false);
    }
    let args = match parse(given) {
        Ok(args) => args,
        Err(error) => return report_usage_code(&error),
    };
    let is_json = args.global.json;
    let outcome = Context::new(args.global)
        .map(|context| context.with_modules(modules))
        .and_then(|context| run(args.command, (file, &describe), &context));
    exit_code(outcome, is_json)
}

/// Returns the job's own arguments in the words after the name of a program.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if they are no command line.
pub fn job_arguments(given: Vec<OsString>) -> Result<Vec<String>> {
    let args = parse(given).map_err(|error| usage_error(&error))?;
    Ok(match args.command {
        ProgramCommand::Run { job, .. }
        | ProgramCommand::Plan { job, .. }
        | ProgramCommand::Submit { job, .. }
        | ProgramCommand::Upgrade { job, .. }
        | ProgramCommand::Diff { job, .. }
        | ProgramCommand::Replay { job, .. }
        | ProgramCommand::States { job } => job.args,
        ProgramCommand::Checkpoints(_) | ProgramCommand::Savepoint(_) => Vec::new(),
    })
}

/// Parses the words after the program's name. Without a command, all of them are the job's.
fn parse(given: Vec<OsString>) -> std::result::Result<ProgramArgs, clap::Error> {
    let command = ProgramArgs::command().bin_name(own_name());
    let first = given.first().and_then(|word| word.to_str());
    let is_command = first.is_some_and(|first| {
        let mut known = command.get_subcommands().map(clap::Command::get_name);
        matches!(first, "help" | "--help" | "-h") || known.any(|name| name == first)
    });
    let front: &[&str] = if is_command {
        &[""]
    } else {
        &["", "run", "--"]
    };
    let line = front.iter().map(OsString::from).chain(given);
    ProgramArgs::from_arg_matches(&command.try_get_matches_from(line)?)
}

/// The function that builds a job from its own arguments.
type Describe<'a, J> = dyn Fn(&[String]) -> Result<J> + 'a;

fn run<J: Job + 'static>(
    command: ProgramCommand,
    (file, describe): (&ProgramFile, &Describe<'_, J>),
    context: &Context,
) -> std::result::Result<(), Failure> {
    let packaged = |job: JobArguments| -> Result<SubmissionSpec> {
        let described = Box::new(describe(&job.args)?);
        match file {
            ProgramFile::Executable => {
                SubmissionSpec::of_this_program(described, own_name(), job.args)
            }
            ProgramFile::Script { path, name } => Ok(SubmissionSpec {
                job: described,
                name: None,
                executable: path.clone(),
                executable_name: name.clone(),
                files: Vec::new(),
                arguments: job.args,
            }),
        }
    };
    match command {
        ProgramCommand::Run { threads, ui, job } => {
            let node = context.node_config(threads)?;
            let outcome = context.run_job_with_page(describe(&job.args)?, node, ui.as_deref());
            context.interrupts.release();
            outcome
        }
        ProgramCommand::Plan { cluster, job } => {
            let place = ClusterArgs { cluster, at: None };
            plan(&packaged(job)?, &place, context)
        }
        ProgramCommand::Submit { options, job } => submit(packaged(job)?, &options, context),
        ProgramCommand::Upgrade { name, options, job } => {
            upgrade(packaged(job)?, &name, &options, context)
        }
        ProgramCommand::Checkpoints(args) => checkpoints(&args, context),
        ProgramCommand::Savepoint(args) => savepoint(&args, context),
        ProgramCommand::Diff { old, place, job } => {
            let job = describe(&job.args)?;
            let stored = stored_states(&old, &place, context)?;
            let own = program_states(&job)?;
            compare((&old, &stored), (job.name(), &own), context)
        }
        ProgramCommand::Replay { options, job } => replay(&describe(&job.args)?, &options, context),
        ProgramCommand::States { job } => {
            print_json(&json!(program_states(&describe(&job.args)?)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> std::result::Result<ProgramCommand, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        parse(words)
            .map(|args| args.command)
            .map_err(|error| error.to_string())
    }

    /// Returns the job's own arguments in a command line of `run`.
    fn job_args(line: &str) -> Vec<String> {
        match read(line) {
            Ok(ProgramCommand::Run { job, .. }) => job.args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_of_a_program_is_consistent() {
        ProgramArgs::command().debug_assert();
    }

    #[test]
    fn without_a_command_all_is_the_jobs() {
        for line in ["", "book.txt --top 3", "--json", "running", "-- --set"] {
            assert_eq!(job_args(line).join(" "), line);
        }
    }

    #[test]
    fn options_stand_before_what_is_the_jobs() {
        let line =
            "submit --cluster prod --set=a=b --file x --file y --detach --name n in.txt --json";
        let args = parse(line.split_whitespace().map(OsString::from).collect()).unwrap();
        assert!(args.global.set == ["a=b"] && !args.global.json);
        let ProgramCommand::Submit { options, job } = args.command else {
            panic!("not a submission")
        };
        assert_eq!(options.place.cluster.as_deref(), Some("prod"));
        assert_eq!(options.files, [PathBuf::from("x"), PathBuf::from("y")]);
        assert!(options.detach && options.name.as_deref() == Some("n"));
        assert_eq!(job.args, ["in.txt", "--json"]);
        assert_eq!(job_args("run --json -- --detach"), ["--detach"]);
        assert_eq!(job_args("run -v --progress -"), ["-"]);
    }

    #[test]
    fn a_wrong_option_is_refused_with_the_one_that_was_meant() {
        let error = read("submit --clutser prod").unwrap_err();
        assert!(error.contains("'--cluster'"), "{error}");
        for line in ["submit --name", "plan --detach", "run -x"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(read("submit --help").unwrap_err().contains("Usage: "));
    }

    #[test]
    fn a_savepoint_is_of_one_folder_and_goes_to_another_and_a_comparison_takes_the_jobs_arguments()
    {
        let Ok(ProgramCommand::Savepoint(args)) = read("savepoint state/words --to saved") else {
            panic!("not a savepoint")
        };
        assert_eq!(args.what, Some("state/words".into()));
        assert_eq!(args.to, Some("saved".into()));
        assert!(read("savepoint state/words").is_err() && read("savepoint --to x").is_err());
        let Ok(ProgramCommand::Diff { old, job, .. }) = read("diff --json saved book.txt --top 3")
        else {
            panic!("not a comparison")
        };
        assert_eq!(old, PathBuf::from("saved"));
        assert_eq!(job.args, ["book.txt", "--top", "3"]);
        assert!(read("diff").is_err());
        assert!(read("savepoint inspect saved --check").is_ok());
        let error = read("savepoint inspect").unwrap_err();
        assert!(error.contains("savepoint inspect <PLACE>"), "{error}");
    }

    #[test]
    fn an_upgrade_is_of_a_job_that_is_named() {
        let Ok(ProgramCommand::Upgrade { name, options, job }) =
            read("upgrade --name words --within 5s book.txt")
        else {
            panic!("not an upgrade")
        };
        assert_eq!(name, "words");
        assert_eq!(options.within, Some(std::time::Duration::from_secs(5)));
        assert_eq!(job.args, ["book.txt"]);
        assert!(read("upgrade book.txt").is_err());
    }

    #[test]
    fn checkpoints_are_those_of_one_folder() {
        let Ok(ProgramCommand::Checkpoints(args)) = read("checkpoints state/words --check") else {
            panic!("not the checkpoints")
        };
        assert!(args.check && args.what.to_str() == Some("state/words"));
        assert!(read("checkpoints").is_err() && read("checkpoints a b").is_err());
    }
}
