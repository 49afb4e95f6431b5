//! Tests of a program that runs its job in its own process; this test program is also the job.

mod job;
mod program;
mod replays;
mod runs;
mod servers;
mod stops;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// The environment variable that makes this program the job.
const IS_JOB: &str = "OWN_PROGRAM_IS_JOB";

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if std::env::var_os(IS_JOB).is_some() {
        return ardea::main(job::describe);
    }
    let first = std::env::args().nth(1).unwrap_or_default();
    if first == "--list" {
        return ExitCode::SUCCESS;
    }
    // The options of the standard test harness are ignored.
    let wanted = if first.starts_with('-') { "" } else { &first };
    let mut failed = Vec::new();
    let all = runs::ALL
        .iter()
        .chain(replays::ALL)
        .chain(stops::ALL)
        .chain(servers::ALL);
    for (name, test) in all.filter(|(name, _)| name.contains(wanted)) {
        match catch_unwind(test) {
            Ok(()) => println!("test {name} ... ok"),
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(*name);
            }
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nfailures:\n    {}\n", failed.join("\n    "));
    ExitCode::from(101)
}
