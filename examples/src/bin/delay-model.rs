//! A model of delays, trained and used by a stream: `delay-model -- RATE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::delay_model::build)
}
