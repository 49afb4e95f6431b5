//! The guide in `docs/`: every Rust example in it is compiled and run as a test of this crate.
//!
//! Each chapter is an item here only so that the documentation tests find it.

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

/// `docs/fault-tolerance.md`
#[doc = include_str!("../../../docs/fault-tolerance.md")]
struct FaultToleranceChapter;

/// `docs/savepoints.md`
#[doc = include_str!("../../../docs/savepoints.md")]
struct Savepoints;

/// `docs/connectors.md`
#[doc = include_str!("../../../docs/connectors.md")]
struct Connectors;

/// `docs/splitting-and-merging.md`
#[doc = include_str!("../../../docs/splitting-and-merging.md")]
struct SplittingAndMerging;

/// `docs/serialization.md`
#[doc = include_str!("../../../docs/serialization.md")]
struct Serialization;

/// `docs/custom-operators.md`
#[doc = include_str!("../../../docs/custom-operators.md")]
struct CustomOperators;

/// `docs/micro-batches.md`
#[doc = include_str!("../../../docs/micro-batches.md")]
struct MicroBatches;

/// `docs/instance-protocol.md`
#[doc = include_str!("../../../docs/instance-protocol.md")]
struct Instances;

/// `docs/plugins.md`
#[cfg(feature = "cluster")]
#[doc = include_str!("../../../docs/plugins.md")]
struct Plugins;

/// `docs/topologies.md`
#[doc = include_str!("../../../docs/topologies.md")]
struct Topologies;

/// `docs/columns.md`
#[cfg(feature = "columns")]
#[doc = include_str!("../../../docs/columns.md")]
struct ColumnsChapter;

/// `docs/running-a-cluster.md`
#[doc = include_str!("../../../docs/running-a-cluster.md")]
struct RunningACluster;

/// `docs/submitting-jobs.md`
#[doc = include_str!("../../../docs/submitting-jobs.md")]
struct SubmittingJobs;

/// `docs/operating-jobs.md`
#[doc = include_str!("../../../docs/operating-jobs.md")]
struct OperatingJobs;

/// `docs/rescaling-and-upgrades.md`
#[doc = include_str!("../../../docs/rescaling-and-upgrades.md")]
struct RescalingAndUpgrades;

/// `docs/cluster-settings.md`
#[doc = include_str!("../../../docs/cluster-settings.md")]
struct ClusterSettings;

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

/// `docs/iterations.md`
#[cfg(all(feature = "ml", feature = "graph"))]
#[doc = include_str!("../../../docs/iterations.md")]
struct IterationsChapter;
