//! `ardea nexmark run`: computes a query over a file of events.

use ardea_nexmark::queries::{self, QueryRun};

use crate::args::QueryArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::supervise;

/// Runs the query as a job.
pub fn run(args: QueryArgs, context: &Context) -> Result<(), Failure> {
    let config = context.node_config(args.threads)?;
    let pipeline = queries::build(&QueryRun {
        query: args.query.parse()?,
        input: args.input,
        output: args.output,
        window: args.window,
        slide: args.slide,
        side: args.side,
        out_of_order: args.out_of_order,
    })?;
    supervise::run(&pipeline, config, context)
}
