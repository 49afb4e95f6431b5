//! What instances say of the age of their state gets into snapshots.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ardea_checkpoint::io::{CutNews, CutPlace, CutTaker, Writers};
use ardea_checkpoint::store::{
    Commit, CutReceipt, MemoryFolder, SnapshotId, SnapshotStore, StoreConfig,
};
use ardea_core::{Cut, Epoch, Instance, StateChunk, StateEntry, Timestamp};
use ardea_engine::{Counted, CutReport, CutSink, InstanceName};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_all_instances_call_outdated_is_in_no_later_snapshot_though_one_of_them_wrote_nothing() {
    let folder = Arc::new(MemoryFolder::default());
    let store = SnapshotStore::open(Arc::clone(&folder) as _, "job", StoreConfig::default());
    let store = store.unwrap();
    let (tell, told) = channel();
    let place = CutPlace {
        folder,
        job: "job".into(),
        generation: 1,
    };
    let taker = CutTaker::new(place, Writers::start(1).unwrap(), move |news| {
        let _ = tell.send(news);
    });
    let cut_of = |index: u32, cut: Cut, chunk: StateChunk| -> CutReceipt {
        let name = InstanceName {
            vertex: "windows".into(),
            instance: Instance {
                index,
                parallelism: 2,
            },
        };
        let report = CutReport {
            cut,
            entries: chunk.len() as u64,
            bytes: chunk.byte_len() as u64,
            took: Duration::ZERO,
            counted: Counted::default(),
        };
        taker.finish(&name, report, chunk);
        match told.recv_timeout(PATIENCE).expect("the cut is written") {
            CutNews::Saved(_, _, receipt) => *receipt,
            other => panic!("{other:?}"),
        }
    };
    let mut base = None;
    for epoch in 1..=9 {
        let id = SnapshotId::new(1, Epoch(epoch));
        let cut = match base {
            None => Cut::full(Epoch(epoch)),
            Some(_) => Cut::changes(Epoch(epoch), Epoch(epoch - 1)),
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
        let cuts = vec![cut_of(0, cut, written), cut_of(1, cut, nothing)];
        let at = Timestamp::from_secs(1);
        store.commit(&Commit { id, base, at, cuts }).unwrap();
        base = Some(id);
    }
    let snapshot = store.latest().unwrap().expect("it is there");
    assert_eq!(snapshot.report().vertices[0].layers, 2);
    let mut entries = snapshot.unpartitioned("windows", "slices");
    let mut keys = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        keys.push(entry.key.to_vec());
    }
    assert_eq!(keys, [8, 9].map(|epoch: u64| epoch.to_le_bytes().to_vec()));
}
