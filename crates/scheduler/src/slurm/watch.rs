//! Looks what has become of containers in Slurm jobs, and has lost jobs submitted again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::Result;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::commands::{QueueState, Queued};
use super::files::{self, Life};
use super::job::Place;
use crate::runner::records::EndFile;
use crate::runner::{blocking, output};
use crate::{ContainerEvent, Ending, EventFeed};

/// How often Slurm is asked: it answers for the whole cluster, so not too often.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The time between two looks of a process at what is left of jobs that are over.
const FORGETS_EVERY: Duration = Duration::from_secs(30);

/// What was told of a container.
#[derive(Default, Debug)]
struct Told {
    life: Option<Life>,
    ended: bool,
}

/// What was told of all containers.
#[derive(Default, Debug)]
struct AllTold {
    lives: BTreeMap<ContainerId, Told>,
    /// That the files have been looked at.
    looked: bool,
}

/// Tells what happens to a job's containers.
#[derive(Debug)]
pub(super) struct Watch {
    place: Arc<Place>,
    feed: EventFeed,
    told: Mutex<AllTold>,
}

impl Watch {
    pub(super) fn new(place: Arc<Place>, feed: EventFeed) -> Self {
        let told = Mutex::default();
        Watch { place, feed, told }
    }

    /// Goes on until nobody listens. Slurm may take seconds for an answer; the files are looked at meanwhile.
    pub(super) async fn run(&self) {
        tokio::select! {
            () = self.look_again_and_again() => {}
            () = self.ask_again_and_again() => {}
            () = self.forget_again_and_again() => {}
        }
    }

    /// Removes what is left of jobs that are over. The watches of all jobs of a process take turns.
    async fn forget_again_and_again(&self) {
        let mut looks = interval(FORGETS_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.feed.is_forsaken() {
            looks.tick().await;
            if self.place.slurm.forgets_now(FORGETS_EVERY) {
                self.place.forget().await;
            }
        }
    }

    async fn look_again_and_again(&self) {
        let mut looks = interval(self.place.slurm.config.look_every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.feed.is_forsaken() {
            looks.tick().await;
            // What can't be read now is read next time.
            let _ = self.look().await;
        }
    }

    async fn ask_again_and_again(&self) {
        let mut asks = interval(ASK_EVERY);
        asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missing = BTreeSet::new();
        while !self.feed.is_forsaken() {
            asks.tick().await;
            if let Ok(now_missing) = self.ask(&missing).await {
                missing = now_missing;
            }
        }
    }

    /// Looks at the files of all containers, and tells what is new.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if a file can't be read.
    pub(super) async fn look(&self) -> Result<()> {
        let mut told = self.told.lock().await;
        let folder = self.place.folder.clone();
        let found = blocking(move || {
            let mut found = Vec::new();
            for id in folder.containers()? {
                let container = folder.container(id);
                if let Some(life) = files::life(&container)? {
                    // Between the two files the script may have begun another life.
                    found.push((id, life, files::latest_end(&container)?));
                }
            }
            Ok(found)
        });
        let looked = told.looked;
        for (id, life, end) in found.await? {
            let known = told.lives.entry(id).or_default();
            if known.life.as_ref() != Some(&life) {
                let before = std::mem::take(known);
                // What had ended before the first look was told by whoever watched then.
                self.tell_ends_before(id, before, &life, end.clone().filter(|_| looked));
                self.feed.tell(ContainerEvent::Started(life.running(id)));
                known.life = Some(life.clone());
            }
            if let Some(end) = end.filter(|end| end.incarnation == life.incarnation)
                && !std::mem::replace(&mut known.ended, true)
            {
                self.tell_end(id, &life, Some(end));
            }
        }
        told.looked = true;
        Ok(())
    }

    /// Tells the ends of the lives before this one: of what was `known`, and of one that began and ended unseen.
    fn tell_ends_before(
        &self,
        id: ContainerId,
        known: Told,
        life: &Life,
        latest_end: Option<EndFile>,
    ) {
        let seen = known.life.as_ref().map_or(0, |life| life.incarnation);
        if let Some(before) = known.life.filter(|_| !known.ended) {
            let end = latest_end.clone().filter(|end| end.incarnation == seen);
            self.tell_end(id, &before, end);
        }
        let between = seen + 1..life.incarnation;
        if let Some(end) = latest_end.filter(|end| between.contains(&end.incarnation)) {
            let unseen = Life {
                incarnation: end.incarnation,
                stderr_from: 0,
                ..life.clone()
            };
            self.tell_end(id, &unseen, Some(end));
        }
    }

    fn tell_end(&self, id: ContainerId, life: &Life, end: Option<EndFile>) {
        let folder = self.place.folder.container(id);
        self.feed.tell(ContainerEvent::Exited {
            worker: life.worker(id),
            how: end.map_or(Ending::Unknown, |end| end.how),
            last_words: output::last_words(folder.path(), life.stderr_from),
        });
    }

    /// Asks Slurm for the jobs of the containers: tells the ends of those that have vanished, and submits jobs again that are missing now
    /// and were before. Which ones are missing.
    async fn ask(&self, missing_before: &BTreeSet<ContainerId>) -> Result<BTreeSet<ContainerId>> {
        let queue = self.place.queue().await?;
        // Read after the queue: a life that has ended in the meantime is told with its code.
        self.look().await?;
        let known = self.tell_vanished(&queue, missing_before).await;
        let folder = self.place.folder.clone();
        let file = blocking(move || folder.job()).await?;
        let wanted: BTreeSet<_> = file
            .iter()
            .flat_map(|file| file.wanted.iter().map(|request| request.id))
            .collect();
        let missing = |id: &ContainerId| {
            queue
                .get(id)
                .is_none_or(|queued| queued.state == QueueState::Waiting)
        };
        let gone = wanted
            .iter()
            .any(|id| !queue.contains_key(id) && missing_before.contains(id));
        if gone && let Err(error) = self.place.settle().await {
            let container = None;
            let text = error.to_string();
            self.feed.tell(ContainerEvent::Notice { container, text });
        }
        Ok(known.into_iter().chain(wanted).filter(missing).collect())
    }

    /// Tells the ends of lives whose Slurm job is missing for the second time. All containers that are known.
    async fn tell_vanished(
        &self,
        queue: &BTreeMap<ContainerId, Queued>,
        missing_before: &BTreeSet<ContainerId>,
    ) -> Vec<ContainerId> {
        let mut told = self.told.lock().await;
        for (id, known) in &mut told.lives {
            let runs = queue
                .get(id)
                .is_some_and(|queued| queued.state != QueueState::Waiting);
            if let Some(life) = known.life.clone()
                && !runs
                && !known.ended
                && missing_before.contains(id)
            {
                known.ended = true;
                self.tell_end(*id, &life, None);
            }
        }
        told.lives.keys().copied().collect()
    }
}
