//! The host of a cluster on this machine, as a process of its own.

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode, Result};

/// What a host is told beside the cluster's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostOptions {
    /// How many containers it may run at a time; as many as fit if not said.
    pub workers: Option<u32>,
}

/// Is the host of a cluster on this machine: takes part in the mastership of its jobs, runs containers, and answers its interface.
///
/// Calls `ready` once, with the address of the interface (`http://HOST:PORT`), when the host has registered in the cluster's state and the
/// interface answers. Returns soon after `is_stopped` says so, which it asks at least every 50 ms: the host has given up its masterships,
/// and its registration is gone; its containers go on.
///
/// # Errors
/// Whatever keeps it from being the host: [`ErrorCode::Network`] for a port that is taken, the state manager's codes.
pub fn serve(
    cluster: &ClusterSettings,
    _options: HostOptions,
    _ready: &mut dyn FnMut(&str),
    _is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let what = format!(
        "this program is built without hosts of clusters such as {:?}",
        cluster.name
    );
    Err(Error::new(ErrorCode::WrongState, what).hint("use a build that has them"))
}
