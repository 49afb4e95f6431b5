//! A low-latency stream processing engine.
//!
//! Ardea processes records as they arrive, with latencies of milliseconds at the 99.99th
//! percentile. This crate is the one that jobs depend on: it re-exports the crates of the engine.
//!
//! * [`pipeline`]: the API that describes a job step by step;
//! * [`topology`] (feature of that name, part of `cluster`): the API of spouts and bolts, with
//!   acknowledgements;
//! * [`aggregate`]: aggregate functions for windows and groups;
//! * [`connect`]: sources and sinks;
//! * `columns` (feature of that name): records in Arrow columns: expressions, windows, files; with
//!   the feature `parquet`, Parquet files;
//! * `kafka`, `nats`, `postgres` and `redis` (features of these names): sources and sinks for
//!   Apache Kafka, NATS JetStream and PostgreSQL, a sink for Redis;
//! * `grid` (feature of that name): in-memory maps distributed over several members, for any
//!   program, and in jobs as sources, sinks and tables;
//! * `iteration`, `ml` and `graph` (features of these names): iterations over bounded datasets with
//!   shared variables; linear classifiers and k-means; PageRank;
//! * [`engine`]: runs jobs on the threads of this process; [`recovery`]: restarts them from
//!   checkpoints after failures;
//! * [`instance`]: steps whose functions run in processes of their own, in any language;
//! * [`core`] and [`operators`]: the job graph and its processors, for custom ones; [`state`]: the
//!   keyed state of processors;
//! * [`codec`]: serialization of records that leave a process;
//! * `cluster`: the host processes of clusters;
//! * `console` (feature of that name, part of `cluster`): progress, Ctrl-C, summary and exit codes
//!   of a program that runs jobs in its own process; `command_line`: its command line (feature
//!   `command-line`, on by default);
//! * `job`: job programs, which run embedded or submit themselves to a cluster (feature `cluster`,
//!   on by default); `components`: spouts and bolts for topologies that are described in a file;
//! * [`testing`]: helpers for tests of jobs; `testkit` (feature of that name): tests custom
//!   processors under adversarial schedules.
//!
//! ```
//! use ardea::prelude::*;
//!
//! let p = Pipeline::new("word count");
//! let counts = p
//!     .read_from(collections::items(vec!["to be or not", "to be"]))
//!     .flat_map(|line| line.split(' '))
//!     .key_by(|word| *word)
//!     .aggregate("words", count())
//!     .collect();
//! p.run()?;
//! assert_eq!(counts.take_sorted(), [("be", 2), ("not", 1), ("or", 1), ("to", 2)]);
//! # Ok::<(), ardea::Error>(())
//! ```
#![forbid(unsafe_code)]

pub use ardea_aggregate as aggregate;
pub use ardea_checkpoint::local as recovery;
pub use ardea_codec as codec;
#[cfg(feature = "columns")]
pub use ardea_columns as columns;
pub use ardea_config as config;
#[cfg(feature = "grid")]
pub use ardea_connectors::grid;
#[cfg(feature = "kafka")]
pub use ardea_connectors::kafka;
#[cfg(feature = "nats")]
pub use ardea_connectors::nats;
#[cfg(feature = "postgres")]
pub use ardea_connectors::postgres;
#[cfg(feature = "redis")]
pub use ardea_connectors::redis;
pub use ardea_core as core;
pub use ardea_engine as engine;
#[cfg(feature = "graph")]
pub use ardea_graph as graph;
pub use ardea_instance as instance;
#[cfg(feature = "iteration")]
pub use ardea_iteration as iteration;
#[cfg(feature = "ml")]
pub use ardea_ml as ml;
pub use ardea_operators as operators;
pub use ardea_pipeline as pipeline;
pub use ardea_state as state;
#[cfg(feature = "testkit")]
pub use ardea_testkit as testkit;
#[cfg(feature = "topology")]
pub use ardea_topology as topology;

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "command-line")]
pub mod command_line;
#[cfg(feature = "cluster")]
pub mod components;
pub mod connect;
#[cfg(feature = "console")]
pub mod console;
#[cfg(feature = "cluster")]
pub mod job;
pub mod testing;
#[cfg(all(feature = "cluster", feature = "command-line"))]
pub use command_line::{main, main_with};

pub use ardea_core::{Error, Result};
pub use ardea_engine::{
    ExecutionMode, JobConfig, JobHandle, JobStatus, MicroBatchConfig, Node, NodeConfig,
    StateBackendConfig,
};
pub use ardea_pipeline::Pipeline;

/// The types and functions that most jobs use.
pub mod prelude {
    pub use std::time::Duration;

    pub use crate::connect::live_table;
    pub use ardea_aggregate::*;
    pub use ardea_checkpoint::local::{FaultTolerance, JobEnd, JobOutcome, RunFaultTolerant};
    pub use ardea_connectors::{
        OnDamage, active_active, collections, dead_letters, files, for_each, generate, null,
        preview, stdin, stdout, tcp,
    };
    pub use ardea_core::{
        Bounded, Boundedness, DeadLetter, DeadLetters, Demand, Error, ErrorCode, Guarantee,
        Isolation, Key, OnError, OnLostPosition, Parallelism, Result, Sink, Source, Timestamp,
        Unbounded,
    };
    pub use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig, StateBackendConfig};
    pub use ardea_instance::InstanceCommand;
    pub use ardea_pipeline::{
        Collected, Combine, EarlyFiring, Either, ExchangeData, Firing, JoinInterval, KeyedContext,
        KeyedStream, Local, Pipeline, StateValue, Stream, Timed, Trigger, Untimed, WatermarkPolicy,
        Weekday, Window, WindowChange, WindowResult, WindowedStream,
    };
}

#[cfg(doctest)]
mod guide;

/// The README's examples, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
