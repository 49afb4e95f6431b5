//! Runs a job of the command line from its start to its summary.

use std::sync::Arc;

use ardea_engine::{Job, NodeConfig};

use crate::context::Context;
use crate::failure::Failure;

/// Runs a job until it ends, with the context's settings.
///
/// # Errors
/// As [`Supervisor::run`](ardea::console::Supervisor::run).
pub fn run<J>(job: &J, config: NodeConfig, context: &Context) -> Result<(), Failure>
where
    J: Job + Clone + 'static,
{
    let settings = context.run_settings(config)?;
    context.supervisor().run(Arc::new(job.clone()), settings)
}
