//! Disk stores compared with ordered maps in memory.

use std::collections::BTreeMap;

use ardea_core::{LocalChange, StateBackend};
use ardea_state::disk::DiskStore;
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn batches() -> impl Strategy<Value = Vec<BTreeMap<u8, Option<Vec<u8>>>>> {
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
    let batch = prop::collection::btree_map(any::<u8>(), value, 0..40);
    prop::collection::vec(batch, 0..12)
}

fn within(model: &Model, from: u8, until: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = model
        .iter()
        .filter(|(key, _)| (from..until).contains(&key[0]));
    range
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_place_is_an_ordered_map_whose_views_stay(batches in batches(), seen_at in 0usize..12) {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::new(folder.path(), 16 << 20);
        let mut place = store.open().unwrap();
        let mut other = store.open().unwrap();
        let mut model = Model::new();
        let mut seen = None;
        for (number, batch) in batches.into_iter().enumerate() {
            if number == seen_at {
                seen = Some((place.view(), model.clone()));
            }
            let changes: Vec<LocalChange> = batch.into_iter().map(|(key, value)| (vec![key], value)).collect();
            for (key, value) in &changes {
                match value {
                    Some(value) => model.insert(key.clone(), value.clone()),
                    None => model.remove(key),
                };
            }
            place.write(&changes).unwrap();
            other.write(&[(vec![7], Some(vec![number as u8]))]).unwrap();
        }
        seen.get_or_insert_with(|| (place.view(), model.clone()));
        for key in 0..=u8::MAX {
            prop_assert_eq!(place.get(&[key]).unwrap(), model.get(&vec![key]).cloned());
        }
        let (view, model) = seen.unwrap();
        let range: Vec<_> = view.range(&[30], &[200]).map(Result::unwrap).collect();
        prop_assert_eq!(range, within(&model, 30, 200));
        prop_assert_eq!(view.get(&[7]).unwrap(), model.get(&vec![7]).cloned());
    }
}

#[test]
fn places_share_the_memory_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::new(folder.path(), 64 << 20);
    let parts = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    };
    assert_eq!(parts(), 0, "nothing is opened before it is needed");
    let first = store.open().unwrap();
    let alone = first.memory_budget();
    let second = store.open().unwrap();
    assert_eq!(second.memory_budget(), alone / 2);
    assert_eq!(parts(), 1);
    drop(second);
    assert_eq!(first.memory_budget(), alone);
    drop(first);
    assert_eq!(parts(), 0);
}
