//! Tests with checkpoints in a real object store.

mod unconditional;

use std::io::Write;
use std::sync::{Arc, OnceLock};

use ardea_checkpoint::s3::{Credentials, S3Store};
use ardea_checkpoint::store::conformance::CHECKS;
use ardea_checkpoint::store::*;
use ardea_core::{Epoch, ErrorCode, PartitionId, Timestamp};
use ardea_metastore::conformance::{Server, Skipped};

/// Starts an object store server. If this is not possible, prints a message to standard error and
/// returns `None`.
fn own_server() -> Option<Server> {
    match Server::start("minio.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of object stores: {why}");
            None
        }
    }
}

fn shared_server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(own_server).as_ref()
}

fn address(server: &Server, prefix: &str) -> String {
    format!("s3://states/{prefix}?endpoint=http://{}", server.address())
}

fn open(server: &Server, prefix: &str) -> S3Store {
    S3Store::open_as(&address(server, prefix), &credentials("ardea-secret")).expect("opened")
}

fn credentials(secret: &str) -> Credentials {
    Credentials {
        access_key: "ardea".into(),
        secret_key: secret.into(),
    }
}

fn commit(store: &CheckpointStore, epoch: u64, keys: u64) {
    let id = CheckpointId::new(1, Epoch(epoch));
    let of = SnapshotOwner {
        checkpoint: id,
        vertex: "count".into(),
        instance: 0,
        instances: 1,
    };
    let kind = SnapshotKind::Full {
        partitions: PartitionRange::ALL,
    };
    let mut writer = store.writer(of, kind).expect("a writer");
    for key in 0..keys {
        let key = key.to_be_bytes();
        let partition = PartitionId::of_canonical(&key);
        writer
            .set("counts", Some(partition), &key, &[7; 100])
            .expect("written");
    }
    let receipt = writer.finish().expect("finished");
    let at = Timestamp::from_secs(1);
    let snapshots = vec![receipt];
    let base = None;
    store
        .commit(&Commit {
            id,
            base,
            at,
            snapshots,
        })
        .expect("committed");
}

fn count(store: &CheckpointStore) -> u64 {
    let checkpoint = store.latest().expect("whole").expect("one is there");
    let mut entries = checkpoint.entries("count", "counts", PartitionRange::ALL);
    let mut count = 0;
    while entries.next_entry().expect("read").is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_bucket_keeps_the_promises_of_a_folder() {
    let Some(server) = shared_server() else {
        return;
    };
    for (number, (promise, check)) in CHECKS.iter().enumerate() {
        println!("{promise}");
        check(&open(server, &format!("promises/{number}")));
    }
}

#[test]
fn a_usual_store_is_suitable_and_nothing_of_the_probe_is_left() {
    let Some(server) = shared_server() else {
        return;
    };
    let folder = open(server, "probed");
    folder.probe().expect("suitable");
    assert!(folder.is_empty().expect("listed"));
}

#[test]
fn a_folder_with_the_probe_of_a_killed_process_is_empty() {
    let Some(server) = shared_server() else {
        return;
    };
    let folder = open(server, "left-over");
    let write = |name: &str| folder.write(&FileName::new(name).expect("a name"), b"x");
    write("probe-00000000000000ff.probe").expect("written");
    assert!(folder.is_empty().expect("listed"));
    assert!(!open(server, "").is_empty().expect("listed"));
    write("probe-of-something.probe").expect("written");
    assert!(!folder.is_empty().expect("listed"));
}

#[test]
fn checkpoints_are_there_for_another_process() {
    let Some(server) = shared_server() else {
        return;
    };
    let folder = Arc::new(open(server, "checkpoints"));
    let store = CheckpointStore::open(folder, "words", StoreConfig::default()).expect("opened");
    for epoch in 1..=5 {
        commit(&store, epoch, epoch * 10_000);
        store.collect().expect("collected");
    }
    let folder = Arc::new(open(server, "checkpoints"));
    let again = CheckpointStore::open(folder, "words", StoreConfig::default()).expect("opened");
    assert_eq!(again.checkpoints().len(), 3);
    assert_eq!(count(&again), 50_000);
}

#[test]
fn a_store_that_dies_and_comes_back_is_waited_for() {
    let Some(server) = own_server() else { return };
    let folder = Arc::new(open(&server, "dying"));
    let store = CheckpointStore::open(folder, "words", StoreConfig::default()).expect("opened");
    commit(&store, 1, 1_000);
    server.kill();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| commit(&store, 2, 2_000));
        server.restart();
        writing.join().expect("it is committed");
    });
    assert_eq!(count(&store), 2_000);
}

#[test]
fn a_bucket_that_is_not_there_is_told_and_so_is_one_that_does_not_let_in() {
    let Some(server) = shared_server() else {
        return;
    };
    let address = format!("s3://no-such-bucket/x?endpoint=http://{}", server.address());
    let opened = S3Store::open_as(&address, &credentials("ardea-secret"));
    let error = opened.expect_err("there is none");
    assert_eq!(error.code(), ErrorCode::ReadFailed);
    assert!(
        error.to_string().contains("s3://no-such-bucket/x"),
        "{error}"
    );
    let address = self::address(server, "closed");
    let opened = S3Store::open_as(&address, &credentials("a-wrong-secret"));
    let error = opened.expect_err("it does not let in");
    assert!(
        error.to_string().contains("the store denies access"),
        "{error}"
    );
    assert!(
        !format!("{error:?}").contains("a-wrong-secret"),
        "{error:?}"
    );
}
