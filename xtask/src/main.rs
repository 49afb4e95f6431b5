//! `cargo xtask`: the project's own chores, written in Rust so that they run wherever the project builds.
//!
//! There is one, `cargo xtask tidy`, which checks the house rules of CONTRIBUTING.md over the whole
//! checkout. It needs nothing but the standard library, so that it builds in a second, and it is also a
//! test (`cargo test -p xtask`), so that nobody has to remember it.
//!
//! Exit codes: 0 all is tidy, 1 something is not (or could not be read), 2 the command is not known.

#![forbid(unsafe_code)]

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy    check the house rules over the whole checkout";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["-h" | "--help" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        _ => {
            eprintln!(
                "xtask: `{}` is not a chore that is known\n{USAGE}",
                args.join(" ")
            );
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

/// The checkout that this program was built from.
fn repository_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
