//! `ardea nexmark run`: computes a query over a file of events.

use std::path::{Path, PathBuf};

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_core::Result;
use ardea_nexmark::queries::{self, QueryRun};
use ardea_pipeline::Pipeline;

use crate::args::QueryArgs;
use crate::output_file::FileBackup;

/// The file name of standard input.
const STANDARD_INPUT: &str = "/dev/stdin";

/// Runs the query as a job, in columns by default. Restores the previous output file if no record
/// of the input was good.
pub fn run(args: QueryArgs, context: &Context) -> Result<(), Failure> {
    let config = context.node_config(args.threads)?;
    let earlier = FileBackup::at(&args.output);
    let is_columnar = args.columns || (cfg!(feature = "columns") && !args.rows);
    let run = QueryRun {
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
    };
    let pipeline = match is_columnar {
        true => in_columns(&run)?,
        false => queries::build(&run)?,
    };
    let outcome = context.run_job(pipeline, config);
    match (&outcome, earlier) {
        (Err(Failure::NothingGood(_)), Some(earlier)) => {
            earlier.restore()?;
            outcome
        }
        _ => outcome,
    }
}

/// Builds the query over columns.
#[cfg(feature = "columns")]
fn in_columns(run: &QueryRun) -> Result<Pipeline> {
    queries::columns::build(run)
}

/// Fails with a hint, since this program is built without columns.
#[cfg(not(feature = "columns"))]
fn in_columns(_: &QueryRun) -> Result<Pipeline> {
    let what = "this program was built without Arrow columns";
    Err(
        ardea_core::Error::new(ardea_core::ErrorCode::InvalidConfig, what)
            .hint("leave --columns out, or build with the feature columns"),
    )
}
