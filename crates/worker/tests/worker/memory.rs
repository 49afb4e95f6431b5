//! Keeps the cuts of a job's containers in memory, all of them at one place, as if it were durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ardea_checkpoint::local::{CutKeeper, LifeCuts, LifeHere};
use ardea_coordination::control::{EpochKind, EpochsAgentEvent, Life, Receipt};
use ardea_core::{
    Cut, Epoch, Error, ErrorCode, Guarantee, PartitionId, Result, StateChunk, StateEntry, Waker,
};
use ardea_engine::{CutEnd, CutRead, CutReader, CutReport, CutSink, CutSource, Cuts, InstanceName};

/// Vertex and number.
type Which = (String, u32);

/// State, partition, key, value.
pub type Entry = (String, Option<u32>, Vec<u8>, Option<Vec<u8>>);

/// All that one worker has saved for an epoch; nothing for its last state.
type Saved = BTreeMap<Which, Vec<Entry>>;

/// Where all workers of a job save.
#[derive(Default)]
pub struct Memory {
    /// By life and epoch; what several workers have saved lies together.
    saved: Mutex<BTreeMap<(u64, Epoch), Saved>>,
    /// Why nothing can be read, if that is so.
    pub unreadable: Mutex<Option<ErrorCode>>,
    late: Mutex<Late>,
}

/// Whose state does not come back before it may, and who waits for that.
#[derive(Default)]
struct Late {
    vertex: Option<&'static str>,
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl Memory {
    /// From now on the state of this vertex does not come back.
    pub fn hold_back(&self, vertex: &'static str) {
        self.late.lock().unwrap().vertex = Some(vertex);
    }

    /// It comes.
    pub fn let_come(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        late.waiting.into_iter().for_each(|then| then());
    }

    /// Does it when the state of these vertices may come back; whether that was now.
    fn when_it_may(&self, of: &[&str], then: impl FnOnce() + Send + 'static) -> bool {
        let mut late = self.late.lock().unwrap();
        let is_late = late.vertex.is_some_and(|vertex| of.contains(&vertex));
        match is_late {
            true => late.waiting.push(Box::new(then)),
            false => then(),
        }
        !is_late
    }

    /// What a vertex had saved at the end of an epoch, as it was saved.
    pub fn value(&self, life: u64, epoch: Epoch, vertex: &str) -> Vec<Entry> {
        let saved = self.saved.lock().unwrap();
        let cut = &saved[&(life, epoch)];
        let own = cut.iter().filter(|((of, _), _)| of == vertex);
        own.flat_map(|(_, entries)| entries.clone()).collect()
    }
}

/// A worker's way there.
pub struct InMemory(pub Arc<Memory>);

impl CutKeeper for InMemory {
    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn begin(&self, here: LifeHere) -> Result<Box<dyn LifeCuts>> {
        let state = match here.life.from {
            Some(epoch) => {
                if let Some(code) = *self.0.unreadable.lock().unwrap() {
                    return Err(Error::new(code, "it can't be read"));
                }
                let saved = self.0.saved.lock().unwrap();
                let snapshot = saved.get(&(here.life.taken_in.0, epoch));
                Some(snapshot.cloned().expect("it was committed"))
            }
            None => None,
        };
        let vertices = here.instances.iter().map(|id| id.vertex.as_str());
        let vertices: Vec<&str> = vertices.filter(|_| state.is_some()).collect();
        let restored = Arc::clone(&here.restored);
        self.0.when_it_may(&vertices, move || restored());
        let expected = here.instances.iter();
        let expected = expected.map(|id| (id.vertex.as_str().to_string(), id.index));
        let desk = Desk {
            memory: Arc::clone(&self.0),
            life: here.life,
            expected: expected.collect(),
            open: Mutex::default(),
            tell: here.tell,
        };
        Ok(Box::new(Here {
            life: here.life,
            desk: Arc::new(desk),
            state,
        }))
    }
}

struct Here {
    life: Life,
    desk: Arc<Desk>,
    state: Option<Saved>,
}

impl LifeCuts for Here {
    fn cuts(&self) -> Cuts {
        let source = self.state.clone().map(|state| {
            let epoch = self.life.from.expect("it has state from there");
            let memory = Arc::clone(&self.desk.memory);
            Arc::new(Source {
                epoch,
                state,
                memory,
            }) as Arc<dyn CutSource>
        });
        Cuts {
            sink: Some(Arc::<Desk>::clone(&self.desk)),
            source,
            ..Cuts::default()
        }
    }

    fn ends(&mut self, _: Epoch, _: EpochKind) {}

    fn committed(&mut self, epoch: Epoch) {
        let mut open = self.desk.open.lock().unwrap();
        open.telling = Some(epoch);
        self.desk.look_at_hearers(&mut open);
    }

    fn given_up(&mut self, _: Epoch) {}
}

/// Takes the cuts of the instances of one worker in one life, all of them full.
struct Desk {
    memory: Arc<Memory>,
    life: Life,
    expected: BTreeSet<Which>,
    open: Mutex<Open>,
    tell: Arc<dyn Fn(EpochsAgentEvent) + Send + Sync>,
}

#[derive(Default)]
struct Open {
    begun: BTreeMap<Which, Vec<Entry>>,
    cuts: BTreeMap<Epoch, Saved>,
    ended: Saved,
    last_cut: Option<Epoch>,
    telling: Option<Epoch>,
    heard: BTreeMap<Which, Epoch>,
    left: BTreeSet<Which>,
}

fn which(of: &InstanceName) -> Which {
    (of.vertex.to_string(), of.instance.index)
}

fn owned(entry: StateEntry<'_>) -> Entry {
    let partition = entry.partition.map(PartitionId::index);
    let value = entry.value.map(<[u8]>::to_vec);
    (
        entry.state.to_string(),
        partition,
        entry.key.to_vec(),
        value,
    )
}

impl Desk {
    /// What is whole by now.
    fn settle(&self, open: &mut Open) {
        let epochs: Vec<Epoch> = open.cuts.keys().copied().collect();
        for epoch in epochs {
            let mut cut = open.ended.clone();
            cut.extend(open.cuts[&epoch].clone());
            if !cut.keys().eq(&self.expected) {
                continue;
            }
            open.cuts.remove(&epoch);
            open.last_cut = open.last_cut.max(Some(epoch));
            let receipt = self.save(epoch, cut);
            (self.tell)(EpochsAgentEvent::Saved(epoch, receipt));
        }
        if open.ended.keys().eq(&self.expected) {
            // It is found again by whatever epoch it is committed with: all that can follow.
            let after = open.last_cut;
            let first = after.max(self.life.from).map_or(1, |epoch| epoch.0 + 1);
            let last = (first..first + 1_000).map(Epoch);
            let receipts = last.map(|epoch| self.save(epoch, open.ended.clone()));
            let receipt = receipts.last().expect("there are some");
            (self.tell)(EpochsAgentEvent::Ended { after, receipt });
        }
    }

    /// Whether all have heard of the commit that they were told of.
    fn look_at_hearers(&self, open: &mut Open) {
        let Some(epoch) = open.telling else { return };
        let has_heard =
            |which: &Which| open.left.contains(which) || open.heard.get(which) >= Some(&epoch);
        if self.expected.iter().all(has_heard) {
            open.telling = None;
            (self.tell)(EpochsAgentEvent::Visible(epoch));
        }
    }

    fn save(&self, epoch: Epoch, cut: Saved) -> Receipt {
        let mut saved = self.memory.saved.lock().unwrap();
        let bytes = cut.len() as u64;
        let place = saved.entry((self.life.generation.0, epoch)).or_default();
        place.extend(cut);
        Receipt {
            since: None,
            place: Vec::new(),
            bytes,
        }
    }
}

impl CutSink for Desk {
    fn heard(&self, of: &InstanceName, epoch: Epoch) {
        let mut open = self.open.lock().unwrap();
        open.heard.insert(which(of), epoch);
        self.look_at_hearers(&mut open);
    }

    fn left(&self, of: &InstanceName) {
        let mut open = self.open.lock().unwrap();
        open.left.insert(which(of));
        self.look_at_hearers(&mut open);
    }

    fn wants_all(&self, _: &InstanceName, _: Epoch) -> bool {
        true
    }

    fn buffer(&self, _: &InstanceName, _: &Waker) -> Option<StateChunk> {
        Some(StateChunk::default())
    }

    fn take(&self, of: &InstanceName, _: Cut, entries: StateChunk) {
        let mut open = self.open.lock().unwrap();
        let begun = open.begun.entry(which(of)).or_default();
        begun.extend(entries.entries().map(owned));
    }

    fn finish(&self, of: &InstanceName, report: CutReport, entries: StateChunk) {
        let mut open = self.open.lock().unwrap();
        let mut all = open.begun.remove(&which(of)).unwrap_or_default();
        all.extend(entries.entries().map(owned));
        match report.cut.is_last {
            true => open.ended.insert(which(of), all),
            false => {
                let cut = open.cuts.entry(report.cut.epoch).or_default();
                cut.insert(which(of), all)
            }
        };
        self.settle(&mut open);
    }

    fn give_up(&self, of: &InstanceName, cut: Cut, why: CutEnd) {
        self.open.lock().unwrap().begun.remove(&which(of));
        if let CutEnd::Failed(error) = why {
            let failed = EpochsAgentEvent::CannotSave(cut.epoch, error.to_string());
            (self.tell)(failed);
        }
    }
}

struct Source {
    epoch: Epoch,
    state: Saved,
    memory: Arc<Memory>,
}

impl CutSource for Source {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>> {
        let own = self.state.iter();
        let own = own.filter(|((vertex, _), _)| **vertex == *of.vertex);
        let entries = own.flat_map(|(_, entries)| entries.clone());
        Ok(Box::new(Reader {
            vertex: of.vertex.to_string(),
            entries: entries.collect(),
            memory: Arc::clone(&self.memory),
        }))
    }
}

struct Reader {
    vertex: String,
    entries: Vec<Entry>,
    memory: Arc<Memory>,
}

impl CutReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        let waker = waker.clone();
        if !self
            .memory
            .when_it_may(&[&self.vertex], move || waker.wake())
        {
            return Ok(CutRead::NotYet);
        }
        if self.entries.is_empty() {
            return Ok(CutRead::End);
        }
        for (state, partition, key, value) in self.entries.drain(..) {
            into.push(StateEntry {
                state: &state,
                partition: partition.and_then(PartitionId::from_index),
                key: &key,
                value: value.as_deref(),
            })?;
        }
        Ok(CutRead::Entries)
    }
}
