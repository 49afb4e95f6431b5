//! `cargo xtask`: the project's development tasks, written in Rust so that they run wherever the
//! project builds.
//!
//! `cargo xtask tidy` checks the house rules of CONTRIBUTING.md over the whole checkout. It needs
//! only the standard library, so that it builds in a second. It is also a test (`cargo test -p
//! xtask`), so that it runs with all others. `cargo xtask test` runs test programs in parallel, and
//! `cargo xtask touched` lists changed packages.
//!
//! Exit codes: 0 if all is tidy, 1 for violations or unreadable files, 2 for an unknown command.

#![forbid(unsafe_code)]

mod test_programs;
mod tidy;
mod touched;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy                           check the house rules over the whole checkout
       cargo xtask test ARGS...                   run what `cargo test ARGS` would, programs side by side
       cargo xtask touched [--dependents] COMMIT  packages with changes since COMMIT, as `-p NAME`";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["test", ..] => test_programs::run(&repository_root(), &args[1..]),
        ["touched", base] => touched::print(&repository_root(), base, false),
        ["touched", "--dependents", base] => touched::print(&repository_root(), base, true),
        ["-h" | "--help" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    match tidy::run(&repository_root()) {
        Ok(report) => {
            eprintln!("{report}");
            if report.is_tidy() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the checkout that this program was built from.
fn repository_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
