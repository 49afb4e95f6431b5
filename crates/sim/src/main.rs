//! The simulator: runs many seeds or a single one, or measures the start of a large job.
//!
//! ```text
//! ardea-sim                        # seeds 0 to 999
//! ardea-sim --seed 4711 --log      # one seed, with its log
//! ardea-sim --large 3              # 1,000 containers under faults, seeds 0 to 2
//! ardea-sim --epochs               # the checkpoints of a job, seeds 0 to 999
//! ardea-sim --lives                # jobs with a guarantee on a cluster, seeds 0 to 999
//! ardea-sim --grid                 # the members of a grid, seeds 0 to 999
//! ardea-sim --resets               # healthy jobs on slow machines with broken connections
//! ardea-sim --start                # the cost of planning and starting 1,000 containers
//! ```

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write;
use std::ops::AddAssign;
use std::process::ExitCode;
use std::time::Duration;

use ardea_sim::{
    Failure, run_attempts, run_epochs, run_faults, run_grid, run_large, run_resets, run_start,
};
use clap::Parser;

/// Prints a line; ignores a closed output.
macro_rules! say {
    ($($text:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($text)*);
    };
}

/// Simulates clusters under faults, from a seed, with the state machines of the control plane.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Run only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The number of seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Print the log before a failure.
    #[arg(long)]
    log: bool,
    /// Run a large job under faults, with this number of seeds.
    #[arg(long, value_name = "SEEDS")]
    large: Option<u64>,
    /// Run the checkpoints of small jobs under faults.
    #[arg(long)]
    epochs: bool,
    /// Run small jobs with a guarantee on a cluster under faults, updates and upgrades.
    #[arg(long)]
    lives: bool,
    /// Run the members of small grids under faults.
    #[arg(long)]
    grid: bool,
    /// Run small jobs with a guarantee on slow machines with broken connections; no attempt may
    /// fail.
    #[arg(long)]
    resets: bool,
    /// Measure the cost of planning and starting a large job.
    #[arg(long)]
    start: bool,
    /// The number of containers of a large job.
    #[arg(long, default_value_t = 1000)]
    containers: u32,
    /// The number of instances of a large job.
    #[arg(long, default_value_t = 20_000)]
    instances: u32,
    /// The number of faults of a large job.
    #[arg(long, default_value_t = 20)]
    faults: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Arguments {
        containers,
        instances,
        faults,
        ..
    } = arguments;
    if arguments.start {
        start(&arguments)
    } else if arguments.epochs {
        run_seeds(&arguments, "--epochs ", run_epochs)
    } else if arguments.lives {
        run_seeds(&arguments, "--lives ", run_attempts)
    } else if arguments.resets {
        run_seeds(&arguments, "--resets ", run_resets)
    } else if arguments.grid {
        run_seeds(&arguments, "--grid ", run_grid)
    } else if arguments.large.is_some() {
        let run = |seed| run_large(seed, containers, instances, faults);
        run_seeds(&arguments, "--large 1 ", run)
    } else {
        run_seeds(&arguments, "", run_faults)
    }
}

/// Runs the selected seeds, and prints the sum of their statistics or the first failure.
fn run_seeds<R: AddAssign + Default + Display>(
    arguments: &Arguments,
    which: &str,
    run: impl Fn(u64) -> Result<R, Box<Failure>>,
) -> ExitCode {
    let (first, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.from, arguments.large.unwrap_or(arguments.seeds)),
    };
    let mut total = R::default();
    for seed in first..first.saturating_add(count) {
        match run(seed) {
            Ok(report) => total += report,
            Err(failure) => return print_failure(&failure, arguments.log, which),
        }
    }
    say!("{count} seeds from {first}: all well, {total}");
    ExitCode::SUCCESS
}

fn print_failure(failure: &Failure, log: bool, which: &str) -> ExitCode {
    if log {
        failure.log.iter().for_each(|line| eprintln!("{line}"));
    }
    let Failure { seed, at, what, .. } = failure;
    let at = at.as_secs_f64();
    eprintln!("seed {seed}, after {at:.3} s: {what}");
    eprintln!("again, with what happened: ardea-sim {which}--seed {seed} --log");
    ExitCode::FAILURE
}

fn start(arguments: &Arguments) -> ExitCode {
    let Arguments {
        containers,
        instances,
        ..
    } = *arguments;
    for encodes in [false, true] {
        let seed = arguments.seed.unwrap_or(0);
        match run_start(seed, containers, instances, encodes) {
            Err(failure) => return print_failure(&failure, arguments.log, "--start "),
            Ok(report) => {
                let watch = report.stopwatch;
                say!(
                    "{containers} containers, {instances} instances: running after {:.2} s simulated; master: {:.1} ms cpu in \
                     {} events, {:.2} ms the longest; {} messages to workers",
                    report.running_after.as_secs_f64(),
                    millis(watch.in_masters),
                    watch.events,
                    millis(watch.longest),
                    watch.messages,
                );
                if encodes {
                    say!(
                        "messages encoded as JSON, shared ones once: {:.1} ms cpu, {} bytes",
                        millis(watch.encoding),
                        watch.bytes
                    );
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
