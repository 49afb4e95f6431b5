//! The REST interface of a cluster: queries and commands over HTTP and JSON.
//!
//! In reading order:
//!
//! - [`Cluster`]: all queries and commands; implemented by a host and called by the server;
//!   [`Maps`]: those about maps only; [`Answer`], [`ClusterError`];
//! - [`JobSummary`], [`JobDescription`], [`PastJobDescription`], [`Plans`], [`TopView`],
//!   [`SubmitRequest`] and others: the types of requests and responses, which are JSON on the wire;
//! - [`ClusterEvent`], [`JobEvent`]: streams of live figures;
//! - [`ProblemDetails`]: error responses; [`ApiError`]: errors within streams; [`status_of`];
//! - [`AccessRole`], [`TokenRegistry`], [`AuditLog`]: the rights of callers, and their actions;
//! - [`Server`], [`ServerConfig`]: the HTTP server in front of a `Cluster`; [`openapi_document`]:
//!   the description of its interface. Both are generated from one table, `routes`;
//! - [`Client`]: the client of a server;
//! - [`CLUSTER_SETTINGS`], [`ClusterSettings`]: the settings that select a cluster and control the
//!   packing of jobs.
//!
//! # Invariants
//!
//! - Input from clients is bounded and validated, and never makes the server panic.
//! - Times are milliseconds since 1970, sizes are bytes; the names of fields show that.
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

mod client;
mod cluster;
mod result;

mod api_error;
mod openapi;
mod routes;
mod server;

mod access;
mod audit;
mod checkpoints;
mod cluster_settings;
mod dead_letters;
mod display;
mod events;
mod host;
mod job;
mod job_name;
mod logs;
mod maps;
mod metrics;
mod page_query;
mod past_jobs;
mod plans;
mod problem_details;
mod program;
mod query_number;
mod settings;
mod submit;
mod token_file;
mod token_registry;
mod top;
mod traffic;
mod upgrade;
mod why;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use access::{AccessRole, NewTokenView, TokenRequest, TokenStore, TokenView};
pub use api_error::{
    MAX_LISTED_CONTAINERS, no_such_container, no_such_host, no_such_job, status_of,
};
pub use ardea_network::rpc::ApiError;
pub use audit::{
    AuditEntry, AuditLog, AuditQuery, AuditView, DEFAULT_AUDIT_ENTRIES, MAX_AUDIT_ENTRIES,
};
pub use checkpoints::{
    CheckpointVertexView, CheckpointView, CheckpointsView, DamageView, EpochsView, RecoverRequest,
};
pub use client::{Client, LogLines, MapChanges, OUTCOME_UNKNOWN};
pub use cluster::Cluster;
pub use cluster_settings::{ClusterSettings, invalid_name_reason, load_tls};
pub use dead_letters::{
    DEFAULT_DEAD_LETTERS, DeadLetterPosition, DeadLetterView, DeadLettersQuery, DeadLettersView,
    MAX_DEAD_LETTERS,
};
pub use events::{ClusterEvent, JobEvent, JobEventsQuery};
pub use host::{ClusterInfo, HostView, HostedContainer};
pub use job::{
    ContainerState, ContainerView, ContainersUpdate, JobDescription, JobSummary, KillQuery,
    MasterView, NoteView, ParallelismUpdate, Phase, ProblemView, ProgramView, VertexView,
};
pub use job_name::check_job_name;
pub use logs::{
    DEFAULT_TAIL_LINES, LogEvent, LogLine, LogQuery, LogSource, LogStream, MAX_LINE_BYTES,
    MAX_TAIL_LINES,
};
pub use maps::{
    DEFAULT_MAP_ENTRIES, MAX_MAP_ENTRIES, MapEntriesView, MapEntryView, MapEvent, MapKeyQuery,
    MapPutRequest, MapQuery, MapStream, MapView, Maps, MapsView, no_such_key,
};
pub use metrics::{
    MetricsQuery, MetricsRange, PointView, RangeQuery, SampleKind, SampleView, SeriesView,
};
pub use openapi::openapi_document;
pub use page_query::{MAX_PAGE_ELEMENTS, PageQuery};
pub use past_jobs::{JobEnding, PastJobDescription, PastJobSummary};
pub use plans::{
    LogicalEdge, LogicalPlan, LogicalVertex, PhysicalContainer, PhysicalPlan, PlacedGroup, Plans,
};
pub use problem_details::ProblemDetails;
pub use program::{ProgramAction, ProgramOutcome, ProgramRequest};
pub use result::{Answer, ClusterError, Pending};
pub use server::{Server, ServerConfig, ServerLimits};
pub use settings::{CLUSTER_SETTINGS, is_cluster_setting, is_host_setting, with_clusters};
pub use submit::SubmitRequest;
pub use token_file::read as read_token;
pub use token_registry::{MAX_TOKENS, StoredToken, TokenCheck, TokenRegistry, create_token};
pub use top::{ContainerTop, MessagesTop, StateTop, TopView, VertexTop};
pub use traffic::{EdgeTraffic, InstanceCpu, PairTraffic, ProposalView, TrafficView};
pub use upgrade::{SavepointRequest, SavepointView, StatesView, UpgradeRequest, UpgradeView};
pub use why::{CauseKind, CauseView, DiagnosisView, FigureUnit, FigureView};
