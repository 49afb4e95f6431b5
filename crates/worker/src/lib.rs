//! The process of a container: its instances, its connections to other containers, and the
//! execution of its leader's requests.
//!
//! A job that is spread over a cluster runs in *containers*. Each container is one process, which
//! calls [`run`] as a worker. The worker finds the job's leader, registers, and runs the instances
//! that the leader assigns, until the leader requests its end. Heron's Stream Manager and its
//! instances ("Twitter Heron: Towards Extensible Streaming Engines", ICDE 2017, §II) are one
//! process here, so that records within a container cross no process boundary.
//!
//! ```text
//!  control (tokio)    deployer           threads of the node                   network thread
//!  driver: agent  ──▶ Node::deploy ──▶ instances ─▶ RemoteSender ─ StreamSender ─▶ Links ══ other
//!    │ connection ◀── applied, ended   instances ◀─ RemoteReceiver ─ StreamReceiver ◀─ containers
//!  leader             metrics          BackchannelSenderP, BackchannelReceiverP ◀─▶
//! ```
//!
//! In reading order:
//!
//! * [`run`], [`WorkerDependencies`], [`MasterFinder`]: the entry point of a program and its
//!   dependencies.
//! * `driver`, `master_link`: the control side, which drives the agent of `ardea-coordination`;
//!   `deployer`, `plan`: the execution of its actions.
//! * `network`: the connections, one for each other container, on a separate thread.
//! * `endpoint_slot`: the slots of streams, which outlive the tasklets at their ends; `sender`,
//!   `receiver`, `remote_edges`: the ends of edges for the engine.
//! * `attempt_recovery`, `whole_batches`: the recovery of single workers of jobs in micro-batches.
//! * `attempt`: the current execution attempt of a job with a processing guarantee;
//!   `bounded_inputs`: the bounded sources that must end before the attempt's first epoch. The
//!   checkpoint backend is a
//!   [`WorkerCheckpointBackend`](ardea_checkpoint::local::WorkerCheckpointBackend).
//! * `backchannel`: the transport of the job's side channels.
//! * `isolated_vertices`: vertices in processes of their own, by crate `ardea-instance`.
//! * `gauges`: metrics.
//!
//! # Invariants
//!
//! * Data flow does not depend on control: a worker without a leader continues with its last
//!   assignment.
//! * Two containers share one connection, between their newest known incarnations. Over a new
//!   connection all streams start again, beginning with the state that the receiver needs. Records
//!   in flight are counted as lost, and the job's side channels are notified.
//! * While a container is unavailable, data for it is queued with backpressure on its producers; no
//!   other traffic is affected.
//! * Two attempts of a job never run in a worker at the same time, and data sent in one attempt is
//!   never received in another. Within an attempt, a stream that has lost records sends nothing
//!   more, unless it has kept them for a worker that is restored alone.
//! * User code never runs on the threads of control and network.
//!
//! # Example: a program that runs as a worker if it was started as one
//!
//! ```
//! use std::sync::Arc;
//!
//! use ardea_worker::{FinderFactory, WorkerDependencies, run, start_from_environment};
//!
//! fn serve(job: &dyn ardea_engine::Job, finder: Box<FinderFactory>) -> ardea_core::Result<()> {
//!     match start_from_environment()? {
//!         Some(start) => {
//!             let sinks = ardea_metrics::MetricsSinks::builtin();
//!             let transports = ardea_worker::Transports::builtin();
//!             run(&start, job, WorkerDependencies { finder, sinks, transports, tls: None, command: None, snapshots: None, dead_letters: Arc::default() })
//!         }
//!         None => Ok(println!("{} was not started by a scheduler", job.name())),
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod log_events;
mod settings;
mod start;
mod traffic;
mod transports;

mod endpoint_slot;
mod network;

mod attempt_recovery;
mod receiver;
mod remote_edges;
mod sender;
mod whole_batches;

mod backchannel;

mod deployer;
mod gauges;
mod plan;

mod isolated_vertices;

mod attempt;
mod bounded_inputs;
mod driver;
mod failures;
mod host_peers;
mod master_link;
mod pair_metrics;
mod peer_addresses;
mod worker;

pub use driver::MasterFinder;
pub use isolated_vertices::check_isolation;
pub use settings::{WORKER_SETTINGS, check_settings};
pub use start::start_from_environment;
pub use transports::{TransportSetup, Transports};
pub use worker::{FinderFactory, WorkerDependencies, run};
