//! Sources and sinks of other systems.
//!
//! A source of messages is decoded by `source_message`. A sink gets the messages of
//! `sink_message`.

mod generate;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod sink_message;
mod source_message;
mod streams;

use ardea_core::{Bounded, Boundedness, Error, ErrorCode, Result, Source};
use ardea_pipeline::Pipeline;
use pyo3::prelude::*;

use crate::lowering::{Branch, SourceTable};
use crate::plan::{SinkPlan, SourcePlan};

/// The systems that need a feature of the build.
const SYSTEMS: [(&str, bool); 5] = [
    ("kafka", cfg!(feature = "kafka")),
    ("nats", cfg!(feature = "nats")),
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("s3", cfg!(feature = "s3")),
];

/// Returns the systems with which this module is built, of those that need a feature.
#[pyfunction]
pub(crate) fn built_with() -> Vec<&'static str> {
    let systems = SYSTEMS.into_iter();
    systems
        .filter_map(|(name, is_built)| is_built.then_some(name))
        .collect()
}

/// Reads from a system.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if the module is built without the system, or the source does not fit.
pub(crate) fn read(pipeline: &Pipeline, source: SourcePlan) -> Result<SourceTable> {
    match source {
        #[cfg(feature = "kafka")]
        SourcePlan::Kafka(plan) => kafka::read(pipeline, *plan),
        #[cfg(feature = "nats")]
        SourcePlan::Nats(plan) => nats::read(pipeline, *plan),
        #[cfg(feature = "postgres")]
        SourcePlan::Postgres(plan) => postgres::read(pipeline, *plan),
        SourcePlan::Tcp(plan) => streams::read_tcp(pipeline, plan),
        SourcePlan::Stdin(plan) => streams::read_stdin(pipeline, plan),
        SourcePlan::Generate(plan) => Ok(generate::read(pipeline, &plan)),
        SourcePlan::Files(_) | SourcePlan::Items { .. } => Err(Error::new(
            ErrorCode::Internal,
            "the source is of this process",
        )),
        #[allow(unreachable_patterns, reason = "all systems may be built in")]
        missing => Err(not_built(missing.system())),
    }
}

/// Writes to a system. With `has_lines`, the records are lines of JSON in their only column.
///
/// # Errors
/// Those of [`read`].
pub(crate) fn write(input: Branch, sink: SinkPlan, has_lines: bool) -> Result<()> {
    match sink {
        #[cfg(feature = "kafka")]
        SinkPlan::Kafka(plan) => kafka::write(input, *plan, has_lines),
        #[cfg(feature = "nats")]
        SinkPlan::Nats(plan) => nats::write(input, *plan, has_lines),
        #[cfg(feature = "postgres")]
        SinkPlan::Postgres(plan) => postgres::write(input, *plan, has_lines),
        #[cfg(feature = "redis")]
        SinkPlan::Redis(plan) => redis::write(input, *plan, has_lines),
        SinkPlan::Tcp(plan) => streams::write_tcp(input, plan, has_lines),
        SinkPlan::Stdout(plan) => streams::write_stdout(input, plan, has_lines),
        SinkPlan::Files(_) => Err(Error::new(
            ErrorCode::Internal,
            "the sink is of this process",
        )),
        #[allow(unreachable_patterns, reason = "all systems may be built in")]
        missing => Err(not_built(missing.system())),
    }
}

fn not_built(system: &str) -> Error {
    let what = format!("this build of the package ardea is without {system}");
    let (make, feature) = ("scripts/python.sh", format!("the feature {system:?}"));
    Error::new(ErrorCode::InvalidJob, what).hint(format!(
        "build the wheel with {feature}: {make} says what it needs"
    ))
}

/// Returns a source as one that ends. Plans check boundedness by themselves.
fn as_bounded<T, B: Boundedness>(source: Source<T, B>) -> Source<T, Bounded> {
    let demand = source.wanted_demand();
    let (name, supplier, parallelism, isolation) = source.into_parts();
    Source::new(name, supplier)
        .parallelism(parallelism)
        .isolation(isolation)
        .demand(demand)
}
