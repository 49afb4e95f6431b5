//! The watch of containers in Slurm jobs, which also resubmits lost jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::Result;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::commands::{QueueState, Queued};
use super::files::{self, Incarnation};
use super::job::SlurmJobRef;
use crate::runner::records::EndFile;
use crate::runner::{blocking, output};
use crate::{ContainerEvent, Ending, EventFeed};

/// The interval of queries to Slurm. It is long, because a response covers the whole cluster.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// The interval at which a process collects garbage of finished jobs.
const GC_INTERVAL: Duration = Duration::from_secs(30);

/// The state of a container that was last reported as events.
#[derive(Default, Debug)]
struct ReportedState {
    life: Option<Incarnation>,
    ended: bool,
}

/// The reported states of all containers.
#[derive(Default, Debug)]
struct ReportedStates {
    states: BTreeMap<ContainerId, ReportedState>,
    /// True once the containers' files have been read for the first time.
    looked: bool,
}

/// The watch of a job's containers, which reports their events.
#[derive(Debug)]
pub(super) struct Watch {
    place: Arc<SlurmJobRef>,
    feed: EventFeed,
    reported: Mutex<ReportedStates>,
}

impl Watch {
    pub(super) fn new(place: Arc<SlurmJobRef>, feed: EventFeed) -> Self {
        let told = Mutex::default();
        Watch {
            place,
            feed,
            reported: told,
        }
    }

    /// Runs until the event receiver is dropped. A query to Slurm may take seconds; the containers'
    /// files are polled during that time too.
    pub(super) async fn run(&self) {
        tokio::select! {
            () = self.poll_files() => {}
            () = self.poll_slurm() => {}
            () = self.run_gc() => {}
        }
    }

    /// Removes data of finished jobs. The watches of all jobs of a process share the work.
    async fn run_gc(&self) {
        let mut looks = interval(GC_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.feed.is_closed() {
            looks.tick().await;
            if self.place.slurm.take_gc_turn(GC_INTERVAL) {
                self.place.forget().await;
            }
        }
    }

    async fn poll_files(&self) {
        let mut looks = interval(self.place.slurm.config.poll_interval);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.feed.is_closed() {
            looks.tick().await;
            // Failures are retried at the next poll.
            let _ = self.look().await;
        }
    }

    async fn poll_slurm(&self) {
        let mut asks = interval(QUERY_INTERVAL);
        asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missing = BTreeSet::new();
        while !self.feed.is_closed() {
            asks.tick().await;
            if let Ok(now_missing) = self.query_slurm(&missing).await {
                missing = now_missing;
            }
        }
    }

    /// Reads the files of all containers, and reports changes.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if a file can't be read.
    pub(super) async fn look(&self) -> Result<()> {
        let mut told = self.reported.lock().await;
        let folder = self.place.folder.clone();
        let found = blocking(move || {
            let mut found = Vec::new();
            for id in folder.containers()? {
                let container = folder.container(id);
                if let Some(life) = files::latest_incarnation(&container)? {
                    // Between reading the two files, the script may have started another
                    // incarnation.
                    found.push((id, life, files::latest_end(&container)?));
                }
            }
            Ok(found)
        });
        let looked = told.looked;
        for (id, life, end) in found.await? {
            let known = told.states.entry(id).or_default();
            if known.life.as_ref() != Some(&life) {
                let before = std::mem::take(known);
                // The previous watch has reported the ends before the first read.
                self.report_earlier_ends(id, before, &life, end.clone().filter(|_| looked));
                self.feed.send(ContainerEvent::Started(life.running(id)));
                known.life = Some(life.clone());
            }
            if let Some(end) = end.filter(|end| end.incarnation == life.incarnation)
                && !std::mem::replace(&mut known.ended, true)
            {
                self.report_end(id, &life, Some(end));
            }
        }
        told.looked = true;
        Ok(())
    }

    /// Reports the ends of earlier incarnations: that of the `known` incarnation, and that of an
    /// incarnation that started and ended between two polls.
    fn report_earlier_ends(
        &self,
        id: ContainerId,
        known: ReportedState,
        life: &Incarnation,
        latest_end: Option<EndFile>,
    ) {
        let seen = known.life.as_ref().map_or(0, |life| life.incarnation);
        if let Some(before) = known.life.filter(|_| !known.ended) {
            let end = latest_end.clone().filter(|end| end.incarnation == seen);
            self.report_end(id, &before, end);
        }
        let between = seen + 1..life.incarnation;
        if let Some(end) = latest_end.filter(|end| between.contains(&end.incarnation)) {
            let unseen = Incarnation {
                incarnation: end.incarnation,
                stderr_from: 0,
                ..life.clone()
            };
            self.report_end(id, &unseen, Some(end));
        }
    }

    fn report_end(&self, id: ContainerId, life: &Incarnation, end: Option<EndFile>) {
        let folder = self.place.folder.container(id);
        self.feed.send(ContainerEvent::Exited {
            worker: life.worker(id),
            how: end.map_or(Ending::Unknown, |end| end.how),
            last_words: output::last_words(folder.path(), life.stderr_from),
        });
    }

    /// Queries Slurm for the Slurm jobs of the containers. Reports the ends of vanished containers.
    /// Resubmits Slurm jobs that are missing now and were missing at the previous query. Returns
    /// the missing containers.
    async fn query_slurm(
        &self,
        missing_before: &BTreeSet<ContainerId>,
    ) -> Result<BTreeSet<ContainerId>> {
        let queue = self.place.queue().await?;
        // The files are read after the queue, so that an incarnation that ended during the query is
        // reported with its exit code.
        self.look().await?;
        let known = self.report_vanished(&queue, missing_before).await;
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
            self.feed.send(ContainerEvent::Notice { container, text });
        }
        Ok(known.into_iter().chain(wanted).filter(missing).collect())
    }

    /// Reports the ends of incarnations whose Slurm job is missing at a second query. Returns all
    /// known containers.
    async fn report_vanished(
        &self,
        queue: &BTreeMap<ContainerId, Queued>,
        missing_before: &BTreeSet<ContainerId>,
    ) -> Vec<ContainerId> {
        let mut told = self.reported.lock().await;
        for (id, known) in &mut told.states {
            let runs = queue
                .get(id)
                .is_some_and(|queued| queued.state != QueueState::Waiting);
            if let Some(life) = known.life.clone()
                && !runs
                && !known.ended
                && missing_before.contains(id)
            {
                known.ended = true;
                self.report_end(*id, &life, None);
            }
        }
        told.states.keys().copied().collect()
    }
}
