//! How one mastership of a job follows another: what it takes up of what was seen before, and what it hands over itself.

use std::collections::BTreeMap;
use std::time::Instant;

use ardea_coordination::control::{ContainerState, JobMaster, MasterEpoch, WorkerId};
use ardea_core::{Error, Result};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{History, Selector};

use crate::leader::Counted;
use crate::leader::driver::{Done, Driver};
use crate::leader::facts::named;
use crate::leader::handover::{self, Handover, Scribe};

/// What one mastership has taken up from those before it, and hands over to the next.
pub(crate) struct Handing {
    scribe: Scribe,
    /// What instances had counted before; not known until it has been read, and nothing is written before that.
    counted: Option<BTreeMap<String, Counted>>,
    /// How often the chronicle had changed when it was handed over last.
    changes: u64,
    /// Not before then it is handed over again.
    next: Instant,
    /// Whether people have been told that what was left can't be read, which whoever overwrites it finds as well.
    loss_is_told: bool,
}

impl Driver {
    /// The mastership of that epoch begins: reads what was left.
    pub(crate) fn succeed(&mut self, epoch: MasterEpoch) {
        let mended = self.done.clone();
        self.handing = Some(Handing {
            scribe: Scribe::start(self.store.clone(), move |error| {
                let _ = mended.send(Done::Mended(epoch, error));
            }),
            counted: None,
            changes: self.chronicle.changes(),
            next: Instant::now(),
            loss_is_told: false,
        });
        let (store, done) = (self.store.clone(), self.done.clone());
        self.tasks.spawn(async move {
            let before = handover::left_behind(&store).await;
            let _ = done.send(Done::LeftBehind(epoch, before));
        });
    }

    /// Goes on from what masters before have seen.
    pub(crate) fn take_up(&mut self, before: Result<Option<Handover>>) {
        let Some(handing) = &mut self.handing else {
            return;
        };
        let before = match before {
            Ok(Some(before)) => before,
            nothing => {
                handing.counted = Some(BTreeMap::new());
                if let Err(error) = nothing {
                    handing.loss_is_told = true;
                    let what = "what masters before have seen of the job is lost";
                    self.chronicle.notice(format!("{what}: {error}"));
                }
                return;
            }
        };
        handing.counted = Some(before.counted.clone());
        let text = followed(&before.holder, &self.setup.holder);
        self.chronicle.resume(before);
        self.forget_given_back();
        self.chronicle.notice(text);
    }

    /// What this master has handed over was found damaged, and has been written anew.
    pub(crate) fn mended(&mut self, error: &Error) {
        let Some(handing) = &mut self.handing else {
            return;
        };
        if !std::mem::take(&mut handing.loss_is_told) {
            let what = "what is kept of what was seen of the job was damaged, and is written anew";
            self.chronicle.notice(format!("{what}: {error}"));
        }
    }

    /// Forgets the lives of containers that the job does without.
    pub(crate) fn forget_given_back(&mut self) {
        if let Some(master) = self.candidate.master() {
            self.chronicle.gave_back(|id| master.does_without(id));
        }
    }

    /// Hands over what was seen, unless that has just been done.
    pub(crate) fn hand_over_if_due(&mut self) {
        let mut handing = self.handing.iter();
        if handing.any(|it| Instant::now() >= it.next) {
            self.hand_over();
        }
    }

    /// Has what was seen written for the next master, if there is anything new.
    pub(crate) fn hand_over(&mut self) {
        let changes = self.chronicle.changes();
        let handing = self.handing.as_ref();
        if handing.is_none_or(|it| it.changes == changes) {
            return;
        }
        let handover = self.handover();
        if let (Some(handing), Some(handover)) = (&mut self.handing, handover) {
            handing.changes = changes;
            handing.next = Instant::now() + handover::EVERY;
            handing.scribe.hand_over(handover);
        }
    }

    /// What the next master should know; nothing while it is not known what masters before have left, nor when the job is ending: a
    /// write that comes late would leave something behind.
    fn handover(&self) -> Option<Handover> {
        let master = self.candidate.master()?;
        if master.record()?.is_ending() {
            return None;
        }
        let mut counted = self.handing.as_ref()?.counted.clone()?;
        self.links.metrics().ask(|history| {
            add_counted(history, &catalogue::RESTARTS, &mut counted, |it| {
                &mut it.restarts
            });
            add_counted(history, &catalogue::EXCEPTIONS, &mut counted, |it| {
                &mut it.exceptions
            });
        });
        Some(Handover {
            submission: named(self.store.job().submission),
            epoch: master.epoch(),
            holder: self.setup.holder.clone(),
            counted,
            ..self.chronicle.hand_over()
        })
    }

    /// What the instances of a vertex had counted under masters before.
    pub(crate) fn counted_before(&self, vertex: &str) -> Counted {
        let counted = self.handing.as_ref().and_then(|it| it.counted.as_ref());
        let counted = counted.and_then(|it| it.get(vertex)).copied();
        counted.unwrap_or_default()
    }
}

/// Adds what a counter has come to since this master leads, by vertex.
fn add_counted(
    history: &History,
    metric: &Metric,
    counted: &mut BTreeMap<String, Counted>,
    field: fn(&mut Counted) -> &mut u64,
) {
    for series in history.grown(&Selector::of(metric.name), &["vertex"]) {
        let vertex = series.labels.get("vertex");
        if let Some(vertex) = vertex.filter(|_| series.value >= 1.0) {
            let counted = counted.entry(vertex.to_string()).or_default();
            let field = field(counted);
            *field = field.saturating_add(series.value as u64);
        }
    }
}

/// Who leads now, as a person would say it; the names of holders may tell behind an `@` which life of a process they are.
fn followed(before: &str, now: &str) -> String {
    let process = |holder: &str| {
        let name = holder.rsplit_once('@').map(|(name, _)| name);
        name.unwrap_or(holder).to_string()
    };
    match (process(before), process(now)) {
        (before, now) if before == now => format!("{now} leads the job anew"),
        (before, now) => format!("{now} leads the job now, {before} did before"),
    }
}

/// Whether it is no surprise that a worker's process ends: the job ends, or does without the container, or it is stopped to be started
/// again, or another life has taken its place.
pub(crate) fn was_to_end(master: &JobMaster, worker: WorkerId) -> bool {
    let Some(record) = master.record() else {
        return false;
    };
    let id = worker.container;
    let newest = master.worker(id);
    record.is_ending()
        || master.does_without(id)
        || master.container(id) == ContainerState::Restarting
        || newest.is_some_and(|newest| newest.incarnation > worker.incarnation)
}

#[cfg(test)]
mod tests {
    use ardea_core::Timestamp;
    use ardea_metrics::{Batch, HistoryConfig, Labels, Value};

    use super::*;

    #[test]
    fn who_follows_whom_is_told_by_the_names_of_their_hosts() {
        let told = |before, now| followed(before, now);
        assert_eq!(
            told("quay@1f", "pier@2a"),
            "pier leads the job now, quay did before"
        );
        assert_eq!(told("quay@1f", "quay@2a"), "quay leads the job anew");
        assert_eq!(told("a", "b"), "b leads the job now, a did before");
    }

    #[test]
    fn what_instances_counted_is_added_up_by_vertex_on_top_of_what_was_before() {
        let start = Timestamp::from_secs(1_000);
        let mut history = History::new(HistoryConfig::default(), start);
        let process = Labels::of([("container", "1")]);
        let mut batch = Batch::new(process, start, start);
        for (vertex, instance, restarts) in [("a", "0", 2.0), ("a", "1", 3.0), ("b", "0", 0.0)] {
            let labels = Labels::of([("vertex", vertex), ("instance", instance)]);
            batch.push(catalogue::RESTARTS.name, &labels, Value::Counter(restarts));
        }
        history.take(&batch, start);
        let before = Counted {
            restarts: 10,
            exceptions: 7,
        };
        let mut counted = BTreeMap::from([("a".to_string(), before)]);
        add_counted(&history, &catalogue::RESTARTS, &mut counted, |it| {
            &mut it.restarts
        });
        let after = Counted {
            restarts: 15,
            ..before
        };
        assert_eq!(counted, BTreeMap::from([("a".to_string(), after)]));
    }
}
