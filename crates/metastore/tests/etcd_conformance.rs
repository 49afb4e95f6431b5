//! The conformance suite on a real etcd server.

use ardea_core::Result;
use ardea_metastore::conformance::Plan;
use ardea_metastore::etcd::EtcdState;
use ardea_metastore::{MetadataStore, Pending, StateOptions, StatePath};
use std::sync::Arc;

fn plan() -> Plan {
    Plan::Server {
        script: "etcd.sh",
        connect,
    }
}

fn connect(
    servers: Vec<String>,
    root: StatePath,
    options: StateOptions,
) -> Pending<'static, Arc<dyn MetadataStore>> {
    Box::pin(async move {
        let state: Result<_> = EtcdState::connect(&servers, &root, options).await;
        Ok(Arc::new(state?) as Arc<dyn MetadataStore>)
    })
}

ardea_metastore::conformance_suite!(plan, with faults);
