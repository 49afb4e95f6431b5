//! The program of the demo, built without the parts of Ardea for clusters.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use ardea::command_line::{Context, EXIT_CODES, GlobalOptions, exit, report_usage};
use ardea_demo::DemoArgs;
use clap::Parser;

/// Replay the 2013 New York flights and show their delays live in the terminal; q stops it, as
/// Ctrl-C does
#[derive(Parser, Debug)]
#[command(name = "ardea-demo", version, after_help = EXIT_CODES, max_term_width = 120)]
struct Args {
    #[command(flatten)]
    demo: DemoArgs,
    #[command(flatten)]
    global: GlobalOptions,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report_usage(&error),
    };
    let is_json = args.global.json;
    let outcome =
        Context::new(args.global).and_then(|context| ardea_demo::run(&args.demo, &context));
    exit(outcome, is_json)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_of_the_job_and_of_the_program_come_in_any_order() {
        let line = "ardea-demo --quiet --data x --threads 2 --speed max --set slice=1ms --json";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        assert!(args.global.quiet && args.global.json && args.global.set == ["slice=1ms"]);
        assert!(args.demo.threads == Some(2) && args.demo.flights.speed.is_infinite());
        assert!(args.demo.flights.data.is_some());
    }
}
