//! The metadata store's server is killed and comes back.

use crate::cluster::{Cluster, JOB};
use crate::measured::{Measured, now_ms};
use crate::poll::{pass, until};

/// Kills the server for 30 s. Data flows on meanwhile, and nothing is restarted.
pub fn server(cluster: &mut Cluster, measured: &mut Measured) {
    let before = cluster.workers(JOB);
    let ledger = cluster.ledger(JOB);
    cluster.server.kill();
    for _ in 0..3 {
        let records = ledger.records();
        pass(10);
        assert!(
            ledger.records() > records + 1000,
            "data stopped with the metadata store"
        );
    }
    cluster.server.restart();
    let at = now_ms();
    until("somebody leads again", 60, || cluster.describe(JOB));
    measured.note("metadata store back, job led", at, now_ms());
    cluster.all_hosts_are_there();
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    crate::deaths::only_changed(&before, cluster, &[]);
}
