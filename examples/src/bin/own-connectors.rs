//! Copies a log to a ledger with a custom source and a custom sink:
//! `own-connectors LOG LEDGER`.

use std::process::ExitCode;

use ardea::prelude::*;
use ardea_examples::{own_sink, own_source};

/// The number of files of the log.
const PARTITIONS: u32 = 4;

fn main() -> ExitCode {
    ardea::main(build)
}

/// Builds the job for the folders of a log and of a ledger.
fn build(arguments: &[String]) -> Result<Pipeline> {
    let [log, ledger] = arguments else {
        let what = "two arguments are required: the folder of a log and that of a ledger";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("write for example own-connectors log/ ledger/"));
    };
    let p = Pipeline::new("own-connectors");
    p.read_from(own_source::log(log.into(), PARTITIONS).parallelism(2))
        .map(|line| line.to_uppercase())
        .write_to(own_sink::ledger(ledger.into()).parallelism(3));
    Ok(p)
}
