//! The program `ardea`: runs jobs, shows what they do, and measures them.
//!
//! `main` reads the command line and hands over to the command; each command is a file in `commands`. In a container of a cluster it is the
//! worker of a topology from a file; started as a host it is one. In reading order:
//!
//! * `args`: the command line; `own_options`: what of it stands behind a job's name;
//! * `commands`: what each does;
//! * `context`: what every command is given;
//! * `supervise`: a job from its start to its summary, by [`ardea::console`];
//! * `reach`: a cluster, and its answers;
//! * `failure`: errors of the command line, and the exit codes;
//! * `stdout`, `output_file`: where results go, and how numbers and tables are printed.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * A reader that has seen enough (`ardea … | head`) is a normal end.
//! * The exit code says who has to act: see `failure`.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod failure;
mod output_file;
mod own_options;
mod reach;
mod stdout;
mod supervise;
mod topology_file;
mod unattended;

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
        let moved = own_options::moved_in_front(&given, &args);
        moved.map_or(Ok(args), Args::try_parse_from)
    });
    let args = match args {
        Ok(args) => args,
        Err(error) => {
            if let Some(job) = own_options::help_of_a_job(&given, &error) {
                // A reader that has gone wants no help.
                let _ = stdout::print(&commands::usage(job));
                return ExitCode::SUCCESS;
            }
            return failure::report_usage(&own_options::with_tip(error));
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
