//! Random histories of a job, compared with a plain map: full and incremental snapshots, aborted
//! epochs, rollbacks, rescaling, compaction, collection and sweeps at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_checkpoint::store::*;
use proptest::prelude::*;

use crate::site::*;
use crate::steps::*;

/// The expected state of a committed checkpoint.
struct Committed {
    model: Model,
    written: BTreeMap<Key, CheckpointId>,
    instances: u32,
}

/// A job, its store, and the expected contents.
struct History {
    folder: MemoryStore,
    store: CheckpointStore,
    model: Model,
    changed: BTreeSet<Key>,
    /// The checkpoint of the last write of each key.
    written: BTreeMap<Key, CheckpointId>,
    instances: u32,
    /// True if the next snapshots have to be full.
    is_rescaled: bool,
    generation: u64,
    epoch: u64,
    base: Option<CheckpointId>,
    /// The expected state of each committed checkpoint.
    committed: BTreeMap<CheckpointId, Committed>,
    fold: Option<Compaction>,
    held: Option<Checkpoint>,
    folded: usize,
}

impl History {
    fn new() -> Self {
        let folder = MemoryStore::new();
        History {
            store: open(&folder),
            folder,
            model: Model::new(),
            changed: BTreeSet::new(),
            written: BTreeMap::new(),
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

    /// Creates state so large that the compaction of one epoch never covers all of it.
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
                    true => KeySlot::Instance(slot % self.instances),
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
            Step::Renew { state, forgets } => {
                let state = if state { "s" } else { "t" };
                let all: Vec<Key> = self.model.keys().cloned().collect();
                for key in all.into_iter().filter(|key| key.0 == state) {
                    let is_old = self.written.contains_key(&key) && !self.changed.contains(&key);
                    if forgets && is_old {
                        self.model.remove(&key);
                    }
                    self.changed.insert(key);
                }
            }
            Step::EndEpoch {
                full,
                says,
                is_committed,
            } => self.end_epoch(full, says, is_committed),
            Step::Rescale { instances } => self.rescale(instances),
            Step::Rollback { nth } => self.roll_back(nth),
            Step::Fold { budget } => self.fold(budget),
            Step::DropFold => self.fold = None,
            Step::Collect => {
                let collected = self.store.collect().expect("collected");
                for id in collected.checkpoints {
                    assert_ne!(Some(id), self.held.as_ref().map(Checkpoint::id));
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
                let checkpoints = self.store.checkpoints();
                if !checkpoints.is_empty() {
                    let id = checkpoints[usize::from(nth) % checkpoints.len()];
                    self.held = Some(self.store.checkpoint(id).expect("it is there"));
                }
            }
        }
    }

    /// Returns, for each state, the checkpoint before which the instance's entries are outdated,
    /// given its writes for `id`.
    fn outdated(
        &self,
        id: CheckpointId,
        instance: u32,
        is_full: bool,
    ) -> BTreeMap<String, CheckpointId> {
        let written = |key: &Key| match self.written.get(key) {
            Some(written) if !is_full && !self.changed.contains(key) => *written,
            _ => id,
        };
        let of = |state: &str| {
            let own = |key: &&Key| key.0 == state && owner(key.1, self.instances) == instance;
            let oldest = self.model.keys().filter(own).map(written).min();
            (state.to_string(), oldest.unwrap_or(id))
        };
        ["s", "t"].map(of).into()
    }

    fn end_epoch(&mut self, full: u8, says: u8, is_committed: bool) {
        self.epoch += 1;
        let id = id(self.generation, self.epoch);
        let is_full =
            |instance: u32| self.base.is_none() || full >> instance & 1 == 1 || self.is_rescaled;
        let mut written = self.written.clone();
        written.retain(|key, _| self.model.contains_key(key));
        for key in self.model.keys() {
            if self.changed.contains(key) || is_full(owner(key.1, self.instances)) {
                written.insert(key.clone(), id);
            }
        }
        let snapshots: Vec<_> = (0..self.instances)
            .map(|instance| {
                let of = snapshot_of(id, instance, self.instances);
                let is_own = |key: &&Key| owner(key.1, self.instances) == instance;
                match self.base {
                    Some(since) if !is_full(instance) => {
                        if self.changed.iter().any(|key| is_own(&key)) {
                            write_increment(&self.store, of, since, &self.model, &self.changed)
                        } else {
                            Ok(StateHandle::unchanged(of))
                        }
                    }
                    _ => write_full(&self.store, of, &self.model),
                }
            })
            .zip(0..)
            .map(|(snapshot, instance)| match says >> instance & 1 {
                0 => snapshot.expect("written"),
                _ => snapshot.expect("written").outdating(self.outdated(
                    id,
                    instance,
                    is_full(instance),
                )),
            })
            .collect();
        if !is_committed {
            return;
        }
        // Without its base the runtime would have requested full snapshots.
        let commit = commit(id, self.base, snapshots);
        let report = self.store.commit(&commit).expect("committed");
        assert_eq!(self.store.commit(&commit).expect("again"), report);
        self.committed.insert(
            id,
            Committed {
                model: self.model.clone(),
                written: written.clone(),
                instances: self.instances,
            },
        );
        self.written = written;
        self.base = Some(id);
        self.changed.clear();
        self.is_rescaled = false;
    }

    /// Moves unpartitioned entries to existing instances.
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
                KeySlot::Instance(instance) => {
                    ((state, KeySlot::Instance(instance % instances), key), value)
                }
                place => ((state, place, key), value),
            })
            .collect();
    }

    fn roll_back(&mut self, nth: u16) {
        let checkpoints = self.store.checkpoints();
        if checkpoints.is_empty() {
            return;
        }
        let to = checkpoints[usize::from(nth) % checkpoints.len()];
        // The checkpoint is held until there is another, as the store requires.
        self.held = Some(self.store.checkpoint(to).expect("it is there"));
        let before = &self.committed[&to];
        (self.model, self.written) = (before.model.clone(), before.written.clone());
        self.instances = before.instances;
        (self.base, self.is_rescaled) = (Some(to), false);
        self.generation += 1;
        self.epoch = to.epoch.0;
        self.changed.clear();
        self.store
            .sweep(CheckpointId::start_of(self.generation))
            .expect("swept");
    }

    fn fold(&mut self, budget: u64) {
        if self.fold.is_none() {
            self.fold = self.store.begin_compaction();
        }
        if let Some(fold) = &mut self.fold
            && fold.step(budget).expect("folded") == CompactionProgress::Done
        {
            self.fold = None;
            self.folded += 1;
            self.check();
        }
    }

    /// Checks that every checkpoint reads as it was committed, with any number of readers.
    fn check(&self) {
        assert_eq!(
            self.store.checkpoints(),
            self.committed.keys().copied().collect::<Vec<_>>()
        );
        for (
            id,
            Committed {
                model, instances, ..
            },
        ) in &self.committed
        {
            let checkpoint = self.store.checkpoint(*id).expect("it is there");
            assert_eq!(checkpoint.instances(VERTEX), Some(*instances));
            let readers = 1 + model.len() as u32 % 3;
            assert_eq!(read(&checkpoint, readers).expect("read"), *model, "{id}");
        }
        if let Some(held) = &self.held {
            held.verify().expect("whole as long as it is held");
        }
    }
}

fn open(folder: &MemoryStore) -> CheckpointStore {
    CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened")
}

/// Returns false if the step may remove the base of the next increments: a collection or reopening
/// while the base is neither the newest checkpoint nor held.
fn keeps_base(history: &History, step: &Step) -> bool {
    let is_newest = history.store.checkpoints().last() == history.base.as_ref();
    let is_held = history.held.as_ref().map(Checkpoint::id) == history.base;
    match step {
        Step::Collect => is_newest || is_held,
        Step::Reopen | Step::Hold { .. } => is_newest || !is_held,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_checkpoint_is_read_as_it_was_committed_whatever_happens_beside(
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
        // When no compaction runs and no checkpoint is held, only the files of checkpoints remain.
        (history.fold, history.held) = (None, None);
        if !history.committed.is_empty() {
            history.act(Step::Reopen);
            history.store.collect().expect("collected");
            let next = CheckpointId::start_of(history.generation + 1);
            history.store.sweep(next).expect("swept");
            prop_assert!(history.store.checkpoints().len() <= small().keep);
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
            says: 0,
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
fn what_is_written_anew_all_the_time_is_never_folded() {
    let mut history = History::new();
    for at in 0..100u8 {
        for slot in 0..12 {
            history.act(Step::Set {
                loose: slot == 0,
                state: slot % 2 == 0,
                slot,
                key: at % 3,
                value: at,
            });
        }
        history.act(Step::EndEpoch {
            full: 0,
            says: u8::MAX,
            is_committed: true,
        });
        assert!(
            history.store.begin_compaction().is_none(),
            "older layers than the last three have nothing any more"
        );
    }
    history.check();
}

#[test]
fn what_is_folded_of_state_that_goes_meanwhile_is_collected() {
    let mut history = History::new();
    for at in 0..60u8 {
        for (state, slot) in [(true, u32::from(at % 12)), (false, 3), (false, 7)] {
            history.act(Step::Set {
                loose: false,
                state,
                slot,
                key: if state { at % 6 } else { 0 },
                value: at,
            });
        }
        history.act(Step::EndEpoch {
            full: 0,
            says: u8::MAX,
            is_committed: true,
        });
        for _ in 0..20 {
            history.act(Step::Fold { budget: 200 });
        }
        history.act(Step::Collect);
    }
    assert!(history.folded > 10, "{}", history.folded);
    history.act(Step::EndEpoch {
        full: 0,
        says: u8::MAX,
        is_committed: true,
    });
    history.act(Step::Collect);
    history.check();
    assert_nothing_is_left(&history.folder);
}

#[test]
fn what_was_folded_for_no_other_checkpoint_goes_with_a_sweep_once_it_is_forgotten() {
    let mut history = History::new();
    history.fill();
    while history.folded == 0 {
        history.act(Step::EndEpoch {
            full: 0,
            says: 0,
            is_committed: true,
        });
        history.act(Step::Fold { budget: u64::MAX });
        history.act(Step::Set {
            loose: false,
            state: true,
            slot: 1,
            key: 1,
            value: 7,
        });
    }
    let next = CheckpointId::start_of(history.generation + 1);
    let sweep = || history.store.sweep(next).expect("swept");
    sweep();
    let before = files(&history.folder).len();
    history.store.abandon_compactions();
    sweep();
    assert!(files(&history.folder).len() < before, "folding wrote some");
    assert_nothing_is_left(&history.folder);
}

#[test]
fn without_folding_a_full_snapshot_is_asked_for_and_begins_the_chain_anew() {
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
            says: 0,
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
        says: 0,
        is_committed: true,
    });
    let checkpoint = history.store.latest().expect("whole").expect("there");
    let found = std::sync::Mutex::new(Vec::new());
    let visit = |entry: Entry<'_>| {
        found
            .lock()
            .expect("no panic")
            .push((entry.place, entry.key.to_vec()));
        Ok(())
    };
    for threads in [1, 3, 5000] {
        checkpoint
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
    let visited = checkpoint.visit_in_parallel(VERTEX, "s", PartitionRange::ALL, 3, &refuse);
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
        says: 0,
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
