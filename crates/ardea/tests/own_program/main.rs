//! A program of one's own that runs its job in its own process: this program is the job as well.

mod job;
mod program;
mod runs;
mod servers;
mod stops;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// Set where this program is the job.
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
    // The options of the ordinary test programs mean nothing here.
    let wanted = if first.starts_with('-') { "" } else { &first };
    let mut failed = Vec::new();
    let all = runs::ALL.iter().chain(stops::ALL).chain(servers::ALL);
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
