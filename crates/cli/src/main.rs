//! The program `ardea`: runs jobs, shows their progress, and benchmarks them.
//!
//! `main` parses the command line and calls the command; each command is a file in `commands`. In a
//! container of a cluster the program is the worker of a topology from a file; it can also be a
//! host. In reading order:
//!
//! * `args`: the command line; `misplaced_options`: options of ardea after a job's name;
//! * `commands`: the implementations of the commands;
//! * `context`: the global options of a command;
//! * `run_job`: a job from its start to its summary, by [`ardea::console`];
//! * `cluster_connection`: a client of a cluster;
//! * `failure`: errors of the command line, and the exit codes;
//! * `stdout`, `output_file`: destinations of results.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * A reader that closes the output early (`ardea … | head`) is a normal end.
//! * The exit code distinguishes the causes of a failure: see `failure`.
#![forbid(unsafe_code)]

mod args;
mod cluster_connection;
mod commands;
mod context;
mod failure;
mod misplaced_options;
mod offline_jobs;
mod output_file;
mod run_job;
mod stdout;
mod topology_file;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use ardea::console::columns;
use clap::Parser;

use args::Args;
use context::Context;
use failure::Failure;

fn main() -> ExitCode {
    match ardea::cluster::as_host() {
        Ok(None) => {}
        Ok(Some(start)) => return ended(commands::be_host(start), false),
        Err(error) => return ended(Err(error.into()), false),
    }
    match ardea::job::as_worker() {
        Ok(None) => {}
        Ok(Some(start)) => return ended(commands::work(start), false),
        Err(error) => return ended(Err(error.into()), false),
    }
    let given: Vec<OsString> = env::args_os().collect();
    let args = Args::try_parse_from(&given).and_then(|args| {
        let moved = misplaced_options::moved_in_front(&given, &args);
        moved.map_or(Ok(args), Args::try_parse_from)
    });
    let args = match args {
        Ok(args) => args,
        Err(error) => {
            if let Some(job) = misplaced_options::help_of_a_job(&given, &error) {
                // Ignored if the reader has closed the output.
                let _ = stdout::print(&commands::usage(job));
                return ExitCode::SUCCESS;
            }
            return failure::report_usage(&misplaced_options::with_tip(error));
        }
    };
    let is_json = args.global.json;
    let outcome =
        Context::new(args.global).and_then(|context| commands::run(args.command, &context));
    ended(outcome, is_json)
}

fn ended(outcome: Result<(), Failure>, is_json: bool) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(is_json),
    }
}
