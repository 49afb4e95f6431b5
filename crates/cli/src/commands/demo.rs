//! `ardea demo`: the flights of 2013, live in the terminal.

use ardea::command_line::Context;
use ardea::console::Failure;

use crate::args::DemoArgs;
use crate::commands::run::named;

/// The name of the demo's example job.
pub const JOB: &str = "flights";

/// Runs the example with the demo's options.
pub fn run(args: DemoArgs, context: &Context) -> Result<(), Failure> {
    let speed = args
        .speed
        .into_iter()
        .flat_map(|speed| ["--speed".to_string(), speed]);
    let job_args: Vec<String> = speed.chain(args.args).collect();
    named(JOB, &job_args, args.threads, context)
}
