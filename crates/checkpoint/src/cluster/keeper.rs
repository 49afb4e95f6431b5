//! Keeps what the instances of a container remember, in the folder of its job or in the memory of hosts.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::io::{CutPlace, CutTaker, Gathering, StateReading, Writers, is_same, waited_for};
use crate::local::{CutKeeper, LifeCuts, LifeHere};
use crate::store::{Folder, Snapshot, SnapshotId};
use ardea_coordination::control::{BROUGHT, EpochKind, JobRef, Life, WorkerId, WorkerStart};
use ardea_core::{Epoch, Error, ErrorCode, Guarantee, Instance, Result};
use ardea_engine::{CutSink, CutSource, Cuts, InstanceName, JobHandle};
use ardea_grid::cluster::{Ask, Shelter, Told};

use crate::cluster::losing::{Heard, Losing, Watched};
use crate::cluster::probe::{find_place, lost};
use crate::cluster::scribe::{Note, Scribe};
use crate::cluster::{Place, Promise};

/// More threads than this don't make snapshots quicker to write or to read.
const MOST_THREADS: usize = 4;

/// Keeps what the instances of a container remember, in the folder of its job or in the memory of hosts.
///
/// Nothing is opened, and no thread started, before a life begins.
pub struct FolderKeeper {
    promise: Promise,
    job: JobRef,
    worker: WorkerId,
    shelter: Option<Arc<dyn Shelter>>,
    /// For all lives of the job here.
    writers: Mutex<Option<Writers>>,
    /// What was told of losses in all of them.
    heard: Heard,
}

/// What a life begins with.
struct Found {
    folder: Arc<dyn Folder>,
    /// What it begins from.
    snapshot: Option<Snapshot>,
    /// Who tells of losses, to which job, and what follows from it.
    losing: Option<Watched>,
}

impl FolderKeeper {
    /// For the worker that was started so; none if its job promises nothing. `shelter` is its way to the memory of hosts, if it has one.
    ///
    /// # Errors
    /// As [`Promise::of`].
    pub fn of(
        start: &WorkerStart,
        shelter: Option<Arc<dyn Shelter>>,
    ) -> Result<Option<Arc<dyn CutKeeper>>> {
        let promise = Promise::by(&start.settings, &start.job)?;
        Ok(promise.map(|promise| {
            Arc::new(FolderKeeper {
                promise,
                job: start.job.clone(),
                worker: start.worker,
                shelter,
                writers: Mutex::default(),
                heard: Heard::default(),
            }) as Arc<dyn CutKeeper>
        }))
    }

    fn threads() -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.clamp(1, MOST_THREADS)
    }

    fn writers(&self) -> Result<Writers> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        match &*writers {
            Some(writers) => Ok(writers.clone()),
            None => Ok(writers
                .insert(Writers::start(FolderKeeper::threads())?)
                .clone()),
        }
    }

    /// What a life begins with; what is there, and can't be read at the moment, is waited for.
    fn find(&self, here: &LifeHere) -> Result<Found> {
        let found = self.open(here);
        match here.life.from {
            None => found,
            Some(_) => found.map_err(|error| away(&self.promise.place, error)),
        }
    }

    fn open(&self, here: &LifeHere) -> Result<Found> {
        let folder = find_place(&self.promise.place, &self.job, self.shelter.as_ref())?;
        // Asked before anything is read: what is lost from then on is noticed.
        let losing = self.losing(here)?;
        let snapshot = self.snapshot(&folder, here.life)?;
        Ok(Found {
            folder,
            snapshot,
            losing,
        })
    }

    /// The snapshot that a life begins from.
    fn snapshot(&self, folder: &Arc<dyn Folder>, life: Life) -> Result<Option<Snapshot>> {
        let open = |epoch: Epoch| {
            let id = SnapshotId::new(life.taken_in.0, epoch);
            let opened = Snapshot::open(Arc::clone(folder), &self.job.name, id);
            opened.map_err(|error| lost(&self.promise.place, error))
        };
        life.from.map(open).transpose()
    }

    /// Who tells of losses, where there can be some.
    fn losing(&self, here: &LifeHere) -> Result<Option<Watched>> {
        let (Place::Memory, Some(shelter)) = (&self.promise.place, &self.shelter) else {
            return Ok(None);
        };
        let job = self.job.key();
        let Told::Losses(seen) = shelter.ask(&job, Ask::Losses)? else {
            let what = "what keeps snapshots in memory does not tell of losses";
            return Err(Error::new(ErrorCode::BadMessage, what)
                .hint("run the same version of ardea in all processes of the cluster"));
        };
        let vertices = here.instances.iter();
        let vertices = vertices.map(|id| id.vertex.as_str().to_string()).collect();
        let losing = Losing::new(seen, vertices, &self.heard);
        Ok(Some((Arc::clone(shelter), job, losing)))
    }
}

impl CutKeeper for FolderKeeper {
    fn guarantee(&self) -> Guarantee {
        self.promise.survival.promised()
    }

    fn begin(&self, here: LifeHere) -> Result<Box<dyn LifeCuts>> {
        let Found {
            folder,
            snapshot,
            losing,
        } = self.find(&here)?;
        let counts: BTreeMap<String, u32> = here
            .parallelisms
            .iter()
            .map(|(vertex, count)| (vertex.clone(), *count))
            .collect();
        // What was brought from elsewhere may be in another form than the one in which it would be changed.
        let is_own = here.life.taken_in != BROUGHT;
        let own = snapshot.as_ref().filter(|_| is_own);
        let has_base = own.is_some_and(|snapshot| is_same(snapshot, &counts));
        let reading = snapshot
            .map(|snapshot| {
                let restored = Arc::clone(&here.restored);
                let mut instances: BTreeMap<String, u32> = BTreeMap::new();
                for id in &here.instances {
                    *instances.entry(id.vertex.as_str().to_string()).or_default() += 1;
                }
                let threads = FolderKeeper::threads();
                StateReading::start(snapshot, threads, instances, move || restored())
            })
            .transpose()?;
        let (notes, noted) = channel();
        let place = CutPlace {
            folder,
            job: self.job.name.clone(),
            generation: here.life.generation.0,
        };
        let news = notes.clone();
        let taker = CutTaker::new(place.clone(), self.writers()?, move |told| {
            // Without a scribe the life is over, and nobody wants to know.
            let _ = news.send(Note::Cuts(told));
        });
        if has_base {
            taker.has_base();
        }
        let taker = Arc::new(taker);
        let names = here.instances.iter().map(|id| {
            let vertex = id.vertex.as_str();
            InstanceName {
                vertex: vertex.into(),
                instance: Instance {
                    index: id.index,
                    parallelism: counts.get(vertex).copied().unwrap_or(1),
                },
            }
        });
        let scribe = Scribe {
            gathering: Gathering::of(here.life.generation.0, names),
            taker: Arc::clone(&taker),
            place,
            container: self.worker.container.0,
            base: here.life.from.filter(|_| has_base),
            losing,
            tell: here.tell,
            fail: here.fail,
        };
        spawn(scribe, noted)?;
        Ok(Box::new(KeptLife {
            from: here.life.from,
            taker,
            reading,
            notes,
        }))
    }
}

/// What keeps a life from beginning from a snapshot that was there when it was made, and says nothing against that: it is waited for. Another
/// folder than the job's is none that was damaged, and whatever took its place may go again; hosts that don't answer may come back with what
/// they have in memory. What they have lost is not away.
fn away(place: &Place, error: Error) -> Error {
    let (what, next) = match (place, error.code()) {
        (Place::Folder(_) | Place::Both(_), ErrorCode::InvalidConfig) => (
            "what the job remembers is not seen at the moment",
            "bring the folder of its snapshots back, or the bucket; the job goes on by itself then",
        ),
        (Place::Memory, ErrorCode::StateUnavailable | ErrorCode::ReadFailed) => (
            "what the job remembers is in the memory of hosts, and can't be read at the moment",
            "see to the hosts (`ardea cluster status`); the job goes on by itself when they answer",
        ),
        _ => return waited_for(error),
    };
    let away = Error::new(ErrorCode::SnapshotsAway, what);
    away.because(error.without_hint()).hint(next)
}

fn spawn(scribe: Scribe, noted: std::sync::mpsc::Receiver<Note>) -> Result<()> {
    let spawned = thread::Builder::new()
        .name("ardea-parts".into())
        .spawn(move || scribe.work(&noted));
    spawned.map(drop).map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "no thread to write down what was saved",
        )
        .because(error)
        .hint("raise the limit of threads (ulimit -u)")
    })
}

/// One life of the job in this container.
struct KeptLife {
    from: Option<Epoch>,
    taker: Arc<CutTaker>,
    reading: Option<Arc<StateReading>>,
    /// The way to its scribe.
    notes: Sender<Note>,
}

impl KeptLife {
    fn note(&self, note: Note) {
        // One that panicked has said so.
        let _ = self.notes.send(note);
    }
}

impl LifeCuts for KeptLife {
    fn cuts(&self) -> Cuts {
        let source = self.reading.as_ref();
        Cuts {
            sink: Some(Arc::clone(&self.taker) as Arc<dyn CutSink>),
            source: source.map(|reading| Arc::clone(reading) as Arc<dyn CutSource>),
            after: self.from.unwrap_or_default(),
            ..Cuts::default()
        }
    }

    fn begun(&mut self, job: &JobHandle) {
        self.note(Note::Begun(job.clone()));
        if let Some(reading) = &self.reading {
            reading.all_are_open();
        }
    }

    fn ends(&mut self, epoch: Epoch, _: EpochKind) {
        self.note(Note::Ends(epoch));
    }

    fn committed(&mut self, epoch: Epoch) {
        // What this life was restored from may be told again.
        if Some(epoch) > self.from {
            self.taker.has_base();
        }
        self.note(Note::Committed(epoch, Some(epoch) > self.from));
    }

    fn given_up(&mut self, epoch: Epoch) {
        self.note(Note::GivenUp(epoch));
    }
}

impl Drop for KeptLife {
    fn drop(&mut self) {
        self.taker.end();
        self.note(Note::Over);
    }
}
