//! The life of a job with a guarantee that runs in this container: it ends as a whole, and another begins, while the process stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ardea_coordination::control::{
    AttemptFailure, Change, EpochKind, EpochsAgentAction, Generation, Life, LifeEnd, Run,
};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Dag, Epoch, Error, ErrorCode, Guarantee, Result, Waker};
use ardea_engine::{Cuts, Deployment, Keepsakes};
use tokio::sync::mpsc;

use crate::driver::Event;
use crate::plan::parallelisms;
use crate::read_first::ReadFirst;
use ardea_checkpoint::local::{CutKeeper, LifeCuts, LifeHere};

/// What the instances of a life have left here when it ended: of use to a life that begins from an epoch of that one.
pub(crate) struct Legacy {
    generation: Generation,
    keepsakes: Arc<Keepsakes>,
}

impl Legacy {
    /// For the life that begins now.
    fn for_life(self, life: Life) -> Option<Arc<Keepsakes>> {
        let is_of_it = life.from.is_some() && life.taken_in == self.generation;
        if !is_of_it {
            drop_aside(self.keepsakes);
            return None;
        }
        Some(self.keepsakes)
    }
}

/// Drops what nobody has taken: on a thread of its own, as that takes the longer the more state there is, and a life is about to begin.
fn drop_aside(left: Arc<Keepsakes>) {
    if left.is_empty() {
        return;
    }
    let aside = Arc::clone(&left);
    let dropping = thread::Builder::new().name("ardea-left".into());
    if dropping.spawn(move || aside.clear()).is_err() {
        left.clear();
    }
}

/// The life that runs here.
pub(crate) struct Living {
    life: Life,
    guarantee: Guarantee,
    cuts: Box<dyn LifeCuts>,
    /// Where its instances leave what they remember when it ends.
    keepsakes: Arc<Keepsakes>,
    /// What those of the life before have left, until its own have been made.
    left: Option<Arc<Keepsakes>>,
    /// How many of them.
    had_left: usize,
    events: mpsc::UnboundedSender<Event>,
    /// Whether the master wants sources to read.
    run: Run,
    /// Sources wait behind the end of an epoch, until another word comes.
    is_held: bool,
    /// Whether all instances here have what they begin with.
    is_restored: Arc<AtomicBool>,
    /// No epoch ends here before these have.
    first: ReadFirst,
    /// The epoch that is to end then.
    put_off: Option<(Epoch, EpochKind)>,
    look: Waker,
    /// It can't go on; the master knows.
    is_over: bool,
}

impl Living {
    /// The life of this change begins.
    ///
    /// # Errors
    /// If nobody keeps cuts here; what the keeper returns.
    pub(crate) fn begin(
        (life, change, legacy): (Life, &Change, Option<Legacy>),
        instances: &[InstanceId],
        job: &str,
        keeper: Option<&Arc<dyn CutKeeper>>,
        (events, look): (&mpsc::UnboundedSender<Event>, &Waker),
    ) -> Result<Self> {
        let Some(keeper) = keeper else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                "the job has a guarantee, and its program was not told where to keep snapshots",
            )
            .hint("run it with a version of ardea that keeps snapshots"));
        };
        let is_restored = Arc::new(AtomicBool::new(life.from.is_none()));
        let own_look = look.clone();
        let (restored, look) = (Arc::clone(&is_restored), look.clone());
        let (tells, fails) = (events.clone(), events.clone());
        let generation = life.generation;
        let cuts = keeper.begin(LifeHere {
            life,
            job: job.to_string(),
            instances: instances.to_vec(),
            parallelisms: parallelisms(&change.routes),
            tell: Arc::new(move |event| {
                let _ = tells.send(Event::Epochs(generation, event));
            }),
            restored: Arc::new(move || {
                restored.store(true, Ordering::Release);
                look.wake();
            }),
            fail: Arc::new(move |error| {
                let _ = fails.send(over(life, &error, |_| None));
            }),
        })?;
        let left = legacy.and_then(|legacy| legacy.for_life(life));
        Ok(Living {
            life,
            guarantee: keeper.guarantee(),
            cuts,
            keepsakes: Arc::default(),
            had_left: left.as_ref().map_or(0, |left| left.len()),
            left,
            events: events.clone(),
            run: Run::Prepared,
            is_held: false,
            is_restored,
            first: ReadFirst::default(),
            put_off: None,
            look: own_look,
            is_over: false,
        })
    }

    pub(crate) fn generation(&self) -> Generation {
        self.life.generation
    }

    pub(crate) fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// For these instances of the job's graph.
    pub(crate) fn cuts(&mut self, dag: &Dag, instances: &[InstanceId]) -> Cuts {
        self.first = ReadFirst::of(dag, instances);
        let cuts = self.cuts.cuts();
        Cuts {
            sink: cuts.sink.map(|sink| self.first.listen(sink, &self.look)),
            leaves: Some(Arc::clone(&self.keepsakes)),
            left: self.left.clone(),
            ..cuts
        }
    }

    /// All instances here have been made.
    pub(crate) fn begun(&mut self, deployment: &Deployment) {
        self.cuts.begun(deployment.handle());
        // What nobody has taken belongs to instances that are elsewhere now, or have other partitions.
        if let Some(left) = self.left.take() {
            let _ = self
                .events
                .send(Event::Reminded(self.had_left.saturating_sub(left.len())));
            drop_aside(left);
        }
    }

    /// It is over, and nothing of it runs any more.
    pub(crate) fn into_legacy(self) -> Legacy {
        Legacy {
            generation: self.life.generation,
            keepsakes: self.keepsakes,
        }
    }

    /// Whether all instances here have what they begin with.
    pub(crate) fn is_restored(&self) -> bool {
        self.is_restored.load(Ordering::Acquire)
    }

    /// Whether the master wants sources to read or not.
    pub(crate) fn set_run(&mut self, run: Run, deployment: &Deployment) {
        self.run = run;
        self.have_sources_read(deployment);
    }

    fn have_sources_read(&self, deployment: &Deployment) {
        match self.run {
            Run::Running | Run::Early if !self.is_held => deployment.resume(),
            Run::Running | Run::Early | Run::Prepared | Run::Paused => deployment.pause(),
        }
    }

    /// Does what the agent wants of its epochs.
    pub(crate) fn act(&mut self, action: EpochsAgentAction, deployment: &Deployment) {
        let job = deployment.handle();
        match action {
            EpochsAgentAction::End(epoch, kind) => {
                self.cuts.ends(epoch, kind);
                self.put_off = Some((epoch, kind));
                self.end_if_due(deployment);
            }
            EpochsAgentAction::Commit(epoch) => {
                self.cuts.committed(epoch);
                job.epoch_committed(epoch);
            }
            EpochsAgentAction::GivenUp(epoch) => {
                self.cuts.given_up(epoch);
                job.epoch_given_up(epoch);
                self.put_off.take_if(|(put_off, _)| *put_off <= epoch);
                self.is_held = false;
                self.have_sources_read(deployment);
            }
            // The agent tells the master by itself.
            EpochsAgentAction::Tell(_) => {}
        }
    }

    /// Ends the epoch that was asked for last, unless it has to wait.
    pub(crate) fn end_if_due(&mut self, deployment: &Deployment) {
        if !self.first.have_ended() {
            return;
        }
        let Some((epoch, kind)) = self.put_off.take() else {
            return;
        };
        self.is_held = kind.holds_sources();
        // Before the epoch ends: behind it nothing is to be read.
        if self.is_held {
            deployment.pause();
        }
        deployment.handle().end_epoch_as(epoch);
        self.have_sources_read(deployment);
    }

    /// It can't go on here: says so, once; whether that was now. `processed` returns the number of records that the instances of a
    /// vertex have processed here.
    pub(crate) fn fail(
        &mut self,
        error: &Error,
        processed: impl FnOnce(&str) -> Option<u64>,
    ) -> bool {
        let is_news = !std::mem::replace(&mut self.is_over, true);
        if is_news {
            let _ = self.events.send(over(self.life, error, processed));
        }
        is_news
    }
}

/// A life can't go on, or begin, for this reason.
///
/// Where trying again can't help, the job waits for somebody to decide. What is wrong with its description or a setting counts as that
/// before anything was committed. Later it is tried again: the same job has run before. A place of snapshots that is away is waited for, however long that takes,
/// as is a process of an earlier life that still holds what this one goes on with.
pub(crate) fn over(
    life: Life,
    error: &Error,
    processed: impl FnOnce(&str) -> Option<u64>,
) -> Event {
    let why = error.to_string();
    let is_of_the_job = matches!(
        error.code(),
        ErrorCode::InvalidJob
            | ErrorCode::InvalidConfig
            | ErrorCode::StoreUnsuitable
            | ErrorCode::WrongCluster
    );
    let is_snapshot = matches!(
        error.code(),
        ErrorCode::SnapshotDamaged | ErrorCode::NoSuchSnapshot
    );
    let end = match error.code() {
        ErrorCode::SnapshotsAway | ErrorCode::StillHeld => LifeEnd::Away(why),
        _ if is_snapshot || (is_of_the_job && life.from.is_none()) => LifeEnd::Unreadable(why),
        _ => {
            let failure = AttemptFailure::of(error, processed);
            let is_permanent = failure.is_permanent && !is_of_the_job;
            LifeEnd::Failed(AttemptFailure {
                is_permanent,
                ..failure
            })
        }
    };
    Event::LifeOver(life.generation, end)
}
