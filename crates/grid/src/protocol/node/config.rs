//! Settings of a member.

use std::time::Duration;

use crate::protocol::membership::ConsensusConfig;
use crate::protocol::replica::ReplicaConfig;

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Settings of membership.
    pub council: ConsensusConfig,
    /// Settings of replication.
    pub replica: ReplicaConfig,
    /// Number of backups of each partition; decided by the founder of the grid.
    pub backups: usize,
    /// Number of partitions; the same for all members.
    pub partitions: u32,
    /// Maximum resync rate of this member in bytes per second.
    pub refill_rate: u64,
    /// Memory limit of all replicas of a member except guest maps, in bytes.
    pub limit: u64,
    /// Memory limit of guest maps, in bytes.
    pub guest_limit: u64,
    /// Timeout of an operation.
    pub patience: Duration,
    /// Delay before a refused operation is retried.
    pub retry: Duration,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            council: ConsensusConfig::default(),
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
