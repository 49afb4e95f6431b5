//! State that instances declare outdated is dropped from checkpoints.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ardea_checkpoint::io::{SnapshotEvent, SnapshotLocation, SnapshotWriterPool, Writers};
use ardea_checkpoint::store::{
    CheckpointId, CheckpointStore, Commit, MemoryStore, StateHandle, StoreConfig,
};
use ardea_core::{Epoch, Instance, SnapshotRequest, StateChunk, StateEntry, Timestamp};
use ardea_engine::{InstanceName, RecordCounts, SnapshotReport, SnapshotSink};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_all_instances_call_outdated_is_in_no_later_checkpoint_though_one_of_them_wrote_nothing() {
    let folder = Arc::new(MemoryStore::default());
    let store = CheckpointStore::open(Arc::clone(&folder) as _, "job", StoreConfig::default());
    let store = store.unwrap();
    let (tell, told) = channel();
    let place = SnapshotLocation {
        folder,
        job: "job".into(),
        generation: 1,
    };
    let taker = SnapshotWriterPool::new(place, Writers::start(1).unwrap(), move |news| {
        let _ = tell.send(news);
    });
    let snapshot_of = |index: u32, snapshot: SnapshotRequest, chunk: StateChunk| -> StateHandle {
        let name = InstanceName {
            vertex: "windows".into(),
            instance: Instance {
                index,
                parallelism: 2,
            },
        };
        let report = SnapshotReport {
            snapshot,
            entries: chunk.len() as u64,
            bytes: chunk.byte_len() as u64,
            took: Duration::ZERO,
            counted: RecordCounts::default(),
        };
        taker.finish(&name, report, chunk);
        match told
            .recv_timeout(PATIENCE)
            .expect("the snapshot is written")
        {
            SnapshotEvent::Saved(_, _, receipt) => *receipt,
            other => panic!("{other:?}"),
        }
    };
    let mut base = None;
    for epoch in 1..=9 {
        let id = CheckpointId::new(1, Epoch(epoch));
        let snapshot = match base {
            None => SnapshotRequest::full(Epoch(epoch)),
            Some(_) => SnapshotRequest::changes(Epoch(epoch), Epoch(epoch - 1)),
        };
        let mut written = StateChunk::default();
        let entry = StateEntry {
            state: "slices",
            partition: None,
            key: &epoch.to_le_bytes(),
            value: Some(b"counts"),
        };
        written.push(entry).unwrap();
        written.outdate("slices", Epoch(epoch - 1)).unwrap();
        let mut nothing = StateChunk::default();
        nothing.outdate("slices", Epoch(epoch)).unwrap();
        let snapshots = vec![
            snapshot_of(0, snapshot, written),
            snapshot_of(1, snapshot, nothing),
        ];
        let at = Timestamp::from_secs(1);
        store
            .commit(&Commit {
                id,
                base,
                at,
                snapshots,
            })
            .unwrap();
        base = Some(id);
    }
    let checkpoint = store.latest().unwrap().expect("it is there");
    assert_eq!(checkpoint.report().vertices[0].layers, 2);
    let mut entries = checkpoint.unpartitioned("windows", "slices");
    let mut keys = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        keys.push(entry.key.to_vec());
    }
    assert_eq!(keys, [8, 9].map(|epoch: u64| epoch.to_le_bytes().to_vec()));
}
