//! The conformance suite on files.

use ardea_metastore::conformance::Plan;
use ardea_metastore::{FileState, StateOptions};

fn plan() -> Plan {
    Plan::Files
}

ardea_metastore::conformance_suite!(plan);

#[test]
fn many_that_make_the_same_root_at_once_all_have_it() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        let all_at_once = std::sync::Barrier::new(8);
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = { runtime }.enable_all().build().unwrap();
                    all_at_once.wait();
                    let opened = FileState::open(&root, StateOptions::default());
                    runtime.block_on(opened).unwrap();
                });
            }
        });
    }
}
