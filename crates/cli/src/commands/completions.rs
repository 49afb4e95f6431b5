//! `ardea completions`: a script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;
use crate::stdout;

/// Prints the script that completes ardea's commands and options in `shell`.
pub fn run(shell: Shell) -> Result<(), Failure> {
    // Made in memory first: clap_complete panics when its writer fails, as a closed pipe would.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "ardea", &mut script);
    stdout::print(&String::from_utf8_lossy(&script))
}
