//! `ardea nexmark run`: computes a query over a file of events.

use std::path::{Path, PathBuf};

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_nexmark::queries::{self, QueryRun};

use crate::args::QueryArgs;
use crate::output_file::FileBackup;

/// The file name of standard input.
const STANDARD_INPUT: &str = "/dev/stdin";

/// Runs the query as a job. Restores the previous output file if no record of the input was good.
pub fn run(args: QueryArgs, context: &Context) -> Result<(), Failure> {
    let config = context.node_config(args.threads)?;
    let earlier = FileBackup::at(&args.output);
    let pipeline = queries::build(&QueryRun {
        query: args.query.parse()?,
        input: match args.input == Path::new("-") {
            true => PathBuf::from(STANDARD_INPUT),
            false => args.input,
        },
        output: args.output,
        window: args.window,
        slide: args.slide,
        side: args.side,
        out_of_order: args.out_of_order,
    })?;
    let outcome = context.run_job(pipeline, config);
    match (&outcome, earlier) {
        (Err(Failure::NothingGood(_)), Some(earlier)) => {
            earlier.restore()?;
            outcome
        }
        _ => outcome,
    }
}
