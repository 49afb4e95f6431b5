//! Masters as processes would be: a state manager in files, real connections, and workers' agents that a scheduler starts in
//! tasks of this process.

mod away;
mod commands;
mod failover;
mod following;
#[cfg(feature = "etcd")]
mod killed_etcd;
mod life;
mod lives;
mod rig;
mod scheduler;
mod stored;
mod worker;
