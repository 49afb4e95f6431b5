//! Tests of damage. Each damaged byte and each missing file leads either to an error that names the
//! file, or to an earlier checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_checkpoint::store::*;
use ardea_core::ErrorCode;

use crate::site::*;

/// Creates three checkpoints, the last one with a compacted layer. Returns their contents.
fn three() -> (MemoryStore, BTreeMap<CheckpointId, Model>) {
    let folder = MemoryStore::new();
    let config = StoreConfig {
        keep: 3,
        most_layers: 2,
        ..small()
    };
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, config).expect("opened");
    let (mut model, mut committed, mut base) = (Model::new(), BTreeMap::new(), None);
    for epoch in 1..=6u8 {
        let mut changed = BTreeSet::new();
        for number in 0..4u8 {
            let place = some_partition(u32::from(number + epoch % 3));
            let key = ("s", place, vec![number]);
            // A compressible value, an incompressible one, and a removal.
            match (number + epoch) % 3 {
                0 => drop(model.remove(&key)),
                1 => drop(model.insert(key.clone(), vec![epoch; 90])),
                _ => drop(model.insert(key.clone(), vec![epoch, number])),
            }
            changed.insert(key);
        }
        let key = ("t", KeySlot::Instance(0), b"offset".to_vec());
        changed.insert(key.clone());
        model.insert(key, vec![epoch]);
        let id = id(1, u64::from(epoch));
        let of = snapshot_of(id, 0, 1);
        let snapshot = match base {
            None => write_full(&store, of, &model),
            Some(since) => write_increment(&store, of, since, &model, &changed),
        };
        store
            .commit(&commit(id, base, vec![snapshot.expect("written")]))
            .expect("committed");
        base = Some(id);
        committed.insert(id, model.clone());
        while let Some(mut fold) = store.begin_compaction() {
            while fold.step(1).expect("folded") == CompactionProgress::More {}
        }
        store.collect().expect("collected");
    }
    store.sweep(id(1, 7)).expect("swept");
    assert_nothing_is_left(&folder);
    let last = store.latest().expect("whole").expect("there").report();
    assert!(last.vertices[0].layers < 6, "something was folded");
    (folder, committed)
}

/// Reads all checkpoints in a folder whose file `damaged` was changed, and checks the results.
fn check(folder: &MemoryStore, damaged: &FileName, committed: &BTreeMap<CheckpointId, Model>) {
    let config = StoreConfig { keep: 3, ..small() };
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, config).expect("opened");
    let names_it = |error: &ardea_core::Error| {
        let is_known = matches!(
            error.code(),
            ErrorCode::CheckpointDamaged | ErrorCode::VersionMismatch
        );
        assert!(
            is_known && error.to_string().contains(damaged.as_str()),
            "{damaged}: {error}"
        );
    };
    let mut wrong = 0;
    for (id, error) in store.damaged() {
        assert!(committed.contains_key(&id));
        names_it(&error);
        wrong += 1;
    }
    for id in store.checkpoints() {
        let checkpoint = store.checkpoint(id).expect("it is there");
        let (verified, read) = (checkpoint.verify(), read(&checkpoint, 2));
        match &verified {
            Ok(()) => assert_eq!(read.as_ref().expect("whole"), &committed[&id]),
            Err(error) => {
                names_it(error);
                wrong += 1;
            }
        }
        match read {
            // The damage may be in data that is no longer valid.
            Ok(model) => assert_eq!(model, committed[&id]),
            Err(error) => names_it(&error),
        }
    }
    let is_gone = files(folder).len() < committed.len();
    assert!(
        wrong > 0 || is_gone || damaged.as_str().ends_with(".manifest"),
        "{damaged}"
    );
    let found = store.newest_whole();
    found.broken.iter().for_each(|(_, error)| names_it(error));
    if let Some(checkpoint) = found.checkpoint {
        assert_eq!(
            read(&checkpoint, 1).expect("whole"),
            committed[&checkpoint.id()]
        );
    }
}

#[test]
fn every_damaged_byte_is_an_error_that_names_the_file_or_costs_the_newest_checkpoint() {
    let (folder, committed) = three();
    let newest = *committed.keys().last().expect("there are some");
    for name in files(&folder) {
        let good = folder.read(&name).expect("read").expect("it is there");
        let copy = copy_of(&folder);
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << (at % 8);
            replace(&copy, &name, Some(&bad));
            check(&copy, &name, &committed);
        }
        for bad in [
            &good[..good.len() - 1],
            &good[..0],
            &[&good[..], b"x"].concat(),
        ] {
            replace(&copy, &name, Some(bad));
            check(&copy, &name, &committed);
        }
        // A damaged manifest is never treated like a missing one.
        if name.as_str() == format!("checkpoint-1-{}.manifest", newest.epoch.0) {
            replace(&copy, &name, Some(b"x"));
            let store =
                CheckpointStore::open(Arc::new(copy.clone()), JOB, small()).expect("opened");
            let error = store.latest().expect_err("damaged");
            assert!(error.to_string().contains(name.as_str()), "{error}");
        }
    }
}

#[test]
fn every_missing_file_is_an_error_that_names_it_or_costs_one_checkpoint() {
    let (folder, committed) = three();
    for name in files(&folder) {
        let copy = copy_of(&folder);
        replace(&copy, &name, None);
        check(&copy, &name, &committed);
        let store = CheckpointStore::open(Arc::new(copy), JOB, small()).expect("opened");
        assert!(store.checkpoints().len() >= 2, "{name}");
    }
}

#[test]
fn a_block_in_the_place_of_another_is_noticed() {
    let (folder, committed) = three();
    let blocks: Vec<_> = files(&folder)
        .into_iter()
        .filter(|name| name.as_str().ends_with(".block"))
        .collect();
    for pair in blocks.windows(2) {
        let [one, other] = [&pair[0], &pair[1]].map(|name| {
            let bytes = folder.read(name).expect("read");
            bytes.expect("it is there")
        });
        // A compaction of one entry results in an equal block.
        if one != other {
            let copy = copy_of(&folder);
            replace(&copy, &pair[0], Some(&other));
            check(&copy, &pair[0], &committed);
        }
    }
}

#[test]
fn nothing_that_a_damaged_manifest_may_refer_to_is_removed_until_enough_are_newer() {
    let (folder, _) = three();
    let copy = copy_of(&folder);
    let name = FileName::new("checkpoint-1-6.manifest").expect("a name");
    let good = copy.read(&name).expect("read").expect("it is there");
    replace(&copy, &name, Some(b"damaged"));
    let open = || CheckpointStore::open(Arc::new(copy.clone()), JOB, small()).expect("opened");
    let store = open();
    store.collect().expect("collected");
    store.sweep(id(2, 0)).expect("swept");
    // The file is restored.
    replace(&copy, &name, Some(&good));
    let mended = open();
    mended
        .latest()
        .expect("mended")
        .expect("there")
        .verify()
        .expect("whole");
    // The file is not restored, and the job continues.
    replace(&copy, &name, Some(b"damaged"));
    let store = open();
    for epoch in 1..=2 {
        let id = id(2, epoch);
        let snapshot = write_full(&store, snapshot_of(id, 0, 1), &Model::new()).expect("written");
        store
            .commit(&commit(id, None, vec![snapshot]))
            .expect("committed");
    }
    store.collect().expect("collected");
    assert_eq!(store.damaged().len(), 0);
    store.sweep(id(2, 3)).expect("swept");
    assert_eq!(files(&copy).len(), 2, "two checkpoints without any state");
}

#[test]
fn a_fold_that_meets_damage_asks_for_a_full_snapshot_and_harms_nothing() {
    let folder = MemoryStore::new();
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let (mut model, mut base) = (Model::new(), None);
    for epoch in 1..=5u8 {
        let key = ("s", some_partition(1), vec![epoch]);
        model.insert(key.clone(), vec![epoch]);
        let id = id(1, u64::from(epoch));
        let of = snapshot_of(id, 0, 1);
        let snapshot = match base {
            None => write_full(&store, of, &model),
            Some(since) => write_increment(&store, of, since, &model, &BTreeSet::from([key])),
        };
        store
            .commit(&commit(id, base, vec![snapshot.expect("written")]))
            .expect("committed");
        base = Some(id);
    }
    let is_block = |name: &&FileName| name.as_str().starts_with("block-1-3-");
    let names = files(&folder);
    let name = names.iter().find(is_block).expect("of epoch 3");
    replace(&folder, name, Some(b"damaged"));
    let mut fold = store.begin_compaction().expect("there are five layers");
    let error = loop {
        if let Err(error) = fold.step(100) {
            break error;
        }
    };
    assert!(error.to_string().contains(name.as_str()), "{error}");
    assert_eq!(
        fold.step(100).expect_err("still").to_string(),
        error.to_string()
    );
    drop(fold);
    assert!(store.wants_full(VERTEX));
    assert!(store.begin_compaction().is_none());
    assert_eq!(
        store.newest_whole().checkpoint.expect("earlier").id(),
        id(1, 2)
    );
    // A full snapshot requires no older data.
    let id = id(1, 6);
    let snapshot = write_full(&store, snapshot_of(id, 0, 1), &model).expect("written");
    store
        .commit(&commit(id, base, vec![snapshot]))
        .expect("committed");
    assert!(!store.wants_full(VERTEX));
    let latest = store.latest().expect("whole").expect("there");
    assert_eq!(read(&latest, 1).expect("whole"), model);
}
