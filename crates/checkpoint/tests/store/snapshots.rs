//! Tests of single snapshots: the size of blocks, their ranges of partitions, and limits.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ardea_checkpoint::store::*;
use ardea_core::{ErrorCode, PARTITION_COUNT, PartitionId, Result};
use bytes::Bytes;

use crate::site::*;

/// A store that records which files were read.
#[derive(Debug, Default)]
struct Watched {
    files: MemoryStore,
    read: Mutex<BTreeSet<FileName>>,
}

impl ObjectStore for Watched {
    fn place(&self) -> String {
        self.files.place()
    }
    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.files.write(name, bytes)
    }
    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        self.read.lock().expect("no panic").insert(name.clone());
        self.files.read(name)
    }
    fn list(&self) -> Result<Vec<FileEntry>> {
        self.files.list()
    }
    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        self.files.remove(files)
    }
}

fn full() -> SnapshotKind {
    SnapshotKind::Full {
        partitions: PartitionRange::ALL,
    }
}

fn index(number: u32) -> Option<PartitionId> {
    PartitionId::from_index(number)
}

#[test]
fn reading_some_partitions_reads_only_the_blocks_that_have_them() {
    let folder = Arc::new(Watched::default());
    let config = StoreConfig {
        blocks: BlockConfig {
            block_bytes: 4 << 10,
            buffer_bytes: 256 << 10,
        },
        ..StoreConfig::default()
    };
    let store = CheckpointStore::open(Arc::clone(&folder) as Arc<dyn ObjectStore>, JOB, config)
        .expect("opened");
    let at = id(1, 1);
    let mut writer = store.writer(snapshot_of(at, 0, 1), full()).expect("begun");
    // The entries come in the order of a hash map: consecutive entries are never in the same
    // partition.
    for number in 0..20_000u32 {
        let key = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
        writer
            .set("s", index(number * 389 % PARTITION_COUNT), &key, &key)
            .expect("written");
    }
    let receipt = writer.finish().expect("written");
    let blocks = files(&folder.files).len();
    assert!(blocks > 50, "{blocks}");
    assert_eq!(receipt.entries(), 20_000);
    store
        .commit(&commit(at, None, vec![receipt]))
        .expect("committed");

    let checkpoint = store.latest().expect("whole").expect("there");
    let buffers = (20_000 * 60) / (256 << 10) + 1;
    let range = PartitionRange::new(500, 501).expect("a range");
    folder.read.lock().expect("no panic").clear();
    let mut entries = checkpoint.entries(VERTEX, "s", range);
    let mut found = 0;
    while let Some(entry) = entries.next_entry().expect("read") {
        assert_eq!(entry.place, partition(500));
        found += 1;
    }
    assert_eq!(
        found,
        (0..20_000u32)
            .filter(|number| number * 389 % PARTITION_COUNT == 500)
            .count()
    );
    let read = folder.read.lock().expect("no panic").len();
    assert!(read <= 2 * buffers, "{read} of {blocks}");
}

#[test]
fn an_entry_that_is_larger_than_a_block_comes_back_and_others_with_it() {
    let folder = MemoryStore::new();
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, StoreConfig::default())
        .expect("opened");
    let at = id(1, 1);
    let mut writer = store.writer(snapshot_of(at, 0, 1), full()).expect("begun");
    // Incompressible bytes.
    let large: Vec<u8> = (0..3u32 << 20)
        .map(|n| (n.wrapping_mul(0x9e37_79b1) >> 13) as u8)
        .collect();
    for key in 0..5u8 {
        let value = if key == 2 { &large[..] } else { &[key] };
        writer.set("s", index(7), &[key], value).expect("written");
    }
    let receipt = writer.finish().expect("written");
    store
        .commit(&commit(at, None, vec![receipt]))
        .expect("committed");
    let checkpoint = store.latest().expect("whole").expect("there");
    let mut entries = checkpoint.entries(VERTEX, "s", PartitionRange::ALL);
    for key in 0..5u8 {
        let entry = entries
            .next_entry()
            .expect("read")
            .expect("there is one more");
        assert_eq!(entry.key, [key]);
        let small = [key];
        assert!(entry.value == if key == 2 { &large[..] } else { &small });
    }
    assert_eq!(entries.next_entry().expect("read"), None);
    assert_eq!(
        files(&folder).len(),
        4,
        "before it, it, behind it, and the manifest"
    );
}

#[test]
fn what_does_not_fit_the_format_is_refused() {
    let store = CheckpointStore::open(Arc::new(MemoryStore::new()), JOB, small()).expect("opened");
    let name = "x".repeat(5_000);
    let mut writer = store
        .writer(snapshot_of(id(1, 1), 0, 1), full())
        .expect("begun");
    let error = writer.set(&name, None, b"k", b"v").expect_err("too long");
    assert_eq!(error.code(), ErrorCode::LimitReached);
    let of = SnapshotOwner {
        vertex: name,
        ..snapshot_of(id(1, 1), 0, 1)
    };
    assert_eq!(
        store.writer(of, full()).expect_err("too long").code(),
        ErrorCode::LimitReached
    );
    let error = store
        .writer(snapshot_of(id(1, 1), 2, 2), full())
        .expect_err("no such instance");
    assert_eq!(error.code(), ErrorCode::Internal);
}

#[test]
fn a_snapshot_is_written_and_a_checkpoint_read_on_any_thread() {
    fn may_move<T: Send>() {}
    fn may_be_shared<T: Send + Sync>() {}
    may_move::<BlockWriter>();
    may_move::<Compaction>();
    may_move::<Entries>();
    may_be_shared::<CheckpointStore>();
    may_be_shared::<Checkpoint>();
}

#[test]
fn a_process_that_only_reads_opens_one_checkpoint() {
    let folder = MemoryStore::new();
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let model = Model::from([(("s", some_partition(3), vec![1]), vec![2])]);
    let snapshot = write_full(&store, snapshot_of(id(1, 1), 0, 1), &model).expect("written");
    store
        .commit(&commit(id(1, 1), None, vec![snapshot]))
        .expect("committed");
    let checkpoint = Checkpoint::open(Arc::new(folder.clone()), JOB, id(1, 1)).expect("opened");
    assert_eq!(read(&checkpoint, 2).expect("read"), model);
    let error = Checkpoint::open(Arc::new(folder), JOB, id(1, 2)).expect_err("none");
    assert_eq!(error.code(), ErrorCode::NoSuchCheckpoint);
    let mut none = checkpoint.entries("nobody", "s", PartitionRange::ALL);
    assert_eq!(none.next_entry().expect("read"), None);
}
