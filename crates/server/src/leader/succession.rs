//! The succession of a job's leaders: reads the event history of earlier leaders, and hands over
//! the history to the next one.

use std::collections::BTreeMap;
use std::time::Instant;

use ardea_coordination::control::{ContainerState, JobMaster, MasterEpoch, WorkerId};
use ardea_core::{Error, Result};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{History, Selector};

use crate::leader::driver::{Driver, TaskResult};
use crate::leader::event_history::FailureCounts;
use crate::leader::history_handover::{self, Handover, HandoverWriter};
use crate::leader::published_state::named;
use crate::leader::setup::host_of;

/// The state of the handover from earlier leaders and to the next leader.
pub(crate) struct Succession {
    scribe: HandoverWriter,
    /// True if the earlier history has been read. No history is written before.
    is_taken_up: bool,
    /// The change counter of the event history at the last handover.
    changes: u64,
    /// The earliest time of the next handover of the history.
    next: Instant,
    /// True if the job already has a notice about the unreadable history. The writer that
    /// overwrites the node reports the damage again.
    loss_is_told: bool,
}

impl Driver {
    /// Starts the writer of this leader's history, and reads the history of earlier leaders.
    pub(crate) fn succeed(&mut self, epoch: MasterEpoch) {
        let mended = self.done.clone();
        self.succession = Some(Succession {
            scribe: HandoverWriter::start(self.store.clone(), move |error| {
                let _ = mended.send(TaskResult::Mended(epoch, error));
            }),
            is_taken_up: false,
            changes: self.event_history.changes(),
            next: Instant::now(),
            loss_is_told: false,
        });
        let (store, done) = (self.store.clone(), self.done.clone());
        self.tasks.spawn(async move {
            let before = history_handover::read_history(&store).await;
            let _ = done.send(TaskResult::LeftBehind(epoch, before));
        });
    }

    /// Continues the history of earlier leaders.
    pub(crate) fn take_up(&mut self, before: Result<Option<Handover>>) {
        let Some(handing) = &mut self.succession else {
            return;
        };
        handing.is_taken_up = true;
        let before = match before {
            Ok(Some(before)) => before,
            nothing => {
                if let Err(error) = nothing {
                    handing.loss_is_told = true;
                    let what = "the job's event history of earlier leaders is lost";
                    self.event_history.notice(format!("{what}: {error}"));
                }
                return;
            }
        };
        let text = describe_succession(&before.holder, &self.setup.holder);
        self.event_history.resume(before.events);
        self.forget_given_back();
        self.event_history.notice(text);
    }

    /// Records that the handover node was damaged and has been overwritten.
    pub(crate) fn mended(&mut self, error: &Error) {
        let Some(handing) = &mut self.succession else {
            return;
        };
        if !std::mem::take(&mut handing.loss_is_told) {
            let what = "the stored event history of the job was damaged, and is overwritten";
            self.event_history.notice(format!("{what}: {error}"));
        }
    }

    /// Releases the incarnations of containers that the job no longer has.
    pub(crate) fn forget_given_back(&mut self) {
        if let Some(master) = self.candidate.master() {
            self.event_history
                .release_containers(|id| master.is_container_obsolete(id));
        }
    }

    /// Hands over the history if the minimum interval since the last handover has passed.
    pub(crate) fn hand_over_if_due(&mut self) {
        let mut handing = self.succession.iter();
        if handing.any(|it| Instant::now() >= it.next) {
            self.hand_over();
        }
    }

    /// Passes the history to the writer if it has changed.
    pub(crate) fn hand_over(&mut self) {
        let changes = self.event_history.changes();
        let handing = self.succession.as_ref();
        if handing.is_none_or(|it| it.changes == changes) {
            return;
        }
        let handover = self.handover();
        if let (Some(handing), Some(handover)) = (&mut self.succession, handover) {
            handing.changes = changes;
            handing.next = Instant::now() + history_handover::EVERY;
            handing.scribe.hand_over(handover);
        }
    }

    /// Returns the history to hand over. Returns `None` until the earlier history has been read,
    /// and when the job is ending, because a late write would leave a node behind.
    fn handover(&self) -> Option<Handover> {
        let master = self.candidate.master()?;
        if master.record()?.is_ending() {
            return None;
        }
        if !self.succession.as_ref()?.is_taken_up {
            return None;
        }
        let mut events = self.event_history.events().clone();
        let counted = &mut events.counted;
        self.links.metrics().ask(|history| {
            add_counted(history, &catalogue::RESTARTS, counted, |it| {
                &mut it.restarts
            });
            add_counted(history, &catalogue::EXCEPTIONS, counted, |it| {
                &mut it.exceptions
            });
        });
        Some(Handover {
            submission: named(self.store.job().submission),
            epoch: master.epoch(),
            holder: self.setup.holder.clone(),
            events,
        })
    }
}

/// Adds the growth of the counter `metric` since this leader was elected to `counted`, by vertex.
fn add_counted(
    history: &History,
    metric: &Metric,
    counted: &mut BTreeMap<String, FailureCounts>,
    field: fn(&mut FailureCounts) -> &mut u64,
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

/// Describes the change of leadership from the holder `before` to `now`.
fn describe_succession(before: &str, now: &str) -> String {
    match (host_of(before), host_of(now)) {
        (before, now) if before == now => format!("{now} leads the job again"),
        (before, now) => format!("{now} leads the job now, {before} did before"),
    }
}

/// Returns true if the exit of a worker is expected: the job ends or no longer has the container,
/// the container is being restarted, or a newer incarnation exists.
pub(crate) fn is_exit_expected(master: &JobMaster, worker: WorkerId) -> bool {
    let Some(record) = master.record() else {
        return false;
    };
    let id = worker.container;
    let newest = master.worker(id);
    record.is_ending()
        || master.is_container_obsolete(id)
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
        let told = |before, now| describe_succession(before, now);
        assert_eq!(
            told("quay@1f", "pier@2a"),
            "pier leads the job now, quay did before"
        );
        assert_eq!(told("quay@1f", "quay@2a"), "quay leads the job again");
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
        let before = FailureCounts {
            restarts: 10,
            exceptions: 7,
        };
        let mut counted = BTreeMap::from([("a".to_string(), before)]);
        add_counted(&history, &catalogue::RESTARTS, &mut counted, |it| {
            &mut it.restarts
        });
        let after = FailureCounts {
            restarts: 15,
            ..before
        };
        assert_eq!(counted, BTreeMap::from([("a".to_string(), after)]));
    }
}
