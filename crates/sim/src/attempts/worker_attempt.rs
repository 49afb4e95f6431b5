//! A worker's part of an execution attempt: its instances, and the snapshots that it saves for all
//! of them at once.

use std::collections::BTreeMap;

use ardea_coordination::control::ExecutionAttempt;
use ardea_coordination::packing::ContainerId;
use ardea_core::Epoch;

use super::instance::{Instance, InstanceEffect, InstanceKey, NumberedRecord, VertexChain};
use crate::dataflow::Item;
use crate::storage::{Counts, SnapshotOwner};

/// The state of several instances.
pub type InstanceStates = BTreeMap<InstanceKey, Counts>;

/// A worker's part of an attempt.
#[derive(Debug)]
pub struct WorkerAttempt {
    pub life: ExecutionAttempt,
    pub row: VertexChain,
    /// True if sources wait after the end of an epoch.
    pub is_held: bool,
    /// True if the attempt has failed at this worker: nothing happens in it any more.
    pub is_broken: bool,
    instances: BTreeMap<InstanceKey, Instance>,
    /// The containers of all instances of the job in this attempt.
    places: BTreeMap<InstanceKey, ContainerId>,
    /// The snapshots of epochs that have not yet ended at all instances of this worker.
    snapshots: BTreeMap<Epoch, InstanceStates>,
    /// The output that sinks may publish, by the epoch that must be committed first.
    prepared: BTreeMap<Epoch, InstanceStates>,
    told_end: bool,
}

impl WorkerAttempt {
    /// Returns the state in memory of the intermediate steps, if it equals that of the checkpoint
    /// from which the next attempt starts. In the next attempt, the same instances at this worker
    /// need not read the checkpoint. Sources and sinks are created from the checkpoint.
    pub fn memory_for(&self, life: &ExecutionAttempt) -> InstanceStates {
        let is_former = life.taken_in == self.life.generation && !self.is_broken;
        let Some(epoch) = life.from.filter(|_| is_former) else {
            return InstanceStates::new();
        };
        let steps = self.instances.values();
        let steps = steps.filter(|it| !it.is_source() && !self.row.is_sink(it.which.0));
        let memories = steps.filter_map(|it| Some((it.which, it.memory_of(epoch)?.clone())));
        memories.collect()
    }

    /// Returns true if `vertex` has the same parallelism in `row`, and so the same partitions per
    /// instance.
    pub fn has_as_many(&self, vertex: usize, row: &VertexChain) -> bool {
        self.row.parallelisms.get(vertex) == row.parallelisms.get(vertex)
    }

    /// Gives an instance the state in memory of its predecessor, which must equal the state in the
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// If the two states differ.
    pub fn restore_from_memory(
        &mut self,
        which: InstanceKey,
        memory: Counts,
    ) -> Result<(), String> {
        let Some(instance) = self.instances.get_mut(&which) else {
            return Ok(());
        };
        let has = |counts: &Counts, partition| counts.get(&partition).copied().unwrap_or(0);
        let mut own = self.row.partitions(which);
        if let Some(other) = own.find(|it| has(&memory, *it) != has(&instance.counts, *it)) {
            return Err(format!(
                "{which:?} remembers {} of partition {other}, and the checkpoint has {}",
                has(&memory, other),
                has(&instance.counts, other)
            ));
        }
        instance.counts = memory;
        Ok(())
    }

    /// Creates the instances `whiches` with their state from the checkpoint.
    pub fn new(
        life: ExecutionAttempt,
        row: VertexChain,
        whiches: impl Iterator<Item = InstanceKey>,
        places: BTreeMap<InstanceKey, ContainerId>,
        state: &InstanceStates,
    ) -> Self {
        let mut all = Counts::new();
        let mut instances = BTreeMap::new();
        for which in whiches {
            all.clear();
            let of_vertex = state.iter().filter(|((vertex, _), _)| *vertex == which.0);
            all.extend(of_vertex.flat_map(|(_, counts)| counts));
            let own = row.partitions(which);
            let counts = own.map(|it| (it, all.get(&it).copied().unwrap_or(0)));
            let instance = Instance::new(which, counts.collect(), &row);
            instances.insert(which, instance);
        }
        WorkerAttempt {
            life,
            row,
            is_held: false,
            is_broken: false,
            instances,
            places,
            snapshots: BTreeMap::new(),
            prepared: BTreeMap::new(),
            told_end: false,
        }
    }

    /// Returns true if the instance `which` runs at this worker.
    pub fn has(&self, which: InstanceKey) -> bool {
        self.instances.contains_key(&which)
    }

    /// Returns the container of an instance.
    pub fn place(&self, which: InstanceKey) -> Option<ContainerId> {
        self.places.get(&which).copied()
    }

    /// Returns the initial counts of the sinks, all of which are committed.
    pub fn published_before(&self) -> Counts {
        let all = self.instances.values();
        let sinks = all.filter(|it| self.row.is_sink(it.which.0));
        sinks.flat_map(|sink| sink.counts.clone()).collect()
    }

    /// Reads the wanted records of all sources.
    pub fn read(&mut self, wants: impl Fn(u32) -> bool) -> Vec<(InstanceKey, InstanceEffect)> {
        self.sources(|source, row| source.read(row, &wants))
    }

    /// Ends an epoch at all sources.
    pub fn end_epoch(&mut self, epoch: Epoch) -> Vec<(InstanceKey, InstanceEffect)> {
        self.sources(|source, row| source.end_epoch(epoch, row))
    }

    fn sources(
        &mut self,
        act: impl Fn(&mut Instance, &VertexChain) -> Vec<InstanceEffect>,
    ) -> Vec<(InstanceKey, InstanceEffect)> {
        let mut all = Vec::new();
        let row = &self.row;
        let sources = self.instances.values_mut().filter(|it| it.is_source());
        for source in sources.filter(|_| !self.is_broken) {
            let effects = act(source, row);
            all.extend(effects.into_iter().map(|effect| (source.which, effect)));
        }
        all
    }

    /// Delivers an item to an instance.
    ///
    /// # Errors
    ///
    /// If `item` is a record, but not the next one of its partition.
    pub fn receive(
        &mut self,
        to: InstanceKey,
        from: u32,
        item: Item<NumberedRecord>,
    ) -> Result<Vec<(InstanceKey, InstanceEffect)>, String> {
        let row = &self.row;
        let instance = self.instances.get_mut(&to).filter(|_| !self.is_broken);
        let effects = match instance {
            Some(instance) => instance.receive(from, item, row)?,
            None => Vec::new(),
        };
        Ok(effects.into_iter().map(|effect| (to, effect)).collect())
    }

    /// Records the snapshot of an instance.
    pub fn takes_snapshot(&mut self, which: InstanceKey, epoch: Epoch, counts: Counts) {
        if self.row.is_sink(which.0) {
            let prepared = self.prepared.entry(epoch).or_default();
            prepared.insert(which, counts.clone());
        }
        let snapshots = self.snapshots.entry(epoch).or_default();
        snapshots.insert(which, counts);
    }

    /// Records the completion of an instance.
    pub fn ends(&mut self, which: InstanceKey) {
        if let Some(instance) = self.instances.get(&which)
            && self.row.is_sink(which.0)
        {
            let behind = instance.last_snapshot.max(self.life.from);
            let epoch = behind.map_or(Epoch(0), Epoch::next);
            let prepared = self.prepared.entry(epoch).or_default();
            prepared.insert(which, instance.counts.clone());
        }
    }

    /// Returns the snapshots to be saved: that of each epoch that has ended at all instances of
    /// this worker, and at the end the final state.
    pub fn complete(&mut self) -> Vec<(SnapshotOwner, InstanceStates)> {
        let mut complete = Vec::new();
        let epochs: Vec<Epoch> = self.snapshots.keys().copied().collect();
        for epoch in epochs {
            let taken = &self.snapshots[&epoch];
            let is_missing = |it: &Instance| !it.has_ended && !taken.contains_key(&it.which);
            if self.instances.values().any(is_missing) {
                continue;
            }
            let mut entries = self.snapshots.remove(&epoch).unwrap_or_default();
            for (which, instance) in &self.instances {
                // An instance that has completed before contributes its final state.
                let last = || instance.counts.clone();
                entries.entry(*which).or_insert_with(last);
            }
            complete.push((SnapshotOwner::Epoch(epoch), entries));
        }
        let has_ended = self.instances.values().all(|it| it.has_ended);
        if has_ended && !std::mem::replace(&mut self.told_end, true) {
            let all = self.instances.iter();
            let last = all.map(|(which, it)| (*which, it.counts.clone()));
            let after = self
                .instances
                .values()
                .filter_map(|it| it.last_snapshot)
                .max();
            let of = SnapshotOwner::Last(self.life.generation, after);
            complete.push((of, last.collect()));
        }
        complete
    }

    /// Returns the counts up to which each partition may be published after the commit of
    /// `committed`.
    pub fn publish(&mut self, committed: Epoch) -> Counts {
        let later = self.prepared.split_off(&committed.next());
        let due = std::mem::replace(&mut self.prepared, later);
        let counts = due.into_values().flat_map(BTreeMap::into_values).flatten();
        let mut publish = Counts::new();
        for (partition, count) in counts {
            let known = publish.entry(partition).or_default();
            *known = count.max(*known);
        }
        publish
    }

    /// Describes the progress for a failure report.
    pub fn summary(&self) -> String {
        let ended = self.instances.values().filter(|it| it.has_ended).count();
        format!(
            "attempt {}: {ended} of {} instances have ended, held: {}, broken: {}, snapshots of {:?}",
            self.life.generation,
            self.instances.len(),
            self.is_held,
            self.is_broken,
            self.snapshots.keys().collect::<Vec<_>>(),
        )
    }
}
