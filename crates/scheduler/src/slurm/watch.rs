//! Looks what has become of containers in Slurm jobs, and has lost jobs submitted again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;
use ardea_packing::ContainerId;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::commands::QueueState;
use super::files::{self, Life};
use super::job::Place;
use crate::runner::records::EndFile;
use crate::runner::{blocking, output};
use crate::{ContainerEvent, Ending, EventFeed};

/// How often Slurm is asked: it answers for the whole cluster, so not too often.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// What was told of a container.
#[derive(Default)]
struct Told {
    life: Option<Life>,
    ended: bool,
}

/// Tells what happens to a job's containers, until nobody listens.
pub(super) async fn watch(place: Arc<Place>, feed: EventFeed) {
    let mut looks = interval(place.slurm.config.look_every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = BTreeMap::new();
    let mut missing = BTreeSet::new();
    let mut asked = None;
    while !feed.is_forsaken() {
        looks.tick().await;
        // What can't be read now is read next time.
        let _ = look(&place, &feed, &mut told).await;
        if asked.is_none_or(|at: Instant| at.elapsed() >= ASK_EVERY) {
            if let Ok(now_missing) = ask(&place, &feed, &mut told, &missing).await {
                missing = now_missing;
            }
            asked = Some(Instant::now());
        }
    }
}

/// Looks at the files of all containers.
async fn look(
    place: &Place,
    feed: &EventFeed,
    told: &mut BTreeMap<ContainerId, Told>,
) -> Result<()> {
    let folder = place.folder.clone();
    let found = blocking(move || {
        let mut found = Vec::new();
        for id in folder.containers()? {
            let container = folder.container(id);
            if let Some((life, end)) = files::latest(&container)? {
                // Between the two files the script may have begun another life.
                found.push((id, life, end));
            }
        }
        Ok(found)
    });
    for (id, life, end) in found.await? {
        let known = told.entry(id).or_default();
        if known.life.as_ref() != Some(&life) {
            if let Some(before) = known.life.replace(life.clone())
                && !known.ended
            {
                let container = place.folder.container(id);
                let end =
                    blocking(move || container.end(before.incarnation).map(|end| (before, end)));
                let (before, end) = end.await?;
                tell_end(place, feed, id, &before, end);
            }
            known.ended = false;
            feed.tell(ContainerEvent::Started(life.running(id)));
        }
        if let Some(end) = end
            && !std::mem::replace(&mut known.ended, true)
        {
            tell_end(place, feed, id, &life, Some(end));
        }
    }
    Ok(())
}

fn tell_end(place: &Place, feed: &EventFeed, id: ContainerId, life: &Life, end: Option<EndFile>) {
    let errors = place.folder.container(id).path().join("stderr.log");
    feed.tell(ContainerEvent::Exited {
        worker: life.worker(id),
        how: end.map_or(Ending::Unknown, |end| end.how),
        last_words: output::last_words(&errors, life.stderr_from),
    });
}

/// Asks Slurm for the jobs of the containers: tells the ends of those that have vanished, and submits jobs again that are missing now and
/// were before. Which ones are missing.
async fn ask(
    place: &Arc<Place>,
    feed: &EventFeed,
    told: &mut BTreeMap<ContainerId, Told>,
    missing_before: &BTreeSet<ContainerId>,
) -> Result<BTreeSet<ContainerId>> {
    let queue = place.queue().await?;
    // Read after the queue: a life that has ended in the meantime is told with its code.
    look(place, feed, told).await?;
    for (id, known) in told.iter_mut() {
        let runs = queue
            .get(id)
            .is_some_and(|queued| queued.state != QueueState::Waiting);
        if let Some(life) = known.life.clone()
            && !runs
            && !known.ended
            && missing_before.contains(id)
        {
            known.ended = true;
            tell_end(place, feed, *id, &life, None);
        }
    }
    let folder = place.folder.clone();
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
    if gone && let Err(error) = place.settle().await {
        let container = None;
        let text = error.to_string();
        feed.tell(ContainerEvent::Notice { container, text });
    }
    let known = told.keys().copied().chain(wanted);
    Ok(known.filter(missing).collect())
}
