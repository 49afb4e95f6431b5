//! The life of a job with a guarantee that runs in this container: it ends as a whole, and another begins, while the process stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_control::{Change, EpochsAgentAction, EpochsAgentEvent, Generation, Life, LifeEnd, Run};
use ardea_core::{Epoch, Error, ErrorCode, Guarantee, Result};
use ardea_engine::{Cuts, Deployment};
use ardea_packing::InstanceId;
use tokio::sync::mpsc;

use crate::cut_keeper::{CutKeeper, LifeCuts, LifeHere};
use crate::driver::Event;
use crate::plan::parallelisms;

/// The life that runs here.
pub(crate) struct Living {
    life: Life,
    guarantee: Guarantee,
    cuts: Box<dyn LifeCuts>,
    events: mpsc::UnboundedSender<Event>,
    /// Whether the master wants sources to read.
    run: Run,
    /// Sources wait behind the end of an epoch, until another word comes.
    is_held: bool,
    /// All instances here have ended, and have left their last cuts.
    has_ended: Arc<AtomicBool>,
    /// The commit that instances have been told of, and the master not that they have.
    told: Option<Epoch>,
    /// It can't go on; the master knows.
    is_over: bool,
}

impl Living {
    /// The life of this change begins.
    ///
    /// # Errors
    /// If nobody keeps cuts here; what the keeper returns.
    pub(crate) fn begin(
        (life, change): (Life, &Change),
        instances: &[InstanceId],
        job: &str,
        keeper: Option<&Arc<dyn CutKeeper>>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Result<Self> {
        let Some(keeper) = keeper else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                "the job has a guarantee, and its program was not told where to keep snapshots",
            )
            .hint("run it with a version of ardea that keeps snapshots"));
        };
        let has_ended = Arc::<AtomicBool>::default();
        let (tells, ended) = (events.clone(), Arc::clone(&has_ended));
        let generation = life.generation;
        let cuts = keeper.begin(LifeHere {
            life,
            job: job.to_string(),
            instances: instances.to_vec(),
            parallelisms: parallelisms(&change.routes),
            tell: Arc::new(move |event| {
                if matches!(event, EpochsAgentEvent::Ended { .. }) {
                    ended.store(true, Ordering::Release);
                }
                let _ = tells.send(Event::Epochs(generation, event));
            }),
        })?;
        Ok(Living {
            life,
            guarantee: keeper.guarantee(),
            cuts,
            events: events.clone(),
            run: Run::Prepared,
            is_held: false,
            has_ended,
            told: None,
            is_over: false,
        })
    }

    pub(crate) fn generation(&self) -> Generation {
        self.life.generation
    }

    pub(crate) fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    pub(crate) fn cuts(&self) -> Cuts {
        self.cuts.cuts()
    }

    /// Whether the master wants sources to read or not.
    pub(crate) fn set_run(&mut self, run: Run, deployment: &Deployment) {
        self.run = run;
        self.have_sources_read(deployment);
    }

    fn have_sources_read(&self, deployment: &Deployment) {
        match self.run {
            Run::Running if !self.is_held => deployment.resume(),
            Run::Running | Run::Prepared | Run::Paused => deployment.pause(),
        }
    }

    /// Does what the agent wants of its epochs.
    pub(crate) fn act(&mut self, action: EpochsAgentAction, deployment: &Deployment) {
        let job = deployment.handle();
        match action {
            EpochsAgentAction::End(epoch, kind) => {
                self.cuts.ends(epoch, kind);
                self.is_held = kind.holds_sources();
                // Before the epoch ends: behind it nothing is to be read.
                if self.is_held {
                    deployment.pause();
                }
                job.end_epochs(epoch);
                self.have_sources_read(deployment);
            }
            EpochsAgentAction::Commit(epoch) => {
                self.cuts.committed(epoch);
                job.epoch_committed(epoch);
                self.told = Some(epoch);
            }
            EpochsAgentAction::GivenUp(epoch) => {
                self.cuts.given_up(epoch);
                job.epoch_given_up(epoch);
                self.is_held = false;
                self.have_sources_read(deployment);
            }
            // The agent tells the master by itself.
            EpochsAgentAction::Tell(_) => {}
        }
    }

    /// Says that a commit is carried out. What has not been made visible yet when this process dies is in the snapshot, and made visible
    /// when that is restored; of instances that have ended nothing is restored any more, so these are waited for.
    pub(crate) fn tell_visible(&mut self, deployment: &Deployment) {
        let waits = self.has_ended.load(Ordering::Acquire) && !deployment.status().is_over();
        if let Some(epoch) = self.told.take_if(|_| !waits) {
            let visible = EpochsAgentEvent::Visible(epoch);
            let _ = self.events.send(Event::Epochs(self.generation(), visible));
        }
    }

    /// It can't go on here: says so, once; whether that was now.
    pub(crate) fn fail(&mut self, error: &Error) -> bool {
        let is_news = !std::mem::replace(&mut self.is_over, true);
        if is_news {
            let _ = self.events.send(over(self.life, error));
        }
        is_news
    }
}

/// A life can't go on, or begin, for this reason.
pub(crate) fn over(life: Life, error: &Error) -> Event {
    let why = error.to_string();
    let is_snapshot = matches!(
        error.code(),
        ErrorCode::SnapshotDamaged | ErrorCode::NoSuchSnapshot
    );
    Event::LifeOver(
        life.generation,
        match is_snapshot {
            true => LifeEnd::Unreadable(why),
            false => LifeEnd::Failed(why),
        },
    )
}
