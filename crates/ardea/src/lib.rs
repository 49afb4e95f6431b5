//! A low-latency stream processing engine.
//!
//! Ardea takes records in as they happen, computes over them, and hands results out within milliseconds at the 99.99th
//! percentile. This crate is what a job depends on; it gathers the rooms of the house under one name.
//!
//! * [`pipeline`]: describe a job, step by step;
//! * [`topology`]: or as spouts and bolts, with acknowledgements;
//! * [`aggregate`]: what to compute over windows and groups;
//! * [`connect`]: where records come from and go to;
//! * `kafka`, `nats`, `postgres` and `redis`, with the features of these names: source and sink for Apache Kafka, NATS JetStream and
//!   PostgreSQL, a sink for Redis;
//! * `grid`, with the feature of that name: maps in the memory of several members, for any program, and in jobs as sources, sinks and tables;
//! * [`engine`]: run jobs on the threads of this process; [`recovery`]: so that they survive failures;
//! * [`core`] and [`operators`]: the graph below, and the processors that it is made of, for own ones;
//! * [`codec`]: how records become bytes where they leave a process;
//! * `cluster`: the hosts of clusters, as processes of the same programs;
//! * `console`: progress, Ctrl-C, summary and exit codes of a program that runs jobs in its own
//!   process;
//! * `job`: programs that are jobs, which run embedded or submit themselves to a cluster (feature `cluster`, on by default); `components`: parts of
//!   topologies that are described in a file;
//! * `testkit`, with the feature of that name: drives own processors through hostile schedules.
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
pub use ardea_config as config;
pub use ardea_connectors as connect;
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
pub use ardea_operators as operators;
pub use ardea_pipeline as pipeline;
#[cfg(feature = "testkit")]
pub use ardea_testkit as testkit;
pub use ardea_topology as topology;

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
pub mod components;
#[cfg(feature = "cluster")]
pub mod console;
#[cfg(feature = "cluster")]
pub mod job;
#[cfg(feature = "cluster")]
pub use job::{main, main_with};

pub use ardea_core::{Error, Result};
pub use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig, StatePlace};
pub use ardea_pipeline::Pipeline;

/// What most jobs use.
pub mod prelude {
    pub use std::time::Duration;

    pub use ardea_aggregate::*;
    pub use ardea_checkpoint::local::{Survival, SurvivalEnd, Survive, Survived};
    pub use ardea_connectors::{
        OnDamage, collections, dead_letters, files, for_each, generate, live_table, null, preview,
        stdin, stdout, tcp, twins,
    };
    pub use ardea_core::{
        Bounded, Boundedness, DeadLetter, DeadLetters, Demand, Error, ErrorCode, Guarantee,
        Isolation, Key, OnError, OnLostPosition, Parallelism, Result, Sink, Source, Timestamp,
        Unbounded,
    };
    pub use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig, StatePlace};
    pub use ardea_pipeline::{
        Collected, EarlyFiring, Either, Exchange, Firing, JoinInterval, Kept, KeyedContext,
        KeyedStream, Local, Pipeline, Stream, Timed, Trigger, Untimed, WatermarkPolicy, Weekday,
        Window, WindowChange, WindowResult, WindowedStream,
    };
}

#[cfg(doctest)]
mod guide;

/// The README's examples, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
