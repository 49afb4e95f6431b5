//! The host process of a cluster: a leader candidate for jobs, a runner of containers, and a server
//! of the REST interface.
//!
//! A cluster consists of one such process for each machine, and they share only the metadata store.
//! Each host is a leader candidate for every job of the cluster. In a cluster created for a single
//! job, it is a candidate for that job only. A host runs the containers that schedulers request,
//! and serves requests for all jobs. Requests for a job that another host leads are redirected.
//!
//! # Main types
//!
//! * [`HostSetup`], [`Host`]: the configuration of a host, and the host.
//! * [`find_api`]: finds the REST interface of any host.
//! * [`OfflineJobs`]: access to jobs while no host is available for them.
//!
//! # Invariants
//!
//! * The death of a host's process ends no container and interrupts no data flow. The job's next
//!   leader finds the running containers.
//! * A host that cannot register in the metadata store is no leader candidate.
//! * Responses about a job that the host does not lead come from the metadata store or are
//!   redirections.
//!
//! # Example: a host of a cluster in a folder
//!
//! ```
//! use std::sync::Arc;
//! use ardea_rest::{CLUSTER_SETTINGS, ClusterSettings};
//! use ardea_config::{Resolver, Schema};
//! use ardea_network::rpc::Security;
//! use ardea_server::daemon::{Host, HostSetup};
//! use ardea_scheduler::artifacts::{Cache, CacheConfig, PackageStores, StoreOptions};
//! use ardea_server::leader::Jobs;
//! use ardea_coordination::elasticity::ElasticityPolicies;
//! use ardea_coordination::optimizer::OptimizerRules;
//! use ardea_coordination::packing::PackingPolicies;
//! use ardea_scheduler::{CachedPrograms, Schedulers};
//! use ardea_metastore::{FileState, StateOptions};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
//! # runtime.block_on(async {
//! let schema = Schema::of(CLUSTER_SETTINGS);
//! let resolved = Resolver::new(&schema).flags(["cluster.port=0"]).resolve()?;
//! let cluster = ClusterSettings::from_settings(&resolved, Some(folder.path()))?;
//! let cache = Cache::open(folder.path().join("cache"), CacheConfig::default())?;
//! let host = Host::start(HostSetup {
//!     name: "quay".into(),
//!     jobs: Jobs::All,
//!     state: Arc::new(FileState::open(&folder.path().join("state"), StateOptions::default()).await?),
//!     security: Security::new(cluster.name.as_str()),
//!     managers: PackingPolicies::builtin(),
//!     elasticity: ElasticityPolicies::builtin(),
//!     optimizer: OptimizerRules::builtin(),
//!     schedulers: Schedulers::none(),
//!     programs: Arc::new(CachedPrograms::new(cache, PackageStores::builtin(), StoreOptions::default())),
//!     runner: None,
//!     attributes: Default::default(),
//!     lease: Default::default(),
//!     master: Default::default(),
//!     masters: tokio::runtime::Handle::current(),
//!     cluster,
//! })
//! .await?;
//! let client = ardea_rest::Client::new(host.api(), None)?;
//! assert_eq!(client.about().await?.hosts, 1);
//! assert!(client.list().await?.is_empty());
//! host.close().await;
//! # Ok::<(), ardea_core::Error>(())
//! # }).unwrap();
//! ```

mod setup;

mod host_registry;

mod jobs;

mod access_tokens;
mod backpressure;
mod capacity_check;
mod checkpoint_view;
mod cluster_service;
mod crash_loops;
mod describe;
mod identity;
mod logs;
mod memory_checkpoint_gc;
pub(crate) mod metrics_view;
mod missing_hosts;
mod offline_jobs;
mod old_packages;
mod orphan_containers;
mod retained_logs;
mod traffic_view;

mod host;

pub use host::Host;
pub use host_registry::find_api;

pub use checkpoint_view::checkpoint_view;
pub use offline_jobs::OfflineJobs;
pub use setup::{HostSetup, ProgramRunner};
