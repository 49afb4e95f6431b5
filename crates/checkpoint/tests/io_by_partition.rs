//! Restore by partition returns the same state as restore in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ardea_checkpoint::io::StateReading;
use ardea_checkpoint::store::{
    Checkpoint, CheckpointId, CheckpointStore, Commit, MemoryStore, ObjectStore, PartitionRange,
    SnapshotKind, SnapshotOwner, StateHandle, StoreConfig,
};
use ardea_core::{
    Epoch, ErrorCode, Instance, PARTITION_COUNT, PartitionId, StateChunk, Timestamp, Waker,
};
use ardea_engine::{InstanceName, RestoreReader, RestoreSource, SnapshotRead};

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 30_000;

/// The value of each entry, by state name and key.
type Entries = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Creates a checkpoint of two layers. A state has many keys, some of which the second layer
/// removes or changes. There are also a few keys of another state, and unpartitioned entries.
fn checkpoint(folder: &Arc<MemoryStore>) -> Checkpoint {
    let folder = Arc::clone(folder) as Arc<dyn ObjectStore>;
    let store = CheckpointStore::open(folder, "job", StoreConfig::default()).unwrap();
    let commit = |epoch: u64, kind, write: &dyn Fn(&mut ardea_checkpoint::store::BlockWriter)| {
        let id = CheckpointId::new(1, Epoch(epoch));
        let of = SnapshotOwner {
            checkpoint: id,
            vertex: "counts".into(),
            instance: 0,
            instances: 1,
        };
        let mut writer = store.writer(of, kind).unwrap();
        write(&mut writer);
        let snapshots = vec![writer.finish().unwrap()];
        let base = (epoch > 1).then(|| CheckpointId::new(1, Epoch(epoch - 1)));
        let at = Timestamp::from_secs(epoch as i64);
        store
            .commit(&Commit {
                id,
                base,
                at,
                snapshots,
            })
            .unwrap();
    };
    let partitions = PartitionRange::ALL;
    commit(1, SnapshotKind::Full { partitions }, &|writer| {
        writer.set("@watermark", None, b"x", b"7").unwrap();
        for key in 0..KEYS {
            let (place, bytes) = (Some(PartitionId::of(&key)), key.to_le_bytes());
            let value: Vec<u8> = (0..300).map(|at| (key * 31 + at * at) as u8).collect();
            writer.set("keys", place, &bytes, &value).unwrap();
            if key % 1_000 == 0 {
                writer.set("more", place, &bytes, b"m").unwrap();
            }
        }
    });
    let since = CheckpointId::new(1, Epoch(1));
    commit(2, SnapshotKind::Increment { since }, &|writer| {
        for key in (0..KEYS).step_by(7) {
            let (place, bytes) = (Some(PartitionId::of(&key)), key.to_le_bytes());
            match key % 2 {
                0 => writer.remove("keys", place, &bytes).unwrap(),
                _ => writer.set("keys", place, &bytes, b"new").unwrap(),
            }
        }
    });
    store.latest().unwrap().unwrap()
}

fn open(reading: &StateReading, index: u32, parallelism: u32) -> Box<dyn RestoreReader> {
    let of = InstanceName {
        vertex: "counts".into(),
        instance: Instance { index, parallelism },
    };
    reading.open(&of).unwrap()
}

/// Calls the reader repeatedly until it returns a result.
fn read(reader: &mut dyn RestoreReader, into: &mut StateChunk) -> ardea_core::Result<SnapshotRead> {
    loop {
        let (wakes, woken) = channel();
        let waker = Waker::new(move || {
            let _ = wakes.send(());
        });
        into.clear();
        match reader.read(into, &waker)? {
            SnapshotRead::Pending => woken.recv_timeout(PATIENCE).expect("it is read"),
            read => return Ok(read),
        }
    }
}

fn take(chunk: &StateChunk, into: &mut Entries) {
    for entry in chunk.entries() {
        let key = (entry.state.to_string(), entry.key.to_vec());
        let before = into.insert(key, entry.value.unwrap().to_vec());
        assert_eq!(before, None, "each key comes once");
    }
}

fn whole(reader: &mut dyn RestoreReader, own: &dyn Fn(PartitionId) -> bool) -> Entries {
    let (mut chunk, mut entries) = (StateChunk::default(), Entries::new());
    while read(reader, &mut chunk).unwrap() == SnapshotRead::Entries {
        take(&chunk, &mut entries);
    }
    entries.retain(|(state, key), _| state == "@watermark" || own(PartitionId::of_canonical(key)));
    entries
}

#[test]
fn partitions_come_whole_each_once_and_all_together_are_everything() {
    let checkpoint = checkpoint(&Arc::default());
    for threads in [1, 3] {
        let is_read = Arc::<AtomicBool>::default();
        let tells = Arc::clone(&is_read);
        let when_read = move || tells.store(true, Ordering::SeqCst);
        let here = BTreeMap::from([("counts".to_string(), 1)]);
        let reading = StateReading::start(checkpoint.clone(), threads, here, when_read).unwrap();
        let own = |it: PartitionId| it.owner(2) == 1;
        let expected = whole(&mut *open(&reading, 1, 2), &own);

        let mut reader = open(&reading, 1, 2);
        reading.all_are_open();
        assert!(reader.entries_by_partition().unwrap() >= expected.len() as u64);
        reader.read_by_partition();
        let (mut chunk, mut entries) = (StateChunk::default(), Entries::new());
        let (mut has_base, mut back) = (false, BTreeSet::new());
        loop {
            match read(&mut *reader, &mut chunk).unwrap() {
                SnapshotRead::Entries => {
                    for entry in chunk.entries() {
                        let partition = entry.partition;
                        assert_eq!(has_base, partition.is_some(), "what has none comes first");
                        assert!(partition.is_none_or(|it| !back.contains(&it)));
                    }
                    take(&chunk, &mut entries);
                }
                SnapshotRead::Base => has_base = true,
                SnapshotRead::Partition(partition) => assert!(back.insert(partition)),
                SnapshotRead::End => break,
                SnapshotRead::Pending => unreachable!("it was waited for"),
            }
        }
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        assert!(back.into_iter().eq(all.filter(|it| own(*it))));
        assert!(entries == expected, "{} {}", entries.len(), expected.len());
        assert!(is_read.load(Ordering::SeqCst), "all have all");
    }
}

#[test]
fn what_is_waited_for_comes_before_all_that_is_not_on_its_way() {
    let checkpoint = checkpoint(&Arc::default());
    let reading = StateReading::start(checkpoint, 1, BTreeMap::new(), || {}).unwrap();
    let mut reader = open(&reading, 0, 1);
    reader.read_by_partition();
    let last = PartitionId::from_index(PARTITION_COUNT - 1).unwrap();
    reader.prioritize(&[last]);
    let (mut chunk, mut order) = (StateChunk::default(), Vec::new());
    loop {
        match read(&mut *reader, &mut chunk).unwrap() {
            SnapshotRead::Partition(partition) => order.push(partition),
            SnapshotRead::End => break,
            _ => {}
        }
    }
    // Only the first piece may already be in progress.
    let place = |index| order.iter().position(|it| it.index() == index).unwrap();
    assert!(place(PARTITION_COUNT - 1) < place(PARTITION_COUNT / 2));
}

#[test]
fn a_checkpoint_that_was_read_whole_is_held_by_nobody() {
    let folder = Arc::<MemoryStore>::default();
    let read_from = checkpoint(&folder).id();
    let config = StoreConfig {
        keep: 1,
        ..StoreConfig::default()
    };
    let folder = Arc::clone(&folder) as Arc<dyn ObjectStore>;
    let store = CheckpointStore::open(folder, "job", config).unwrap();
    let (reads, all_read) = channel();
    let when_read = move || reads.send(()).unwrap();
    let of = store.checkpoint(read_from).unwrap();
    let reading = StateReading::start(of, 2, BTreeMap::new(), when_read).unwrap();
    let mut reader = open(&reading, 0, 1);
    reading.all_are_open();
    let id = read_from.next();
    let snapshots = vec![StateHandle::unchanged(SnapshotOwner {
        checkpoint: id,
        vertex: "counts".into(),
        instance: 0,
        instances: 1,
    })];
    let base = Some(read_from);
    let at = Timestamp::from_secs(3);
    store
        .commit(&Commit {
            id,
            base,
            at,
            snapshots,
        })
        .unwrap();
    let collects = || store.collect().unwrap().checkpoints.contains(&read_from);
    assert!(!collects());
    whole(&mut *reader, &|_| true);
    all_read.recv_timeout(PATIENCE).unwrap();
    drop(reader);
    // One of the threads may not have released the checkpoint yet.
    let deadline = Instant::now() + PATIENCE;
    while !collects() {
        assert!(Instant::now() < deadline, "it is held");
        std::thread::yield_now();
    }
    let of = InstanceName {
        vertex: "counts".into(),
        instance: Instance::ONLY,
    };
    let error = reading.open(&of).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
}

#[test]
fn a_damaged_block_is_told_and_not_passed_over() {
    let folder = Arc::<MemoryStore>::default();
    let checkpoint = checkpoint(&folder);
    let files = folder.list().unwrap().into_iter();
    let blocks: Vec<_> = files
        .filter(|file| file.name.as_str().starts_with("block"))
        .collect();
    for file in &blocks {
        let mut bytes = folder.read(&file.name).unwrap().unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        folder.remove(&[(file.name.clone(), file.state)]).unwrap();
        folder.write(&file.name, &bytes).unwrap();
    }
    assert!(blocks.len() > 2, "{blocks:?}");
    let reading = StateReading::start(checkpoint, 2, BTreeMap::new(), || {}).unwrap();
    let mut reader = open(&reading, 0, 1);
    reader.read_by_partition();
    let mut chunk = StateChunk::default();
    let error = loop {
        match read(&mut *reader, &mut chunk) {
            Ok(SnapshotRead::End) => panic!("it was passed over"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
}
