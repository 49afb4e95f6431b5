//! The delays of each carrier by day, computed in columns: `daily-delays FLIGHTS RESULTS`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::daily_delays::build)
}
