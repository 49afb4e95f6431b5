//! Members that watch a map, with lost messages and lost members.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    EntryBatch, EntryEvent, MapId, Member, MemberId, Message, NoFunctions, Node, NodeAction,
    NodeConfig, NodeEvent, Operation, When,
};
use bytes::Bytes;
use proptest::prelude::*;

const MAP: MapId = MapId(1);
const OTHER: MapId = MapId(2);
const PARTITIONS: u32 = 8;

/// A watching member's copy of a map.
#[derive(Default)]
struct Mirror {
    is_watched: bool,
    entries: BTreeMap<Bytes, Bytes>,
    missed: BTreeSet<u32>,
    told: Vec<EntryEvent>,
    confirmed: BTreeMap<MemberId, Duration>,
}

struct Harbour {
    nodes: BTreeMap<u64, Node>,
    mirrors: BTreeMap<u64, Mirror>,
    /// The numbers of the watch messages that are lost.
    lost: BTreeSet<u64>,
    words: u64,
    now: Duration,
    asked: u64,
}

fn member(id: u64) -> Member {
    Member::new(MemberId(id), format!("host-{id}"), id.to_string())
}

fn partition_of(key: &[u8]) -> PartitionId {
    PartitionId::from_index(u32::from(key[0]) % PARTITIONS).unwrap()
}

impl Harbour {
    fn of(count: u64, is_synchronous: bool) -> Self {
        let mut config = NodeConfig {
            partitions: PARTITIONS,
            ..NodeConfig::default()
        };
        config.replica.is_synchronous = is_synchronous;
        let mut nodes = BTreeMap::new();
        for id in 1..=count {
            let (config, functions) = (config.clone(), Arc::new(NoFunctions));
            let node = match id {
                1 => Node::found(member(1), config, functions),
                _ => Node::join(member(id), vec!["1".into()], config, functions),
            };
            nodes.insert(id, node);
        }
        let mut harbour = Harbour {
            nodes,
            mirrors: BTreeMap::new(),
            lost: BTreeSet::new(),
            words: 0,
            now: Duration::ZERO,
            asked: 0,
        };
        harbour.pass(10_000);
        harbour
    }

    fn happens(&mut self, id: u64, event: NodeEvent) {
        let mut todo = VecDeque::from([(id, event)]);
        while let Some((id, event)) = todo.pop_front() {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            let me = node.me().clone();
            for action in node.on(self.now, event) {
                if let NodeAction::SendMessage(to, word) = action {
                    if let Message::Watch(_) = word {
                        self.words += 1;
                        if self.lost.contains(&self.words) {
                            continue;
                        }
                    }
                    let to: u64 = to.endpoint.parse().unwrap();
                    todo.push_back((to, NodeEvent::From(me.clone(), word)));
                } else {
                    self.is_told(id, action);
                }
            }
        }
    }

    fn is_told(&mut self, id: u64, action: NodeAction) {
        let mirror = self.mirrors.entry(id).or_default();
        match action {
            NodeAction::Watched(MAP) => mirror.is_watched = true,
            NodeAction::Missed(MAP, partition) => {
                mirror.missed.insert(partition);
            }
            NodeAction::Confirmed(by, at) => {
                mirror.confirmed.insert(by, at);
            }
            NodeAction::Happened(MAP, partition, news) => {
                for what in news {
                    assert_eq!(partition_of(what.key()).index(), partition);
                    match &what {
                        EntryEvent::Set { key, value, is_new } => {
                            let before = mirror.entries.insert(key.clone(), value.clone());
                            let is_exact = !mirror.missed.contains(&partition);
                            assert!(!is_exact || before.is_none() == *is_new);
                        }
                        EntryEvent::Removed { key } => {
                            mirror.entries.remove(key);
                        }
                    }
                    mirror.told.push(what);
                }
            }
            _ => {}
        }
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.now += Duration::from_millis(20);
            let ids: Vec<u64> = self.nodes.keys().copied().collect();
            for id in ids {
                self.happens(id, NodeEvent::Tick);
            }
        }
    }

    fn ask(&mut self, at: u64, partition: PartitionId, operation: Operation) {
        self.asked += 1;
        let ask = NodeEvent::Ask(self.asked, partition, operation);
        self.happens(at, ask);
    }

    fn put(&mut self, at: u64, map: MapId, key: u8, value: u64) {
        let put = Operation::Put {
            map,
            key: vec![key].into(),
            value: value.to_le_bytes().to_vec().into(),
            expires: None,
            when: When::Always,
        };
        self.ask(at, partition_of(&[key]), put);
    }

    /// Puts entries of one partition in one operation.
    fn put_all(&mut self, at: u64, entries: &[(u8, u64)]) {
        let mut bunch = EntryBatch::default();
        for (key, value) in entries {
            bunch.push(&[*key], &value.to_le_bytes());
        }
        let put_all = Operation::PutAll {
            map: MAP,
            pairs: bunch.finish(),
            expires: None,
        };
        self.ask(at, partition_of(&[entries[0].0]), put_all);
    }

    fn remove(&mut self, at: u64, key: u8) {
        let remove = Operation::Remove {
            map: MAP,
            key: vec![key].into(),
        };
        self.ask(at, partition_of(&[key]), remove);
    }

    /// Returns the content of a map in a partition.
    fn content(&self, partition: u32) -> BTreeMap<Bytes, Bytes> {
        let partition = PartitionId::from_index(partition).unwrap();
        let node = self.nodes.values().next().unwrap();
        let view = node.view().unwrap();
        let primary = view.record(partition).unwrap().primary().unwrap();
        let content = self.nodes[&primary.0].look_at(partition, |replica| replica.content());
        let mine = content.unwrap().into_iter();
        mine.filter(|parcel| parcel.map == MAP)
            .map(|parcel| (parcel.key, parcel.value))
            .collect()
    }

    /// Returns true if a copy is equal to the map, except in partitions reported as missed.
    fn is_exact(&self, at: u64) -> bool {
        let mirror = &self.mirrors[&at];
        let mut told = (0..PARTITIONS).filter(|partition| !mirror.missed.contains(partition));
        told.all(|partition| {
            let is_here = |key: &Bytes| partition_of(key).index() == partition;
            let mine = mirror.entries.iter().filter(|(key, _)| is_here(key));
            mine.map(|(key, value)| (key.clone(), value.clone()))
                .eq(self.content(partition))
        })
    }

    fn watch(&mut self, at: u64) {
        self.happens(at, NodeEvent::Watch(MAP));
        for partition in 0..PARTITIONS {
            let content = self.content(partition);
            let mirror = self.mirrors.entry(at).or_default();
            mirror.entries.extend(content);
        }
    }
}

#[test]
fn who_watches_is_told_all_that_happens_wherever_it_happens() {
    let mut harbour = Harbour::of(3, true);
    harbour.put(1, MAP, 7, 1);
    harbour.watch(2);
    assert!(harbour.mirrors[&2].is_watched);
    for key in 0..20 {
        harbour.put(u64::from(key) % 3 + 1, MAP, key, 2);
        harbour.put(1, OTHER, key, 3);
    }
    harbour.remove(3, 5);
    harbour.remove(3, 5);
    let of_five: Vec<EntryEvent> = {
        let told = harbour.mirrors[&2].told.iter();
        told.filter(|what| what.key()[..] == [5]).cloned().collect()
    };
    let key = Bytes::from_static(&[5]);
    let set = EntryEvent::Set {
        key: key.clone(),
        value: 2_u64.to_le_bytes().to_vec().into(),
        is_new: true,
    };
    assert_eq!(of_five, [set, EntryEvent::Removed { key }]);
    assert_eq!(harbour.mirrors[&2].told.len(), 21);
    assert!(harbour.is_exact(2) && harbour.mirrors[&2].missed.is_empty());
    for partition in (0..PARTITIONS).filter_map(PartitionId::from_index) {
        harbour.ask(1, partition, Operation::Clear(MAP));
    }
    assert!(harbour.mirrors[&2].entries.is_empty());
    harbour.happens(2, NodeEvent::Unwatch(MAP));
    harbour.put(1, MAP, 9, 9);
    assert!(harbour.mirrors[&2].entries.is_empty());
}

#[test]
fn who_watches_is_told_of_each_key_that_was_put_with_others() {
    let mut harbour = Harbour::of(3, true);
    harbour.watch(2);
    let of_one = |key: &u8| partition_of(&[*key]) == partition_of(&[0]);
    let keys: Vec<u8> = (0..u8::MAX).filter(of_one).take(3).collect();
    harbour.put(1, MAP, keys[1], 1);
    harbour.put_all(3, &[(keys[0], 2), (keys[1], 3), (keys[2], 4), (keys[0], 5)]);
    let told: Vec<(u8, u64, bool)> = harbour.mirrors[&2]
        .told
        .iter()
        .map(|what| match what {
            EntryEvent::Set { key, value, is_new } => {
                let value = u64::from_le_bytes(*value.first_chunk().unwrap());
                (key[0], value, *is_new)
            }
            EntryEvent::Removed { key } => panic!("{key:?} is there"),
        })
        .collect();
    assert_eq!(
        told,
        [
            (keys[1], 1, true),
            (keys[0], 2, true),
            (keys[1], 3, false),
            (keys[2], 4, true),
            (keys[0], 5, false),
        ]
    );
    assert!(harbour.is_exact(2));
}

#[test]
fn who_watches_is_told_by_whom_all_has_been_told() {
    let mut harbour = Harbour::of(3, true);
    harbour.watch(2);
    harbour.pass(1_000);
    let confirmed = &harbour.mirrors[&2].confirmed;
    assert_eq!(confirmed.len(), 3);
    assert!(
        confirmed
            .values()
            .all(|at| *at + Duration::from_millis(300) > harbour.now)
    );
    harbour.nodes.remove(&3);
    harbour.pass(1_000);
    let since = harbour.now - harbour.mirrors[&2].confirmed[&MemberId(3)];
    assert!(since >= Duration::from_secs(1));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u8, u64),
    Remove(u64, u8),
    Passes(u64),
    Goes,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (1..=4_u64, 0..16_u8, any::<u64>()).prop_map(|(at, key, value)| Step::Put(at, key, value)),
        8 => (1..=4_u64, 0..16_u8).prop_map(|(at, key)| Step::Remove(at, key)),
        4 => (20..400_u64).prop_map(Step::Passes),
        1 => Just(Step::Goes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_told_is_what_there_is_or_it_is_told_that_something_was_missed(
        is_synchronous in any::<bool>(),
        lost in prop::collection::btree_set(0..2_000_u64, 0..12),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut harbour = Harbour::of(4, is_synchronous);
        harbour.put(1, MAP, 3, 3);
        harbour.watch(2);
        harbour.lost = lost.into_iter().map(|number| harbour.words + number).collect();
        let mut gone = [4, 3].into_iter();
        for step in steps {
            match step {
                Step::Put(at, key, value) => harbour.put(at, MAP, key, value),
                Step::Remove(at, key) => harbour.remove(at, key),
                Step::Passes(millis) => harbour.pass(millis),
                Step::Goes => {
                    if let Some(id) = gone.next() {
                        harbour.nodes.remove(&id);
                        harbour.happens(1, NodeEvent::Dead(MemberId(id)));
                        harbour.pass(5_000);
                    }
                }
            }
        }
        harbour.lost.clear();
        harbour.pass(15_000);
        prop_assert!(harbour.mirrors[&2].is_watched);
        prop_assert!(harbour.is_exact(2), "missed {:?}", harbour.mirrors[&2].missed);
    }
}
