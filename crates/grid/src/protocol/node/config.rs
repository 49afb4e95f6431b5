//! What a member is set to.

use std::time::Duration;

use crate::protocol::council::CouncilConfig;
use crate::protocol::replica::ReplicaConfig;

/// What a member is set to.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// How views come about.
    pub council: CouncilConfig,
    /// How copies are kept.
    pub replica: ReplicaConfig,
    /// How many backups each partition has; decided by who founds the grid.
    pub backups: usize,
    /// How many partitions there are; the same for all members.
    pub partitions: u32,
    /// How many bytes a second a member takes to fill its copies.
    pub refill_rate: u64,
    /// How much all copies of a member may take together, in bytes, beside those of guests.
    pub limit: u64,
    /// How much those of guests may take.
    pub guest_limit: u64,
    /// For how long an operation is tried.
    pub patience: Duration,
    /// After how long a refused one is tried again.
    pub retry: Duration,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            council: CouncilConfig::default(),
            replica: ReplicaConfig::default(),
            backups: 1,
            partitions: ardea_core::PARTITION_COUNT,
            refill_rate: 100 << 20,
            limit: u64::MAX,
            guest_limit: u64::MAX,
            patience: Duration::from_secs(10),
            retry: Duration::from_millis(2),
        }
    }
}
