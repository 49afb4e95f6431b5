//! The guide in `docs/`: every Rust example in it is compiled and run as a test of this crate.
//!
//! A chapter is an item here because that is how the documentation tests find it; there is nothing else to see.

/// `docs/first-job.md`
#[doc = include_str!("../../../docs/first-job.md")]
struct FirstJob;

/// `docs/time-and-windows.md`
#[doc = include_str!("../../../docs/time-and-windows.md")]
struct TimeAndWindows;

/// `docs/aggregates.md`
#[doc = include_str!("../../../docs/aggregates.md")]
struct Aggregates;

/// `docs/joins.md`
#[doc = include_str!("../../../docs/joins.md")]
struct Joins;

/// `docs/state-and-timers.md`
#[doc = include_str!("../../../docs/state-and-timers.md")]
struct StateAndTimers;

/// `docs/survival.md`
#[doc = include_str!("../../../docs/survival.md")]
struct WhatSurvives;

/// `docs/savepoints.md`
#[doc = include_str!("../../../docs/savepoints.md")]
struct Savepoints;

/// `docs/connectors.md`
#[doc = include_str!("../../../docs/connectors.md")]
struct Connectors;

/// `docs/branching.md`
#[doc = include_str!("../../../docs/branching.md")]
struct StreamsThatPart;

/// `docs/records.md`
#[doc = include_str!("../../../docs/records.md")]
struct RecordsThatTravel;

/// `docs/custom.md`
#[doc = include_str!("../../../docs/custom.md")]
struct StepsOfYourOwn;

/// `docs/modules.md`
#[cfg(feature = "cluster")]
#[doc = include_str!("../../../docs/modules.md")]
struct ModulesOfYourOwn;

/// `docs/topologies.md`
#[doc = include_str!("../../../docs/topologies.md")]
struct Topologies;

/// `docs/cluster.md`
#[doc = include_str!("../../../docs/cluster.md")]
struct Clusters;

/// `docs/grid.md`
#[cfg(feature = "grid")]
#[doc = include_str!("../../../docs/grid.md")]
struct Grids;

/// `docs/tuning.md`
#[doc = include_str!("../../../docs/tuning.md")]
struct Tuning;

/// `docs/command-line.md`
#[doc = include_str!("../../../docs/command-line.md")]
struct CommandLine;

/// `docs/benchmarks.md`
#[doc = include_str!("../../../docs/benchmarks.md")]
struct Benchmarks;

/// `docs/metrics.md`
#[doc = include_str!("../../../docs/metrics.md")]
struct Metrics;

/// `docs/errors.md`
#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

/// `docs/glossary.md`
#[doc = include_str!("../../../docs/glossary.md")]
struct Glossary;

/// `docs/README.md`
#[doc = include_str!("../../../docs/README.md")]
struct Contents;
