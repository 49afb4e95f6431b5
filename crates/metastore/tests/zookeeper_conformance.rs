//! The conformance suite on a real ZooKeeper server.

use ardea_core::Result;
use ardea_metastore::conformance::Plan;
use ardea_metastore::zookeeper::ZooKeeperState;
use ardea_metastore::{MetadataStore, Pending, StateOptions, StatePath};
use std::sync::Arc;

fn plan() -> Plan {
    Plan::Server {
        script: "zookeeper.sh",
        connect,
    }
}

fn connect(
    servers: Vec<String>,
    root: StatePath,
    options: StateOptions,
) -> Pending<'static, Arc<dyn MetadataStore>> {
    Box::pin(async move {
        let state: Result<_> = ZooKeeperState::connect(&servers, &root, options).await;
        Ok(Arc::new(state?) as Arc<dyn MetadataStore>)
    })
}

ardea_metastore::conformance_suite!(plan, with faults);
