//! A machine of a cluster, as a process: it stands as master for jobs, runs containers, and serves the REST interface.
//!
//! A cluster is as many of these as it has machines, and nothing else: the state manager is the only thing that they share. Each
//! is a candidate for the mastership of every job (or of one job, in a cluster that is made for it), runs the containers that
//! schedulers ask it for, and answers for all jobs, by itself where it leads and by a redirection where another does.
//!
//! # Main types
//!
//! * [`HostSetup`], [`Host`]: what a host has to know, and the host;
//! * [`find_api`]: where any host's interface is;
//! * [`Unattended`]: what is known of jobs that no host answers for.
//!
//! # Invariants
//!
//! * The death of a host's process ends no container, and no data stops: whoever leads next finds them.
//! * A host that can't register does not stand for jobs.
//! * What a host answers about a job that it doesn't lead comes from the state manager or is a redirection, never a guess.
//!
//! # Example: a host of a cluster that lives in a folder
//!
//! ```
//! use std::sync::Arc;
//! use ardea_rest::{CLUSTER_SETTINGS, ClusterSettings};
//! use ardea_config::{Resolver, Schema};
//! use ardea_network::rpc::Security;
//! use ardea_server::daemon::{Host, HostSetup};
//! use ardea_scheduler::artifacts::{Cache, CacheConfig, PackageStores, StoreOptions};
//! use ardea_server::leader::Jobs;
//! use ardea_coordination::packing::ResourceManagers;
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
//!     managers: ResourceManagers::builtin(),
//!     schedulers: Schedulers::none(),
//!     programs: Arc::new(CachedPrograms::new(cache, PackageStores::builtin(), StoreOptions::default())),
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

mod directory;

mod jobs;

mod described;
mod failing;
mod gone;
mod identity;
mod kept;
mod logs;
mod measured;
mod old_packages;
mod pressure;
mod remembered;
mod room;
mod served;
mod sheltered;
mod snapshot_view;
mod unattended;
mod vanished;

mod host;

pub use directory::find_api;
pub use host::Host;

pub use setup::HostSetup;
pub use snapshot_view::snapshot_view;
pub use unattended::Unattended;
