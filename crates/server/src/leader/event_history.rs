//! The bounded event history of a job: notes, problems and restarts, including those handed over by
//! earlier leaders. For display only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ardea_coordination::control::{JobPhase, MasterStatus, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_rest::{NoteView, ProblemView};
use ardea_scheduler::{ContainerEvent, Ending, RunningContainer};
use serde::{Deserialize, Serialize};

use crate::leader::clock::now_ms;
use crate::leader::event_text::{exit_text, phase_text, status_text};
use crate::leader::incarnations::Incarnations;

/// Maximum number of retained notes.
const MOST_NOTES: usize = 1_000;

/// Maximum number of instances and containers with retained problems.
const MOST_PROBLEMS: usize = 1_000;

/// Maximum length of a retained text, in characters.
const MOST_LETTERS: usize = 2_000;

/// The events of a job, as recorded by its current and earlier leaders.
#[derive(Debug)]
pub(crate) struct EventHistory {
    phase: JobPhase,
    since_ms: u64,
    events: JobEvents,
    places: BTreeMap<ContainerId, RunningContainer>,
    /// The number of changes of `events`.
    changes: u64,
}

/// The part of the history that the leader hands over to the next one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobEvents {
    /// The last steady phase of the job and its start time. A recovery or a change of plan only
    /// interrupts a steady phase.
    pub(crate) lasting: Option<(JobPhase, u64)>,
    /// The incarnations of the containers' processes.
    pub(crate) lives: BTreeMap<ContainerId, Incarnations>,
    /// The failure counters of instances under earlier leaders, whose metrics are lost, by vertex.
    pub(crate) counted: BTreeMap<String, FailureCounts>,
    /// Problems of instances, and unexpected exits of containers' processes, latest first.
    pub(crate) problems: Vec<ProblemView>,
    /// Notes on the job's events, oldest first.
    pub(crate) notes: VecDeque<RetainedNote>,
}

/// Failure counters of a vertex's instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FailureCounts {
    /// The number of restarts of the instances.
    pub(crate) restarts: u64,
    /// The number of errors and panics of the instances.
    pub(crate) exceptions: u64,
}

/// A retained note: an event of the job with its time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RetainedNote {
    #[serde(flatten)]
    pub(crate) view: NoteView,
    /// The exit that the note describes, if this leader has recorded it.
    #[serde(skip)]
    exit: Option<RecordedExit>,
}

/// The exit of a worker's process.
#[derive(Clone, PartialEq, Debug)]
struct RecordedExit {
    worker: WorkerId,
    /// True if the exit was counted as a problem of the container.
    is_counted: bool,
}

impl EventHistory {
    pub(crate) fn new() -> Self {
        EventHistory {
            phase: JobPhase::Reading,
            since_ms: now_ms(),
            events: JobEvents::default(),
            places: BTreeMap::new(),
            changes: 0,
        }
    }

    pub(crate) fn phase(&mut self, phase: JobPhase) {
        self.since_ms = self.append(phase_text(&phase), None);
        self.phase = phase;
        self.resume_steady_phase();
    }

    /// Records a steady phase, or resumes one after an interruption with its original start time.
    fn resume_steady_phase(&mut self) {
        if !matches!(self.phase, JobPhase::Running | JobPhase::Paused) {
            return;
        }
        match &self.events.lasting {
            Some((phase, began)) if *phase == self.phase => self.since_ms = *began,
            _ => self.events.lasting = Some((self.phase.clone(), self.since_ms)),
        }
    }

    pub(crate) fn note(&mut self, status: &MasterStatus) {
        match status {
            MasterStatus::Joined(worker) => self.lives(*worker).record(worker.incarnation),
            MasterStatus::Problem(instance, why) => self.count(instance.to_string(), why.clone()),
            // The failure counts as a problem of the container; the rollback is a separate note.
            MasterStatus::AttemptFailed(worker, why) => {
                return self.count(name_of(worker.container), why.clone());
            }
            _ => {}
        }
        self.append(status_text(status), None);
    }

    /// Records an event of the scheduler. Returns the worker if its process has exited.
    /// `was_to_end` returns true for workers that are expected to exit.
    pub(crate) fn container(
        &mut self,
        event: ContainerEvent,
        was_to_end: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        match event {
            ContainerEvent::Started(running) => {
                self.lives(running.worker)
                    .record(running.worker.incarnation);
                self.places.insert(running.worker.container, running);
                None
            }
            ContainerEvent::Exited {
                worker,
                how,
                last_words,
            } => {
                let lives = self.lives(worker);
                // A restarted scheduler reports the current state, including exits that were
                // already reported.
                if lives.end(worker.incarnation) {
                    let is_obsolete = lives.is_released(worker.incarnation);
                    self.record_exit(worker, &how, &last_words, (is_obsolete, was_to_end(worker)));
                }
                Some(worker)
            }
            ContainerEvent::Notice { container, text } => {
                self.notice(match container {
                    Some(container) => format!("container {container}: {text}"),
                    None => text,
                });
                None
            }
        }
    }

    fn record_exit(
        &mut self,
        worker: WorkerId,
        how: &Ending,
        last_words: &[String],
        (is_obsolete, is_expected): (bool, bool),
    ) {
        let is_counted = !is_obsolete && is_failure(how, is_expected);
        let exit = exit_text(how, last_words);
        if is_counted {
            self.count(name_of(worker.container), format!("its process {exit}"));
        }
        let text = match (how, is_expected) {
            (Ending::Unknown, true) => {
                format!("the process of worker {worker} has ended as expected")
            }
            _ => format!("the process of worker {worker} {exit}"),
        };
        self.append(text, Some(RecordedExit { worker, is_counted }));
    }

    /// Adds a note with a notice of the scheduler or of this leader's process.
    pub(crate) fn notice(&mut self, text: String) {
        self.append(text, None);
    }

    fn lives(&mut self, worker: WorkerId) -> &mut Incarnations {
        self.events.lives.entry(worker.container).or_default()
    }

    /// Releases this incarnation of a container and earlier ones. Their exits are no failures, and
    /// they do not count as restarts.
    pub(crate) fn release_incarnation(&mut self, worker: WorkerId) {
        self.lives(worker).release(worker.incarnation);
    }

    /// Releases all known incarnations of the matching containers; see
    /// [`release_incarnation`](Self::release_incarnation).
    pub(crate) fn release_containers(&mut self, is_given_back: impl Fn(ContainerId) -> bool) {
        for (id, lives) in &mut self.events.lives {
            if let Some(newest) = lives.newest()
                && is_given_back(*id)
            {
                lives.release(newest);
                self.changes += 1;
            }
        }
    }

    /// Appends a note and returns its time in milliseconds since 1970.
    fn append(&mut self, text: String, exit: Option<RecordedExit>) -> u64 {
        let notes = &mut self.events.notes;
        if notes.len() == MOST_NOTES {
            notes.pop_front();
        }
        let (at_ms, text) = (now_ms(), shortened(text));
        let view = NoteView { at_ms, text };
        notes.push_back(RetainedNote { view, exit });
        self.changes += 1;
        at_ms
    }

    /// Counts one problem of an instance or a container.
    fn count(&mut self, instance: String, message: String) {
        let problems = &mut self.events.problems;
        let known = problems.iter().position(|it| it.instance == instance);
        let count = known.map_or(0, |at| problems.remove(at).count);
        problems.truncate(MOST_PROBLEMS - 1);
        let latest = ProblemView {
            instance,
            count: count.saturating_add(1),
            at_ms: now_ms(),
            message: shortened(message),
        };
        problems.insert(0, latest);
        self.changes += 1;
    }

    /// Returns the change counter.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the events for the next leader.
    pub(crate) fn events(&self) -> &JobEvents {
        &self.events
    }

    /// Merges the events of earlier leaders with those recorded here.
    pub(crate) fn resume(&mut self, before: JobEvents) {
        for (container, lives) in &before.lives {
            self.remove_reported(*container, lives);
            let known = self.events.lives.entry(*container).or_default();
            known.resume(lives.clone());
        }
        let events = &mut self.events;
        events.counted = before.counted;
        for problem in before.problems {
            let mut known = events.problems.iter_mut();
            match known.find(|it| it.instance == problem.instance) {
                Some(known) => known.count = known.count.saturating_add(problem.count),
                None => events.problems.push(problem),
            }
        }
        events.problems.truncate(MOST_PROBLEMS);
        let room = MOST_NOTES - events.notes.len();
        for note in before.notes.into_iter().rev().take(room) {
            events.notes.push_front(note);
        }
        if let Some((phase, began)) = before.lasting {
            match &mut events.lasting {
                Some((now, since)) if *now == phase => *since = began,
                Some(_) => {}
                None => events.lasting = Some((phase, began)),
            }
            self.resume_steady_phase();
        }
        self.changes += 1;
    }

    /// Removes the exits of a container recorded by this leader that an earlier leader had recorded
    /// too.
    fn remove_reported(&mut self, container: ContainerId, before: &Incarnations) {
        let is_reported = |exit: &RecordedExit| {
            exit.worker.container == container && before.has_ended(exit.worker.incarnation)
        };
        let JobEvents {
            notes, problems, ..
        } = &mut self.events;
        let of_container = name_of(container);
        notes.retain(|note| {
            let Some(exit) = note.exit.as_ref().filter(|exit| is_reported(exit)) else {
                return true;
            };
            let mut counted = problems.iter_mut().filter(|_| exit.is_counted);
            if let Some(counted) = counted.find(|it| it.instance == of_container) {
                counted.count = counted.count.saturating_sub(1);
            }
            false
        });
        problems.retain(|problem| problem.count > 0);
    }

    pub(crate) fn present(&self) -> (&JobPhase, u64) {
        (&self.phase, self.since_ms)
    }

    /// Returns the latest notes, at most `most`, oldest first.
    pub(crate) fn notes(&self, most: usize) -> Vec<NoteView> {
        let notes = &self.events.notes;
        let latest = notes.iter().skip(notes.len().saturating_sub(most));
        latest.map(|note| note.view.clone()).collect()
    }

    /// Returns the problems of instances and containers, latest first. The exit of a container's
    /// process is left out if an instance reported the same error.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        let all = &self.events.problems;
        // Only the names of instances contain `#`.
        let is_of_instance = |problem: &ProblemView| problem.instance.contains('#');
        let is_reported = |error: &str| {
            let mut instances = all.iter().filter(|it| is_of_instance(it));
            instances.any(|it| it.message.starts_with(error))
        };
        let is_distinct = |problem: &&ProblemView| {
            let exit = problem.message.split_once(": error: ");
            is_of_instance(problem) || exit.is_none_or(|(_, error)| !is_reported(error))
        };
        all.iter().filter(is_distinct).cloned().collect()
    }

    /// Returns the failure counters of a vertex's instances under earlier leaders.
    pub(crate) fn counted_before(&self, vertex: &str) -> FailureCounts {
        let counted = self.events.counted.get(vertex);
        counted.copied().unwrap_or_default()
    }

    /// Returns true if the container is known to have been started.
    pub(crate) fn has_been(&self, container: ContainerId) -> bool {
        let lives = self.events.lives.get(&container);
        lives.is_some_and(|lives| lives.newest().is_some())
    }

    pub(crate) fn restarts(&self, container: ContainerId) -> u32 {
        let lives = self.events.lives.get(&container);
        lives.map_or(0, |lives| lives.restarts())
    }

    /// Returns the machines of the current containers, sorted, at most `most`.
    pub(crate) fn machines(&self, most: usize) -> Vec<String> {
        let machines: BTreeSet<&str> = self.places.values().map(|it| it.host.as_str()).collect();
        machines.into_iter().take(most).map(String::from).collect()
    }

    /// Returns the host and process of a container, if the scheduler has reported them.
    pub(crate) fn place(&self, container: ContainerId) -> Option<&RunningContainer> {
        self.places.get(&container)
    }
}

/// Returns the name of a container in problems.
fn name_of(container: ContainerId) -> String {
    format!("container {container}")
}

/// Returns true if an exit is a failure. An unknown exit status, as of a process started by an
/// earlier host process, is no failure if the exit was expected.
fn is_failure(how: &Ending, expected: bool) -> bool {
    match how {
        Ending::Code(0) => false,
        Ending::Unknown => !expected,
        _ => true,
    }
}

fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MOST_LETTERS) {
        text.truncate(at);
        text.push('…');
    }
    text
}

#[cfg(test)]
#[path = "event_history_tests.rs"]
mod tests;
