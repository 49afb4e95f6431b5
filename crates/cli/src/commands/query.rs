//! `ardea nexmark run`: computes a query over a file of events.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ardea_nexmark::queries::{self, QueryRun};

use crate::args::QueryArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::supervise;

/// Runs the query as a job.
pub fn run(args: QueryArgs, context: &Context) -> Result<(), Failure> {
    let config = context.node_config(args.threads)?;
    if let Some(side) = &args.side
        && is_same_file(side, &args.output)
    {
        return Err(Failure::usage(
            format!(
                "the results would overwrite {}, the side input",
                side.display()
            ),
            "write to another file",
        ));
    }
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

/// Whether both are one regular file that is there. The side input is read before there is a job that could see to it.
fn is_same_file(left: &Path, right: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
    };
    identity(left).is_some_and(|left| identity(right) == Some(left))
}
