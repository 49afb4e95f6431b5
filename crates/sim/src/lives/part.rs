//! What a worker has of one life of the job: its instances, and the cuts that it saves for all of them at once.

use std::collections::BTreeMap;

use ardea_coordination::control::Life;
use ardea_coordination::packing::ContainerId;
use ardea_core::Epoch;

use super::instance::{Counts, Effect, Instance, Item, Row, Which};

/// What is remembered of several instances.
pub type Entries = BTreeMap<Which, Counts>;

/// What a worker has to save.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The state of all its instances at the end of an epoch.
    Of(Epoch, Entries),
    /// The last state of all, and the last epoch that one of them has taken a cut of.
    Last(Option<Epoch>, Entries),
}

/// A worker's part of a life.
#[derive(Debug)]
pub struct Part {
    pub life: Life,
    pub row: Row,
    /// Sources wait behind the end of an epoch.
    pub is_held: bool,
    /// It has failed here: nothing happens any more.
    pub is_broken: bool,
    instances: BTreeMap<Which, Instance>,
    /// Where all instances of the job are in this life.
    places: BTreeMap<Which, ContainerId>,
    /// The cuts of epochs that have not ended everywhere here.
    cuts: BTreeMap<Epoch, Entries>,
    /// What sinks may publish, by the epoch that has to be committed for it.
    prepared: BTreeMap<Epoch, Entries>,
    told_end: bool,
}

impl Part {
    /// What the steps here remember, if it is what they remembered at the end of the epoch that another life begins from: those that take
    /// their places here need not read the snapshot. Sources and sinks are made anew.
    pub fn legacy(&self, life: &Life) -> Entries {
        let is_former = life.taken_in == self.life.generation && !self.is_broken;
        let Some(epoch) = life.from.filter(|_| is_former) else {
            return Entries::new();
        };
        let steps = self.instances.values();
        let steps = steps.filter(|it| !it.is_source() && !self.row.is_sink(it.which.0));
        let memories = steps.filter_map(|it| Some((it.which, it.memory_of(epoch)?.clone())));
        memories.collect()
    }

    /// Whether that vertex has as many instances in another row: then each has the same partitions.
    pub fn has_as_many(&self, vertex: usize, row: &Row) -> bool {
        self.row.parallelisms.get(vertex) == row.parallelisms.get(vertex)
    }

    /// An instance goes on with what its predecessor remembered, which is what the snapshot has.
    ///
    /// # Errors
    ///
    /// When it isn't.
    pub fn remind(&mut self, which: Which, memory: Counts) -> Result<(), String> {
        let Some(instance) = self.instances.get_mut(&which) else {
            return Ok(());
        };
        let has = |counts: &Counts, partition| counts.get(&partition).copied().unwrap_or(0);
        let mut own = self.row.partitions(which);
        if let Some(other) = own.find(|it| has(&memory, *it) != has(&instance.counts, *it)) {
            return Err(format!(
                "{which:?} remembers {} of partition {other}, and the snapshot has {}",
                has(&memory, other),
                has(&instance.counts, other)
            ));
        }
        instance.counts = memory;
        Ok(())
    }

    /// These instances, with what the snapshot has of them.
    pub fn new(
        life: Life,
        row: Row,
        whiches: impl Iterator<Item = Which>,
        places: BTreeMap<Which, ContainerId>,
        state: &Entries,
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
        Part {
            life,
            row,
            is_held: false,
            is_broken: false,
            instances,
            places,
            cuts: BTreeMap::new(),
            prepared: BTreeMap::new(),
            told_end: false,
        }
    }

    /// Whether that instance is here.
    pub fn has(&self, which: Which) -> bool {
        self.instances.contains_key(&which)
    }

    /// Where an instance is.
    pub fn place(&self, which: Which) -> Option<ContainerId> {
        self.places.get(&which).copied()
    }

    /// What its sinks had got when they began: all of it is committed.
    pub fn published_before(&self) -> Counts {
        let sinks = self
            .instances
            .values()
            .filter(|it| self.row.is_sink(it.which.0));
        sinks.flat_map(|sink| sink.counts.clone()).collect()
    }

    /// The sources read what is wanted of their partitions.
    pub fn read(&mut self, wants: impl Fn(u32) -> bool) -> Vec<(Which, Effect)> {
        self.sources(|source, row| source.read(row, &wants))
    }

    /// The sources end an epoch.
    pub fn end_epoch(&mut self, epoch: Epoch) -> Vec<(Which, Effect)> {
        self.sources(|source, row| source.end_epoch(epoch, row))
    }

    fn sources(
        &mut self,
        act: impl Fn(&mut Instance, &Row) -> Vec<Effect>,
    ) -> Vec<(Which, Effect)> {
        let mut all = Vec::new();
        let row = &self.row;
        let sources = self.instances.values_mut().filter(|it| it.is_source());
        for source in sources.filter(|_| !self.is_broken) {
            let effects = act(source, row);
            all.extend(effects.into_iter().map(|effect| (source.which, effect)));
        }
        all
    }

    /// Something comes for an instance.
    ///
    /// # Errors
    ///
    /// When it is another record than the next one.
    pub fn receive(
        &mut self,
        to: Which,
        from: u32,
        item: Item,
    ) -> Result<Vec<(Which, Effect)>, String> {
        let row = &self.row;
        let instance = self.instances.get_mut(&to).filter(|_| !self.is_broken);
        let effects = match instance {
            Some(instance) => instance.receive(from, item, row)?,
            None => Vec::new(),
        };
        Ok(effects.into_iter().map(|effect| (to, effect)).collect())
    }

    /// An instance has taken the cut of an epoch.
    pub fn takes_cut(&mut self, which: Which, epoch: Epoch, counts: Counts) {
        if self.row.is_sink(which.0) {
            let prepared = self.prepared.entry(epoch).or_default();
            prepared.insert(which, counts.clone());
        }
        self.cuts.entry(epoch).or_default().insert(which, counts);
    }

    /// An instance has come to its end.
    pub fn ends(&mut self, which: Which) {
        if let Some(instance) = self.instances.get(&which)
            && self.row.is_sink(which.0)
        {
            let behind = instance.last_cut.max(self.life.from);
            let epoch = behind.map_or(Epoch(0), Epoch::next);
            let prepared = self.prepared.entry(epoch).or_default();
            prepared.insert(which, instance.counts.clone());
        }
    }

    /// What is to be saved now: the cut of each epoch that has ended everywhere here, and at the end the last state.
    pub fn complete(&mut self) -> Vec<Cut> {
        let mut complete = Vec::new();
        let epochs: Vec<Epoch> = self.cuts.keys().copied().collect();
        for epoch in epochs {
            let taken = &self.cuts[&epoch];
            let is_missing = |it: &Instance| !it.has_ended && !taken.contains_key(&it.which);
            if self.instances.values().any(is_missing) {
                continue;
            }
            let mut entries = self.cuts.remove(&epoch).unwrap_or_default();
            for (which, instance) in &self.instances {
                // It has ended before: its last state counts.
                let last = || instance.counts.clone();
                entries.entry(*which).or_insert_with(last);
            }
            complete.push(Cut::Of(epoch, entries));
        }
        let has_ended = self.instances.values().all(|it| it.has_ended);
        if has_ended && !std::mem::replace(&mut self.told_end, true) {
            let all = self.instances.iter();
            let last = all.map(|(which, it)| (*which, it.counts.clone()));
            let after = self.instances.values().filter_map(|it| it.last_cut).max();
            complete.push(Cut::Last(after, last.collect()));
        }
        complete
    }

    /// What belongs to epochs up to this one, which is committed: how far each partition may be published.
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

    /// How it stands, for people.
    pub fn summary(&self) -> String {
        let ended = self.instances.values().filter(|it| it.has_ended).count();
        format!(
            "life {}: {ended} of {} instances have ended, held: {}, broken: {}, cuts of {:?}",
            self.life.generation,
            self.instances.len(),
            self.is_held,
            self.is_broken,
            self.cuts.keys().collect::<Vec<_>>(),
        )
    }
}
