//! A metadata store in a real etcd, which is killed and restarted.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ardea_metastore::conformance::{Server, Skipped};
use ardea_metastore::etcd::EtcdState;
use ardea_metastore::{MetadataStore, StateOptions, StatePath};

use crate::fixture::Fixture;
use crate::metadata_outage::without;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_a_killed_etcd() {
    let server = match Server::start("etcd.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED a test with etcd: {why}");
            return;
        }
    };
    let options = StateOptions {
        session_timeout: Duration::from_secs(3),
        timeout: Duration::from_secs(1),
    };
    let root = StatePath::parse("/harbour").unwrap();
    let state = EtcdState::connect(&[server.address().to_string()], &root, options).await;
    let state: Arc<dyn MetadataStore> = Arc::new(state.expect("it connects"));
    let rig = Fixture::over(state, None);
    let master = rig.master("a").await;
    without(&rig, &master, |away| match away {
        true => server.kill(),
        false => server.restart(),
    })
    .await;
}
