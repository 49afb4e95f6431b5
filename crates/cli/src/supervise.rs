//! A job of the command line from its start to its summary.

use std::sync::Arc;

use ardea::recovery::Embedded;
use ardea_engine::NodeConfig;

use crate::context::Context;
use crate::failure::Failure;

/// Runs a job until it ends, as the settings say.
///
/// # Errors
/// As [`Supervisor::run`](ardea::console::Supervisor::run).
pub fn run<J>(job: &J, config: NodeConfig, context: &Context) -> Result<(), Failure>
where
    J: Embedded + Clone + 'static,
{
    let settings = context.run_settings(config)?;
    context.supervisor().run(Arc::new(job.clone()), settings)
}
