//! A simulated instance: sources number the records of their partitions, every step behind them expects the next number.
//!
//! All vertices are in a row. A record goes to the instance that has its partition, by the number of instances; so a step that gets another
//! record of a partition than the next one has found a loss or a doubling, wherever that happened.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::Epoch;

/// How many partitions the records have.
pub const PARTITIONS: u32 = 12;

/// Which instance: the place of its vertex in the row, and its number there.
pub type Which = (usize, u32);

/// How many records of each partition have come.
pub type Counts = BTreeMap<u32, u64>;

/// The vertices in their row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// How many instances each has.
    pub parallelisms: Vec<u32>,
    /// How many records a partition has, if they come to an end.
    pub records: Option<u64>,
}

impl Row {
    /// Whether that vertex is the last one, which publishes.
    pub fn is_sink(&self, vertex: usize) -> bool {
        vertex + 1 == self.parallelisms.len()
    }

    fn owner(&self, vertex: usize, partition: u32) -> Option<Which> {
        let count = self.parallelisms.get(vertex)?;
        Some((vertex, partition % count))
    }

    /// The partitions of an instance.
    pub fn partitions(&self, of: Which) -> impl Iterator<Item = u32> + '_ {
        (0..PARTITIONS).filter(move |partition| self.owner(of.0, *partition) == Some(of))
    }

    fn all_of(&self, vertex: usize) -> impl Iterator<Item = Which> + use<> {
        let count = self.parallelisms.get(vertex).copied().unwrap_or(0);
        (0..count).map(move |index| (vertex, index))
    }
}

/// What flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record: its partition, and its number there.
    Record(u32, u64),
    /// An epoch ends here.
    Marker(Epoch),
    /// Nothing follows.
    Done,
}

/// What an instance does to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It sends something.
    Send(Which, Item),
    /// It has taken the cut of an epoch, and remembers this.
    Cut(Epoch, Counts),
    /// It has come to its end.
    Ended,
}

#[derive(Debug, Default)]
struct Input {
    queue: VecDeque<Item>,
    marker: Option<Epoch>,
    is_done: bool,
}

/// An instance in one life of the job.
#[derive(Debug)]
pub struct Instance {
    pub which: Which,
    pub counts: Counts,
    pub has_ended: bool,
    pub last_cut: Option<Epoch>,
    /// Nothing has come since that cut was taken.
    is_at_cut: bool,
    inputs: BTreeMap<u32, Input>,
}

impl Instance {
    /// One that begins with these counts.
    pub fn new(which: Which, counts: Counts, row: &Row) -> Self {
        let before = which.0.checked_sub(1);
        let above = before.map(|vertex| row.all_of(vertex));
        let inputs = above.into_iter().flatten();
        Instance {
            which,
            counts,
            has_ended: false,
            last_cut: None,
            is_at_cut: false,
            inputs: inputs.map(|(_, index)| (index, Input::default())).collect(),
        }
    }

    /// What it remembers, if that is what it remembered at the end of this epoch.
    pub fn memory_of(&self, epoch: Epoch) -> Option<&Counts> {
        let stands = self.is_at_cut && !self.has_ended && self.last_cut == Some(epoch);
        stands.then_some(&self.counts)
    }

    /// Whether it reads.
    pub fn is_source(&self) -> bool {
        self.which.0 == 0
    }

    /// A source reads a record of each of these partitions that are its own, and ends when there are no more.
    pub fn read(&mut self, row: &Row, wants: impl Fn(u32) -> bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.has_ended {
            return effects;
        }
        let mut is_over = row.records.is_some();
        for partition in row.partitions(self.which) {
            let offset = self.counts.entry(partition).or_default();
            let has_more = row.records.is_none_or(|records| *offset < records);
            if has_more && wants(partition) {
                let to = row.owner(1, partition);
                effects.extend(to.map(|to| Effect::Send(to, Item::Record(partition, *offset))));
                *offset += 1;
            }
            is_over &= row.records.is_some_and(|records| *offset >= records);
        }
        if is_over {
            self.end(row, &mut effects);
        }
        effects
    }

    /// A source ends an epoch.
    pub fn end_epoch(&mut self, epoch: Epoch, row: &Row) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.has_ended {
            self.cut(epoch, row, &mut effects);
        }
        effects
    }

    /// Something comes.
    ///
    /// # Errors
    ///
    /// When it is another record than the next one of its partition.
    pub fn receive(&mut self, from: u32, item: Item, row: &Row) -> Result<Vec<Effect>, String> {
        let mut effects = Vec::new();
        if let Some(input) = self.inputs.get_mut(&from) {
            input.queue.push_back(item);
        }
        loop {
            let mut open = self
                .inputs
                .values_mut()
                .filter(|input| input.marker.is_none());
            let Some(item) = open.find_map(|input| {
                let item = input.queue.pop_front()?;
                match item {
                    Item::Marker(epoch) => input.marker = Some(epoch),
                    Item::Done => input.is_done = true,
                    Item::Record(..) => {}
                }
                Some(item)
            }) else {
                return Ok(effects);
            };
            if let Item::Record(partition, offset) = item {
                self.count(partition, offset, row, &mut effects)?;
            }
            self.align(row, &mut effects);
        }
    }

    fn count(
        &mut self,
        partition: u32,
        offset: u64,
        row: &Row,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let which = self.which;
        if row.owner(which.0, partition) != Some(which) {
            return Err(format!("{which:?} gets a record of partition {partition}"));
        }
        let count = self.counts.entry(partition).or_default();
        if *count != offset {
            return Err(format!(
                "{which:?} gets record {offset} of partition {partition} and expects {count}"
            ));
        }
        *count += 1;
        self.is_at_cut = false;
        let to = row.owner(which.0 + 1, partition);
        effects.extend(to.map(|to| Effect::Send(to, Item::Record(partition, offset))));
        Ok(())
    }

    /// Takes the cut when all inputs are at an epoch's end; ends when all are done.
    fn align(&mut self, row: &Row, effects: &mut Vec<Effect>) {
        let live = || self.inputs.values().filter(|input| !input.is_done);
        if live().next().is_none() {
            return self.end(row, effects);
        }
        if live().any(|input| input.marker.is_none()) {
            return;
        }
        let Some(epoch) = live().filter_map(|input| input.marker).min() else {
            return;
        };
        for input in self.inputs.values_mut() {
            if input.marker == Some(epoch) {
                input.marker = None;
            }
        }
        self.cut(epoch, row, effects);
    }

    fn cut(&mut self, epoch: Epoch, row: &Row, effects: &mut Vec<Effect>) {
        if self.last_cut >= Some(epoch) {
            return;
        }
        self.last_cut = Some(epoch);
        self.is_at_cut = true;
        effects.push(Effect::Cut(epoch, self.counts.clone()));
        let below = row.all_of(self.which.0 + 1);
        effects.extend(below.map(|to| Effect::Send(to, Item::Marker(epoch))));
    }

    fn end(&mut self, row: &Row, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            effects.push(Effect::Ended);
            let below = row.all_of(self.which.0 + 1);
            effects.extend(below.map(|to| Effect::Send(to, Item::Done)));
        }
    }
}
