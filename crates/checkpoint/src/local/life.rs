//! One life of a job: from where it begins with what is remembered, until it ends or fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crate::io::{Alignment, CutNews, CutPlace, CutTaker, Gathering, StateReading, Writers};
use crate::savepoint::{Dropping, JobStates, StateDiff, diff};
use crate::store::{Folder, Snapshot};
use ardea_coordination::control::{EpochsAgent, Generation, ParticipantId};
use ardea_core::{DeadLetters, Epoch, Error, ErrorCode, Guarantee, Result};
use ardea_engine::{
    CutSink, CutSource, Cuts, InstanceName, Job, JobConfig, JobHandle, JobStatus, Node,
};

use crate::local::counts::{AttemptCounts, JobCounts};
use crate::local::driver::SaveWish;
use crate::local::shape;

/// The only participant: this process.
pub(crate) const PARTICIPANT: ParticipantId = ParticipantId(0);

/// What happens to a job that survives.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something of this life.
    Life(Generation, LifeEvent),
    /// Somebody wants something.
    Asked(Wish),
    /// Old snapshots could not be tidied up.
    NotTidied(Error),
    /// Somebody wants a savepoint.
    Save(SaveWish),
    /// What there was to be read of this epoch for a savepoint has been.
    Wrote(Epoch),
}

/// What somebody wants of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// End a last epoch, and then the job, which may go on from there later.
    Stop,
    /// End it as if its input had ended.
    Drain,
    /// Stop it at once.
    Cancel,
}

/// What happens in one life.
#[derive(Debug)]
pub(crate) enum LifeEvent {
    /// All instances have what they remembered.
    Restored,
    /// Something has come of the cuts of instances.
    Cuts(CutNews),
    /// The job is over.
    Over(JobStatus),
}

/// What a life needs to begin.
pub(crate) struct Beginning<'a> {
    pub(crate) job: &'a dyn Job,
    pub(crate) node: &'a Node,
    pub(crate) guarantee: Guarantee,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) folder: Arc<dyn Folder>,
    pub(crate) events: Sender<Event>,
    pub(crate) writers: Writers,
    /// How many threads read what is remembered.
    pub(crate) readers: usize,
}

/// What a life begins from.
pub(crate) struct StartFrom<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// What the job remembered then, if its program has told.
    pub(crate) was: Option<&'a JobStates>,
    /// What it remembers now.
    pub(crate) states: &'a JobStates,
    /// What was counted until then.
    pub(crate) counts: JobCounts,
}

impl StartFrom<'_> {
    /// Refuses what the job can't go on from; what it reads in another form than its own.
    fn check(&self, with: &Beginning<'_>) -> Result<Option<StateDiff>> {
        let (job, snapshot) = (with.job.name(), self.snapshot);
        let dag = with.job.graph(with.node.config().threads)?;
        shape::check(snapshot, &dag, job)?;
        let Some(was) = self.was else {
            return Ok(None);
        };
        // Of what it might have remembered, and didn't, nothing is lost.
        let was = was.having(|vertex, state| snapshot.states(vertex).contains(&state));
        let changes = diff(&was, self.states, &Dropping::nothing());
        let place = format!("its snapshot {}", snapshot.id());
        // Nothing is dropped of what is its own: it can't be told apart from what was only forgotten to be brought along.
        changes.check(job, &place).map_err(|error| {
            error.hint("change the program so that it can; or write a savepoint of what it has kept, and begin from that in another folder, where recovery.drop may leave something behind; `diff` shows all of it")
        })?;
        Ok((!changes.is_same()).then_some(changes))
    }
}

/// One life of a job.
pub(crate) struct Life {
    pub(crate) generation: Generation,
    pub(crate) handle: JobHandle,
    pub(crate) agent: EpochsAgent,
    pub(crate) gathering: Gathering,
    pub(crate) taker: Arc<CutTaker>,
    /// How many instances each vertex has.
    pub(crate) counts: BTreeMap<String, u32>,
    /// Whether the conductor knows that it has begun.
    pub(crate) has_begun: bool,
    /// The first epoch's cuts are to hold all state, and be based on nothing.
    pub(crate) has_base: bool,
    /// It has failed: what is heard of its end says no more than that.
    pub(crate) has_failed: bool,
    /// The epoch that is under way, and when it was asked for.
    pub(crate) ending: Option<(Epoch, Duration)>,
    pub(crate) counts_at_cuts: AttemptCounts,
    aligned: Alignment,
    /// The end of the job has been told.
    pub(crate) over: Option<JobStatus>,
    /// What is read in another form than the job writes it in.
    pub(crate) migrates: Option<StateDiff>,
    _reading: Option<Arc<StateReading>>,
}

impl Life {
    /// Begins a life, from that snapshot, with epochs after that one.
    ///
    /// # Errors
    /// Whatever keeps it from beginning; nothing of it runs then.
    pub(crate) fn begin(
        with: &Beginning<'_>,
        generation: Generation,
        from: Option<StartFrom<'_>>,
        after: Epoch,
    ) -> Result<Life> {
        let migrates = match &from {
            Some(from) => from.check(with)?,
            None => None,
        };
        let counted_before = from
            .as_ref()
            .map(|from| from.counts.clone())
            .unwrap_or_default();
        let from = from.map(|from| from.snapshot);
        let reading = match from {
            None => None,
            Some(snapshot) => {
                let events = with.events.clone();
                let when_read = move || {
                    // Without a driver nobody wants to know.
                    let _ = events.send(Event::Life(generation, LifeEvent::Restored));
                };
                Some(StateReading::start(
                    snapshot.clone(),
                    with.readers,
                    BTreeMap::new(),
                    when_read,
                )?)
            }
        };
        let taker = Arc::new(taker(with, generation));
        let config = JobConfig {
            guarantee: with.guarantee,
            dead_letters: Arc::clone(&with.dead_letters),
            cuts: Cuts {
                sink: Some(Arc::clone(&taker) as Arc<dyn CutSink>),
                source: reading
                    .as_ref()
                    .map(|reading| Arc::clone(reading) as Arc<dyn CutSource>),
                after,
                ..Cuts::default()
            },
            ..JobConfig::named(with.job.name())
        };
        let handle = with.job.start(with.node, config)?;
        if let Some(reading) = &reading {
            reading.all_are_open();
        }
        let names = instances(&handle);
        let counts = crate::io::counts(&names);
        // What is in another form is written in that of the program with the first cuts, so that no later version has to read it.
        let has_base = migrates.is_none()
            && from.is_some_and(|snapshot| crate::io::is_same(snapshot, &counts));
        if has_base {
            taker.has_base();
        }
        let life = Life {
            generation,
            agent: EpochsAgent::new(PARTICIPANT, generation, from.map(|from| from.id().epoch)),
            gathering: Gathering::of(generation.0, names),
            taker,
            counts,
            has_begun: false,
            has_failed: false,
            has_base,
            ending: None,
            counts_at_cuts: AttemptCounts::from(counted_before),
            aligned: Alignment::default(),
            over: None,
            migrates,
            _reading: reading,
            handle,
        };
        life.watch(with.events.clone())?;
        Ok(life)
    }

    /// Has somebody tell when the job is over.
    fn watch(&self, events: Sender<Event>) -> Result<()> {
        let (generation, handle) = (self.generation, self.handle.clone());
        let watcher = move || {
            // What it has come to says the status.
            let _ = handle.join();
            let over = LifeEvent::Over(handle.status());
            let _ = events.send(Event::Life(generation, over));
        };
        let spawned = thread::Builder::new()
            .name("ardea-life".into())
            .spawn(watcher);
        spawned.map(drop).map_err(|error| {
            self.end();
            Error::new(ErrorCode::LimitReached, "no thread to watch the job")
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })
    }

    /// Has nothing more come of it.
    pub(crate) fn end(&self) {
        self.taker.end();
        self.handle.cancel();
    }

    /// How long each vertex's slowest instance has held inputs since this was asked last.
    pub(crate) fn alignment(&mut self) -> BTreeMap<String, Duration> {
        self.aligned.since_last(self.handle.metrics())
    }
}

/// Takes the cuts of a life that is about to begin.
fn taker(with: &Beginning<'_>, generation: Generation) -> CutTaker {
    let place = CutPlace {
        folder: Arc::clone(&with.folder),
        job: with.job.name().to_string(),
        generation: generation.0,
    };
    let events = with.events.clone();
    CutTaker::new(place, with.writers.clone(), move |news| {
        // Without a driver nobody is left who wants to know.
        let _ = events.send(Event::Life(generation, LifeEvent::Cuts(news)));
    })
}

/// All instances of a job that was just started.
fn instances(handle: &JobHandle) -> Vec<InstanceName> {
    let mut counts: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for tasklet in &handle.plan().tasklets {
        for name in &tasklet.names {
            counts.insert(Arc::clone(name), tasklet.parallelism);
        }
    }
    let names = counts.into_iter().flat_map(|(vertex, parallelism)| {
        (0..parallelism).map(move |index| InstanceName {
            vertex: Arc::clone(&vertex),
            instance: ardea_core::Instance { index, parallelism },
        })
    });
    names.collect()
}
