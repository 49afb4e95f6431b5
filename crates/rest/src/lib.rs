//! The REST interface of a cluster: what can be asked and commanded, over HTTP and JSON.
//!
//! In reading order:
//!
//! * [`Cluster`]: all that can be asked and commanded; a host implements it, the server calls it; [`Maps`]: of these, what concerns maps; [`Answer`], [`Unanswered`];
//! * [`JobSummary`], [`JobDescription`], [`PastJobDescription`], [`Plans`], [`TopView`], [`SubmitRequest`] and the like: the types, which are JSON on the wire;
//! * [`Fault`]: errors on the wire, and [`status_of`];
//! * [`Server`], [`ServerConfig`]: listens, and asks a `Cluster`; [`openapi_document`] describes what it answers. Both are made of one
//!   table, `routes`;
//! * [`Client`]: asks a server;
//! * [`CLUSTER_SETTINGS`], [`ClusterSettings`]: which cluster, and how jobs are packed for it.
//!
//! # Invariants
//!
//! * What is read of a client is bounded, checked, and never makes the server panic.
//! * Times are milliseconds since 1970, sizes bytes, and say so in their names.
//!
//! # Example
//!
//! ```
//! use ardea_rest::{JobSummary, Phase};
//!
//! let json = r#"{
//!     "name": "word-count", "submission": "2a", "phase": "running", "reason": null, "since_ms": 0,
//!     "container_count": 2, "worker_count": 2, "instance_count": 4, "version": "0.1.0"
//! }"#;
//! let job: JobSummary = serde_json::from_str(json).unwrap();
//! assert_eq!(job.phase, Phase::Running);
//! ```
#![forbid(unsafe_code)]

mod answer;
mod client;
mod cluster;

mod fault;
mod openapi;
mod routes;
mod server;

mod cluster_settings;
mod foreign;
mod host;
mod job;
mod job_name;
mod logs;
mod maps;
mod metrics;
mod number;
mod past;
mod plans;
mod settings;
mod shown;
mod snapshots;
mod submit;
mod token_file;
mod top;
mod upgrade;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use answer::{Answer, Pending, Unanswered};
pub use ardea_network::rpc::Fault;
pub use client::{Client, DOUBTFUL, LogLines, MapChanges};
pub use cluster::Cluster;
pub use cluster_settings::{ClusterSettings, load_tls, wrong_name};
pub use fault::{MOST_NUMBERS, no_such_container, no_such_host, no_such_job, status_of};
pub use host::{ClusterInfo, HostView, HostedContainer};
pub use job::{
    ContainerState, ContainerView, ContainersUpdate, JobDescription, JobSummary, KillQuery,
    MasterView, NoteView, ParallelismUpdate, Phase, ProblemView, ProgramView, VertexView,
};
pub use job_name::check_job_name;
pub use logs::{
    DEFAULT_TAIL_LINES, LogEvent, LogLine, LogQuery, LogSource, LogStream, MOST_LINE_BYTES,
    MOST_TAIL_LINES,
};
pub use maps::{
    DEFAULT_MAP_ENTRIES, MOST_MAP_ENTRIES, MapEntriesView, MapEntryView, MapEvent, MapKeyQuery,
    MapPutRequest, MapQuery, MapStream, MapView, Maps, MapsView, no_such_key,
};
pub use metrics::{
    MetricsQuery, MetricsRange, PointView, RangeQuery, SampleKind, SampleView, SeriesView,
};
pub use openapi::openapi_document;
pub use past::{JobEnding, PastJobDescription, PastJobSummary};
pub use plans::{
    LogicalEdge, LogicalPlan, LogicalVertex, PhysicalContainer, PhysicalPlan, PlacedGroup, Plans,
};
pub use server::{Server, ServerConfig, ServerLimits};
pub use settings::{CLUSTER_SETTINGS, is_of_the_cluster, is_of_the_host, with_clusters};
pub use snapshots::{
    DamageView, EpochsView, RecoverRequest, SnapshotVertexView, SnapshotView, SnapshotsView,
};
pub use submit::SubmitRequest;
pub use token_file::read as read_token;
pub use top::{ContainerTop, MessagesTop, StateTop, TopView, VertexTop};
pub use upgrade::{SavepointRequest, SavepointView, StatesView, UpgradeRequest, UpgradeView};
