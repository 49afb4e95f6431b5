//! The process of a container: its instances, the ways to other containers, and its master's orders.
//!
//! A job that is spread over a cluster runs in *containers*, each of them one process that [`run`]s as a worker. It finds the job's
//! master, joins it, and runs what that says, until it is told to leave. Heron's Stream Manager and its instances ("Twitter Heron:
//! Towards Extensible Streaming Engines", ICDE 2017, §II) are one process here, so that what stays in a container crosses no process.
//!
//! ```text
//!  control (tokio)      deployer              threads of the node                network's thread
//!  driver: agent  ───▶  Node::deploy   ───▶   instances ─▶ SenderP ─ SendEnd ──▶  Links ═══ other containers
//!    │ courier   ◀───  applied, ended         instances ◀─ ReceiverP ─ ReceiveEnd ◀──
//!  master               metrics               mail: CarrierP, DelivererP ◀──▶
//! ```
//!
//! In reading order:
//!
//! * [`run`], [`Surroundings`], [`MasterFinder`]: what a program calls, and what it brings;
//! * `driver`, `master_link`: the agent of `ardea-coordination`, driven; `deployer`, `plan`: what it wants done, done;
//! * `network`: the connections, one for each other container, on a thread of its own; `station`: where an end of a stream gets its
//!   ports, as connections come and go;
//! * `send_end`, `receive_end`, `berth`: the ends of a stream, over all connections; `sender`, `receiver`, `crossings`: as steps of the
//!   job;
//! * [`CutKeeper`](ardea_checkpoint::local::CutKeeper): where state goes, and comes from, in the lives of a job with a guarantee; `living`: the life that runs here;
//!   `read_first`: when no epoch can end in it yet;
//! * `mail`: the job's side channels, carried;
//! * `instance`: instances in processes of their own;
//! * `gauges`: what is counted.
//!
//! # Invariants
//!
//! * Data does not wait for control: a worker whose master is away goes on with what it was told last.
//! * Two containers have one connection, between the newest life of each that is known. Over a new one all streams begin anew, with what
//!   a receiver has to know of the past; what was under way is counted as lost, and the job's side channels are told.
//! * While a container is away, what goes there waits, and its producers feel it; nothing else does.
//! * Of two lives of a job nothing runs here at once, and what was sent in one is never taken in the other. In a life, a stream on which
//!   records were lost sends nothing more.
//! * Nothing of the user's runs on the threads of control and network.
//!
//! # Example: a program that is the worker of a container, if it was started as one
//!
//! ```
//! use std::sync::Arc;
//!
//! use ardea_worker::{FinderFactory, Surroundings, run, start_from_environment};
//!
//! fn serve(job: &dyn ardea_engine::Job, finder: Box<FinderFactory>) -> ardea_core::Result<()> {
//!     match start_from_environment()? {
//!         Some(start) => {
//!             let sinks = ardea_metrics::MetricsSinks::builtin();
//!             let transports = ardea_worker::Transports::builtin();
//!             run(&start, job, Surroundings { finder, sinks, transports, tls: None, command: None, cuts: None, dead_letters: Arc::default() })
//!         }
//!         None => Ok(println!("{} was not started by a scheduler", job.name())),
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod notes;
mod settings;
mod start;
mod traffic;
mod transports;

mod berth;
mod network;
mod receive_end;
mod send_end;
mod station;

mod crossings;
mod receiver;
mod sender;

mod mail;

mod instance;

mod deployer;
mod gauges;
mod plan;

mod driver;
mod failures;
mod living;
mod master_link;
mod peer_names;
mod read_first;
mod worker;

pub use driver::MasterFinder;
pub use instance::{MOST_ISOLATED_INSTANCES, MOST_ISOLATED_VERTICES};
pub use settings::{WORKER_SETTINGS, check_settings};
pub use start::start_from_environment;
pub use transports::{TransportSetup, Transports};
pub use worker::{FinderFactory, Surroundings, run};
