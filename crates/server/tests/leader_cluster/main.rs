//! Leader processes with a metadata store in files, real connections, and worker agents that a
//! scheduler starts as tasks of this process.

mod attempts;
mod commands;
mod failover;
mod fixture;
#[cfg(feature = "etcd")]
mod killed_etcd;
mod life;
mod metadata_outage;
mod scheduler;
mod stored;
mod upgrades;
mod worker;
