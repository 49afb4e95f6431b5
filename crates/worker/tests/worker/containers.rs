//! Containers as threads of this process, or as processes of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use ardea_control::{WorkerId, WorkerStart};
use ardea_core::Result;
use ardea_engine::Job;
use ardea_metrics::MetricsSinks;
use ardea_packing::{ContainerId, Resources};
use ardea_worker::{MasterFinder, Surroundings, run};

use crate::master::{AtAddress, job};

/// What a container's worker is started with. The master's address stands where the state manager's would.
pub fn start(container: u32, incarnation: u64, master: &str) -> WorkerStart {
    WorkerStart {
        worker: WorkerId {
            container: ContainerId(container),
            incarnation,
        },
        job: job(),
        state_url: master.to_string(),
        host: "127.0.0.1".into(),
        resources: Resources::UNLIMITED,
        token_file: None,
        settings: BTreeMap::from([
            ("threads".to_string(), "1".to_string()),
            ("worker.heartbeat".to_string(), "50ms".to_string()),
            ("metrics.every".to_string(), "100ms".to_string()),
        ]),
    }
}

pub fn surroundings() -> Surroundings {
    Surroundings {
        finder: Box::new(|start| {
            let finder: Arc<dyn MasterFinder> = Arc::new(AtAddress(start.state_url.clone()));
            Box::pin(async move { Ok(finder) })
        }),
        sinks: MetricsSinks::builtin(),
        transports: ardea_worker::Transports::builtin(),
    }
}

/// A container's worker on a thread of this process.
pub fn thread(start: WorkerStart, job: Arc<dyn Job>) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || run(&start, &*job, surroundings()))
}
