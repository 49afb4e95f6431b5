//! The program `ardea`: runs jobs, shows their progress, and benchmarks them.
//!
//! `main` parses the command line and calls the command; each command is a file in `commands`. In a
//! container of a cluster the program is the worker of a topology from a file; it can also be a
//! host. In reading order:
//!
//! * `args`: the command line, beside [`ardea::command_line`]; `misplaced_options`: options of
//!   ardea
//!   after a job's name;
//! * `commands`: the implementations of the commands;
//! * `topology_file`: topologies from files;
//! * `stdout`, `output_file`: destinations of results.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * A reader that closes the output early (`ardea … | head`) is a normal end.
//! * The exit code distinguishes the causes of a failure.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod misplaced_options;
mod output_file;
mod stdout;
mod topology_file;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use ardea::cluster::Modules;
use ardea::command_line::{Context, exit, report_usage, run_as_process_of_cluster};
use ardea::console::columns;
use clap::Parser;

use args::Args;

fn main() -> ExitCode {
    let modules = Modules::builtin().with_commands();
    if let Some(outcome) = run_as_process_of_cluster(&modules, commands::work) {
        return exit(outcome, false);
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
            return report_usage(&misplaced_options::with_tip(error));
        }
    };
    let is_json = args.global.json;
    let outcome = Context::new(args.global).and_then(|context| {
        let context = context.with_modules(modules);
        commands::run(args.command, &context)
    });
    exit(outcome, is_json)
}
