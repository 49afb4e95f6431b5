//! Random histories of a job against a plain map: cuts of both kinds, epochs given up, rollbacks, other numbers of instances, folding,
//! collecting and sweeping at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_snapshot::*;
use proptest::prelude::*;

use crate::site::*;

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    Set {
        loose: bool,
        state: bool,
        slot: u32,
        key: u8,
        value: u8,
    },
    Remove {
        nth: u16,
    },
    /// The end of an epoch: which instances hand over all they have, and whether it is committed.
    EndEpoch {
        full: u8,
        is_committed: bool,
    },
    Rescale {
        instances: u32,
    },
    Rollback {
        nth: u16,
    },
    Fold {
        budget: u64,
    },
    DropFold,
    Collect,
    Sweep,
    /// The process begins anew: what only it knew is forgotten.
    Reopen,
    /// Somebody begins to read a snapshot, and holds it.
    Hold {
        nth: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let set = (
        prop::bool::weighted(0.1),
        any::<bool>(),
        0u32..12,
        0u8..6,
        any::<u8>(),
    );
    let set = set.prop_map(|(loose, state, slot, key, value)| Step::Set {
        loose,
        state,
        slot,
        key,
        value,
    });
    prop_oneof![
        20 => set,
        6 => any::<u16>().prop_map(|nth| Step::Remove { nth }),
        12 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(full, is_committed)| Step::EndEpoch {
            // Mostly increments.
            full: full & full.rotate_left(3) & full.rotate_left(5),
            is_committed,
        }),
        1 => (1u32..5).prop_map(|instances| Step::Rescale { instances }),
        1 => any::<u16>().prop_map(|nth| Step::Rollback { nth }),
        6 => (1u64..600).prop_map(|budget| Step::Fold { budget }),
        1 => Just(Step::DropFold),
        3 => Just(Step::Collect),
        2 => Just(Step::Sweep),
        1 => Just(Step::Reopen),
        2 => any::<u16>().prop_map(|nth| Step::Hold { nth }),
    ]
}

/// A job, the store, and what should be in it.
struct History {
    folder: MemoryFolder,
    store: SnapshotStore,
    model: Model,
    changed: BTreeSet<Key>,
    instances: u32,
    /// Whether the next cuts have to be full.
    is_rescaled: bool,
    generation: u64,
    epoch: u64,
    base: Option<SnapshotId>,
    /// What was committed, and with how many instances.
    committed: BTreeMap<SnapshotId, (Model, u32)>,
    fold: Option<Fold>,
    held: Option<Snapshot>,
    folded: usize,
}

impl History {
    fn new() -> Self {
        let folder = MemoryFolder::new();
        History {
            store: open(&folder),
            folder,
            model: Model::new(),
            changed: BTreeSet::new(),
            instances: 2,
            is_rescaled: false,
            generation: 1,
            epoch: 0,
            base: None,
            committed: BTreeMap::new(),
            fold: None,
            held: None,
            folded: 0,
        }
    }

    /// Gives it a state that is large beside what changes in an epoch, so that not all of it is folded each time.
    fn fill(&mut self) {
        for key in 0..6 {
            for slot in 0..12 {
                let state = (slot + u32::from(key)) % 2 == 0;
                self.act(Step::Set {
                    loose: false,
                    state,
                    slot,
                    key,
                    value: 30 + key,
                });
            }
        }
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Set {
                loose,
                state,
                slot,
                key,
                value,
            } => {
                let place = match loose {
                    true => Place::Instance(slot % self.instances),
                    false => some_partition(slot),
                };
                let key = (
                    if state { "s" } else { "t" },
                    place,
                    vec![key; key as usize],
                );
                self.changed.insert(key.clone());
                self.model.insert(key, vec![value; value as usize % 40]);
            }
            Step::Remove { nth } => {
                if !self.model.is_empty() {
                    let key = self
                        .model
                        .keys()
                        .nth(usize::from(nth) % self.model.len())
                        .cloned();
                    let key = key.expect("there are so many");
                    self.model.remove(&key);
                    self.changed.insert(key);
                }
            }
            Step::EndEpoch { full, is_committed } => self.end_epoch(full, is_committed),
            Step::Rescale { instances } => self.rescale(instances),
            Step::Rollback { nth } => self.roll_back(nth),
            Step::Fold { budget } => self.fold(budget),
            Step::DropFold => self.fold = None,
            Step::Collect => {
                let collected = self.store.collect().expect("collected");
                for id in collected.snapshots {
                    assert_ne!(Some(id), self.held.as_ref().map(Snapshot::id));
                    self.committed.remove(&id).expect("it was there");
                }
            }
            Step::Sweep => {
                self.store
                    .sweep(id(self.generation, self.epoch + 1))
                    .expect("swept");
            }
            Step::Reopen => {
                (self.fold, self.held) = (None, None);
                self.store = open(&self.folder);
            }
            Step::Hold { nth } => {
                let snapshots = self.store.snapshots();
                if !snapshots.is_empty() {
                    let id = snapshots[usize::from(nth) % snapshots.len()];
                    self.held = Some(self.store.snapshot(id).expect("it is there"));
                }
            }
        }
    }

    fn end_epoch(&mut self, full: u8, is_committed: bool) {
        self.epoch += 1;
        let id = id(self.generation, self.epoch);
        let cuts: Vec<_> = (0..self.instances)
            .map(|instance| {
                let of = cut_of(id, instance, self.instances);
                let is_own = |key: &&Key| owner(key.1, self.instances) == instance;
                match self.base {
                    Some(since) if full >> instance & 1 == 0 && !self.is_rescaled => {
                        if self.changed.iter().any(|key| is_own(&key)) {
                            write_increment(&self.store, of, since, &self.model, &self.changed)
                        } else {
                            Ok(CutReceipt::unchanged(of))
                        }
                    }
                    _ => write_full(&self.store, of, &self.model),
                }
            })
            .map(|cut| cut.expect("written"))
            .collect();
        if !is_committed {
            return;
        }
        // What a base was cannot be, once it is collected: then the runtime would have asked for full cuts.
        let commit = commit(id, self.base, cuts);
        let report = self.store.commit(&commit).expect("committed");
        assert_eq!(self.store.commit(&commit).expect("again"), report);
        self.committed
            .insert(id, (self.model.clone(), self.instances));
        self.base = Some(id);
        self.changed.clear();
        self.is_rescaled = false;
    }

    /// What belongs to no partition goes to instances that there are.
    fn rescale(&mut self, instances: u32) {
        if instances == self.instances {
            return;
        }
        self.instances = instances;
        self.is_rescaled = true;
        let model = std::mem::take(&mut self.model);
        self.model = model
            .into_iter()
            .map(|((state, place, key), value)| match place {
                Place::Instance(instance) => {
                    ((state, Place::Instance(instance % instances), key), value)
                }
                place => ((state, place, key), value),
            })
            .collect();
    }

    fn roll_back(&mut self, nth: u16) {
        let snapshots = self.store.snapshots();
        if snapshots.is_empty() {
            return;
        }
        let to = snapshots[usize::from(nth) % snapshots.len()];
        // It is held until there is another, as the store's documentation asks for.
        self.held = Some(self.store.snapshot(to).expect("it is there"));
        (self.model, self.instances) = self.committed[&to].clone();
        (self.base, self.is_rescaled) = (Some(to), false);
        self.generation += 1;
        self.epoch = to.epoch.0;
        self.changed.clear();
        self.store
            .sweep(SnapshotId::start_of(self.generation))
            .expect("swept");
    }

    fn fold(&mut self, budget: u64) {
        if self.fold.is_none() {
            self.fold = self.store.fold();
        }
        if let Some(fold) = &mut self.fold
            && fold.step(budget).expect("folded") == FoldProgress::Done
        {
            self.fold = None;
            self.folded += 1;
            self.check();
        }
    }

    /// Whether every snapshot is as it was when it was committed, whoever reads it.
    fn check(&self) {
        assert_eq!(
            self.store.snapshots(),
            self.committed.keys().copied().collect::<Vec<_>>()
        );
        for (id, (model, instances)) in &self.committed {
            let snapshot = self.store.snapshot(*id).expect("it is there");
            assert_eq!(snapshot.instances(VERTEX), Some(*instances));
            let readers = 1 + model.len() as u32 % 3;
            assert_eq!(read(&snapshot, readers).expect("read"), *model, "{id}");
        }
        if let Some(held) = &self.held {
            held.verify().expect("whole as long as it is held");
        }
    }
}

fn open(folder: &MemoryFolder) -> SnapshotStore {
    SnapshotStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened")
}

/// Whether a step takes the base away from the next increments: collecting or reopening while it is not the newest, and not held.
fn keeps_base(history: &History, step: &Step) -> bool {
    let is_newest = history.store.snapshots().last() == history.base.as_ref();
    let is_held = history.held.as_ref().map(Snapshot::id) == history.base;
    match step {
        Step::Collect => is_newest || is_held,
        Step::Reopen | Step::Hold { .. } => is_newest || !is_held,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_snapshot_is_read_as_it_was_committed_whatever_happens_beside(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut history = History::new();
        history.fill();
        for step in steps {
            if keeps_base(&history, &step) {
                let is_looked_at = matches!(
                    step,
                    Step::EndEpoch { .. } | Step::Collect | Step::Sweep | Step::Reopen
                );
                history.act(step);
                if is_looked_at {
                    history.check();
                }
            }
        }
        history.check();
        // When nobody is at work any more nothing is left but what snapshots need.
        (history.fold, history.held) = (None, None);
        if !history.committed.is_empty() {
            history.act(Step::Reopen);
            history.store.collect().expect("collected");
            history.act(Step::Sweep);
            prop_assert!(history.store.snapshots().len() <= small().keep);
            assert_nothing_is_left(&history.folder);
        }
    }
}

#[test]
fn chains_stay_short_and_removed_keys_go_when_folding_keeps_up() {
    let mut history = History::new();
    for at in 0..60u8 {
        let set = Step::Set {
            loose: false,
            state: true,
            slot: u32::from(at % 12),
            key: at % 6,
            value: at,
        };
        history.act(set);
        if at % 5 == 4 {
            history.act(Step::Remove { nth: 0 });
        }
        history.act(Step::EndEpoch {
            full: 0,
            is_committed: true,
        });
        for _ in 0..20 {
            history.act(Step::Fold { budget: 200 });
        }
        history.act(Step::Collect);
        history.act(Step::Sweep);
        history.check();
        assert!(!history.store.wants_full(VERTEX));
    }
    assert!(history.folded > 10, "{}", history.folded);
    let latest = history.store.latest().expect("whole").expect("there");
    let report = latest.report();
    assert!(
        report.vertices[0].layers <= small().most_layers + 1,
        "{report:?}"
    );
    assert!(report.state_bytes() > 0);
}

#[test]
fn without_folding_a_full_cut_is_asked_for_and_begins_the_chain_anew() {
    let mut history = History::new();
    let mut asked = false;
    for at in 0..15u8 {
        history.act(Step::Set {
            loose: false,
            state: true,
            slot: 3,
            key: at % 6,
            value: at,
        });
        let full = history.store.wants_full(VERTEX);
        asked |= full;
        history.act(Step::EndEpoch {
            full: if full { 255 } else { 0 },
            is_committed: true,
        });
        history.check();
    }
    assert!(asked);
    assert!(!history.store.wants_full(VERTEX));
}

#[test]
fn many_threads_read_each_entry_once() {
    let mut history = History::new();
    for slot in 0..12 {
        for key in 0..6 {
            history.act(Step::Set {
                loose: false,
                state: true,
                slot,
                key,
                value: key,
            });
        }
    }
    history.act(Step::EndEpoch {
        full: 255,
        is_committed: true,
    });
    let snapshot = history.store.latest().expect("whole").expect("there");
    let found = std::sync::Mutex::new(Vec::new());
    let visit = |entry: Entry<'_>| {
        found
            .lock()
            .expect("no panic")
            .push((entry.place, entry.key.to_vec()));
        Ok(())
    };
    for threads in [1, 3, 5000] {
        snapshot
            .visit_in_parallel(VERTEX, "s", PartitionRange::ALL, threads, &visit)
            .expect("read");
        let mut found = std::mem::take(&mut *found.lock().expect("no panic"));
        found.sort();
        let expected: Vec<_> = history
            .model
            .keys()
            .map(|(_, place, key)| (*place, key.clone()))
            .collect();
        assert_eq!(found, expected);
    }
    let refuse = |_: Entry<'_>| {
        Err(ardea_core::Error::new(
            ardea_core::ErrorCode::UserError,
            "no",
        ))
    };
    let visited = snapshot.visit_in_parallel(VERTEX, "s", PartitionRange::ALL, 3, &refuse);
    assert_eq!(
        visited.expect_err("refused").code(),
        ardea_core::ErrorCode::UserError
    );
}

#[test]
fn a_removed_key_stays_removed_when_newer_layers_are_folded_and_the_oldest_is_not() {
    let mut history = History::new();
    history.fill();
    let end = |full| Step::EndEpoch {
        full,
        is_committed: true,
    };
    history.act(end(255));
    history.act(Step::Remove { nth: 0 });
    for value in 0..4 {
        history.act(Step::Set {
            loose: false,
            state: true,
            slot: 11,
            key: 5,
            value,
        });
        history.act(end(0));
    }
    while history.folded == 0 {
        history.act(Step::Fold { budget: 100 });
        assert!(history.folded > 0 || history.fold.is_some(), "it was begun");
    }
    history.act(end(0));
    history.check();
    let latest = history.store.latest().expect("whole").expect("there");
    assert_eq!(
        latest.report().vertices[0].layers,
        2,
        "the oldest, and the folded one; nothing came with the last"
    );
}
