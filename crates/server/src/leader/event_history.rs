//! The bounded event history of a job: notes, problems and restarts, including those handed over by
//! earlier leaders. For display only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ardea_coordination::control::{JobPhase, MasterStatus, WorkerId};
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_scheduler::{ContainerEvent, Ending, RunningContainer};

use crate::leader::clock::now_ms;
use crate::leader::history_handover::{Handover, WorkerHandover};
use crate::leader::view::ended;
use crate::leader::{FailureView, JobTimelineEvent, NoteView, ProblemView};

/// Maximum number of retained notes.
const MOST_NOTES: usize = 1_000;

/// Maximum number of instances with retained problems, and of containers with retained exits.
const MOST_PROBLEMS: usize = 1_000;

/// Maximum length of a retained message, in characters.
const MOST_LETTERS: usize = 2_000;

/// The events of a job, as recorded by its current and earlier leaders.
#[derive(Debug)]
pub(crate) struct EventHistory {
    phase: JobPhase,
    since_ms: u64,
    /// The last steady phase of the job and its start time. A recovery or a change of plan only
    /// interrupts a steady phase.
    lasting: Option<(JobPhase, u64)>,
    notes: VecDeque<RetainedNote>,
    problems: BTreeMap<InstanceId, Problem>,
    /// Unexpected exits of container processes.
    failures: BTreeMap<ContainerId, Problem>,
    lives: BTreeMap<ContainerId, WorkerIncarnations>,
    places: BTreeMap<ContainerId, RunningContainer>,
    /// The number of changes of the fields above.
    changes: u64,
}

/// A retained note: an event of the job with its time.
#[derive(Debug)]
struct RetainedNote {
    view: NoteView,
    /// True if the note is an exit of a process that this leader has counted as a failure.
    is_counted: bool,
}

#[derive(Debug)]
struct Problem {
    count: u64,
    at_ms: u64,
    message: String,
}

/// The incarnations of a container's process.
#[derive(Debug, Default)]
struct WorkerIncarnations {
    /// The first and the newest incarnation known to this leader.
    heard: Option<(u64, u64)>,
    /// The newest incarnation with a reported exit.
    ended: Option<u64>,
    /// The newest incarnation that was released because a later plan lacks the container. Released
    /// incarnations no longer count, so a later container with this id starts from zero.
    given_back: Option<u64>,
    restarts: u32,
}

impl WorkerIncarnations {
    /// Returns true if the incarnation has been released.
    fn is_given_back(&self, incarnation: u64) -> bool {
        self.given_back >= Some(incarnation)
    }

    /// Releases this incarnation and all earlier ones of the container.
    fn release(&mut self, incarnation: u64) {
        self.given_back = self.given_back.max(Some(incarnation));
        if self.heard.is_some_and(|(_, newest)| newest <= incarnation) {
            self.heard = None;
            self.restarts = 0;
        }
    }

    /// Merges the state of the same container that earlier leaders have handed over. An incarnation
    /// is released if it is released in either state.
    fn resume(&mut self, before: &WorkerHandover) {
        let mut before = WorkerIncarnations {
            heard: before.newest.map(|newest| (newest, newest)),
            ended: before.ended,
            given_back: before.given_back,
            restarts: before.restarts,
        };
        if let Some(incarnation) = self.given_back {
            before.release(incarnation);
        }
        if let Some(incarnation) = before.given_back {
            self.release(incarnation);
        }
        // Of the incarnations started while no leader was active, only the newest is known.
        let unled = matches!((self.heard, before.heard), (Some((first, _)), Some((newest, _))) if first > newest);
        let restarts = before.restarts.saturating_add(unled.into());
        self.restarts = self.restarts.saturating_add(restarts);
        self.heard = match (self.heard, before.heard) {
            (Some((_, newest)), Some((first, before))) => Some((first, newest.max(before))),
            (heard, before) => heard.or(before),
        };
        self.ended = self.ended.max(before.ended);
    }
}

impl EventHistory {
    pub(crate) fn new() -> Self {
        EventHistory {
            phase: JobPhase::Reading,
            since_ms: now_ms(),
            lasting: None,
            notes: VecDeque::new(),
            problems: BTreeMap::new(),
            failures: BTreeMap::new(),
            lives: BTreeMap::new(),
            places: BTreeMap::new(),
            changes: 0,
        }
    }

    pub(crate) fn phase(&mut self, phase: JobPhase) {
        self.phase = phase.clone();
        self.since_ms = self.append_event(JobTimelineEvent::Phase(phase));
        self.resume_steady_phase();
    }

    /// Records a steady phase, or resumes one after an interruption with its original start time.
    fn resume_steady_phase(&mut self) {
        if !matches!(self.phase, JobPhase::Running | JobPhase::Paused) {
            return;
        }
        match &self.lasting {
            Some((phase, began)) if *phase == self.phase => self.since_ms = *began,
            _ => self.lasting = Some((self.phase.clone(), self.since_ms)),
        }
    }

    pub(crate) fn note(&mut self, mut note: MasterStatus) {
        match &mut note {
            MasterStatus::Joined(worker) => self.record_incarnation(*worker),
            MasterStatus::Problem(instance, message) => {
                shorten(message);
                count(&mut self.problems, instance.clone(), message.clone());
            }
            // The failure counts as a problem of the container; the rollback is a separate note.
            MasterStatus::AttemptFailed(worker, why) => {
                shorten(why);
                count(&mut self.failures, worker.container, why.clone());
                self.changes += 1;
                return;
            }
            MasterStatus::SchedulerFailed(why)
            | MasterStatus::PlanCancelled(why)
            | MasterStatus::Stuck { why, .. } => {
                shorten(why);
            }
            _ => {}
        }
        self.append_event(JobTimelineEvent::Noted(note));
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
                self.record_incarnation(running.worker);
                self.places.insert(running.worker.container, running);
                None
            }
            ContainerEvent::Exited {
                worker,
                how,
                mut last_words,
            } => {
                // A restarted scheduler reports the current state, including exits that were
                // already reported.
                let lives = self.lives.entry(worker.container).or_default();
                if lives.ended >= Some(worker.incarnation) {
                    return Some(worker);
                }
                lives.ended = Some(worker.incarnation);
                for line in &mut last_words {
                    shorten(line);
                }
                let given_back = lives.is_given_back(worker.incarnation);
                let expected = was_to_end(worker);
                let is_counted = !given_back && is_failure(&how, expected);
                if is_counted {
                    let message = format!("its process {}", ended(&how, &last_words));
                    count(&mut self.failures, worker.container, message);
                }
                let exited = JobTimelineEvent::Exited {
                    worker,
                    how,
                    last_words,
                    expected,
                };
                self.keep(exited, is_counted);
                Some(worker)
            }
            ContainerEvent::Notice { container, text } => {
                self.append_event(JobTimelineEvent::Notice { container, text });
                None
            }
        }
    }

    /// Adds a note with a notice of this leader's process.
    pub(crate) fn notice(&mut self, text: String) {
        let container = None;
        self.append_event(JobTimelineEvent::Notice { container, text });
    }

    /// Records an incarnation of a container, and counts a restart if it is new.
    fn record_incarnation(&mut self, worker: WorkerId) {
        let lives = self.lives.entry(worker.container).or_default();
        if lives.is_given_back(worker.incarnation) {
            return;
        }
        match &mut lives.heard {
            None => lives.heard = Some((worker.incarnation, worker.incarnation)),
            Some((_, newest)) if worker.incarnation > *newest => {
                *newest = worker.incarnation;
                lives.restarts = lives.restarts.saturating_add(1);
            }
            Some(_) => {}
        }
    }

    /// Releases this incarnation of a container and earlier ones. Their exits are no failures, and
    /// they do not count as restarts.
    pub(crate) fn release_incarnation(&mut self, worker: WorkerId) {
        let lives = self.lives.entry(worker.container).or_default();
        lives.release(worker.incarnation);
    }

    /// Releases all known incarnations of the matching containers; see
    /// [`release_incarnation`](Self::release_incarnation).
    pub(crate) fn release_containers(&mut self, is_given_back: impl Fn(ContainerId) -> bool) {
        for (id, lives) in &mut self.lives {
            if let Some((_, newest)) = lives.heard
                && is_given_back(*id)
            {
                lives.release(newest);
                self.changes += 1;
            }
        }
    }

    fn append_event(&mut self, what: JobTimelineEvent) -> u64 {
        self.keep(what, false)
    }

    /// Appends a note and returns its time in milliseconds since 1970.
    fn keep(&mut self, what: JobTimelineEvent, is_counted: bool) -> u64 {
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        self.changes += 1;
        let at_ms = now_ms();
        let view = NoteView { at_ms, what };
        self.notes.push_back(RetainedNote { view, is_counted });
        at_ms
    }

    /// Returns the change counter.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the history for the next leader. The caller fills in the identity of this leader.
    pub(crate) fn hand_over(&self) -> Handover {
        let lives = self.lives.iter().map(|(container, lives)| WorkerHandover {
            container: *container,
            newest: lives.heard.map(|(_, newest)| newest),
            ended: lives.ended,
            given_back: lives.given_back,
            restarts: lives.restarts,
        });
        Handover {
            lasting: self.lasting.clone(),
            lives: lives.collect(),
            problems: self.problems(),
            failures: self.failures(),
            notes: self.notes(MOST_NOTES),
            ..Handover::default()
        }
    }

    /// Merges the history of earlier leaders with the events recorded here.
    pub(crate) fn resume(&mut self, before: Handover) {
        for life in &before.lives {
            self.remove_reported(life);
            let lives = self.lives.entry(life.container).or_default();
            lives.resume(life);
        }
        for problem in before.problems {
            add(
                &mut self.problems,
                problem.instance,
                problem.count,
                problem.at_ms,
                problem.message,
            );
        }
        for failure in before.failures {
            add(
                &mut self.failures,
                failure.container,
                failure.count,
                failure.at_ms,
                failure.message,
            );
        }
        for view in before.notes.into_iter().rev() {
            if self.notes.len() == MOST_NOTES {
                break;
            }
            let is_counted = false;
            self.notes.push_front(RetainedNote { view, is_counted });
        }
        if let Some((phase, began)) = before.lasting {
            match &mut self.lasting {
                Some((now, since)) if *now == phase => *since = began,
                Some(_) => {}
                None => self.lasting = Some((phase, began)),
            }
            self.resume_steady_phase();
        }
        self.changes += 1;
    }

    /// Removes the exits of a container recorded by this leader that an earlier leader had recorded
    /// too.
    fn remove_reported(&mut self, life: &WorkerHandover) {
        let failures = &mut self.failures;
        self.notes.retain(|note| match &note.view.what {
            JobTimelineEvent::Exited { worker, .. }
                if worker.container == life.container && Some(worker.incarnation) <= life.ended =>
            {
                if note.is_counted
                    && let Some(failure) = failures.get_mut(&life.container)
                {
                    failure.count -= 1;
                    if failure.count == 0 {
                        failures.remove(&life.container);
                    }
                }
                false
            }
            _ => true,
        });
    }

    pub(crate) fn present(&self) -> (&JobPhase, u64) {
        (&self.phase, self.since_ms)
    }

    /// Returns the latest notes, at most `most`, oldest first.
    pub(crate) fn notes(&self, most: usize) -> Vec<NoteView> {
        let skip = self.notes.len().saturating_sub(most);
        let notes = self.notes.iter().skip(skip);
        notes.map(|note| note.view.clone()).collect()
    }

    /// Returns the problems of the job's instances, latest first.
    pub(crate) fn problems(&self) -> Vec<ProblemView> {
        let views = self.problems.iter().map(|(instance, problem)| ProblemView {
            instance: instance.clone(),
            count: problem.count,
            at_ms: problem.at_ms,
            message: problem.message.clone(),
        });
        let mut problems: Vec<_> = views.collect();
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.at_ms));
        problems
    }

    /// Returns the containers' unexpected exits, latest first.
    pub(crate) fn failures(&self) -> Vec<FailureView> {
        let views = self
            .failures
            .iter()
            .map(|(container, failure)| FailureView {
                container: *container,
                count: failure.count,
                at_ms: failure.at_ms,
                message: failure.message.clone(),
            });
        let mut failures: Vec<_> = views.collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.at_ms));
        failures
    }

    /// Returns true if the container is known to have been started.
    pub(crate) fn has_been(&self, container: ContainerId) -> bool {
        self.lives
            .get(&container)
            .is_some_and(|lives| lives.heard.is_some())
    }

    pub(crate) fn restarts(&self, container: ContainerId) -> u32 {
        self.lives.get(&container).map_or(0, |lives| lives.restarts)
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

/// Returns true if an exit is a failure. An unknown exit status, as of a process started by an
/// earlier host process, is no failure if the exit was expected.
fn is_failure(how: &Ending, expected: bool) -> bool {
    match how {
        Ending::Code(0) => false,
        Ending::Unknown => !expected,
        _ => true,
    }
}

/// Counts one problem under the key `whose`, with its message.
fn count<K: Ord + Clone>(problems: &mut BTreeMap<K, Problem>, whose: K, message: String) {
    let problem = problem_of(problems, whose);
    problem.count = problem.count.saturating_add(1);
    problem.at_ms = now_ms();
    problem.message = message;
}

/// Adds `count` problems counted earlier under the key `whose`. The message of a newer problem
/// stays.
fn add<K: Ord + Clone>(
    problems: &mut BTreeMap<K, Problem>,
    whose: K,
    count: u64,
    at_ms: u64,
    message: String,
) {
    let problem = problem_of(problems, whose);
    if problem.count == 0 {
        problem.at_ms = at_ms;
        problem.message = message;
    }
    problem.count = problem.count.saturating_add(count);
}

/// Returns the entry of the key; evicts the oldest entry of another key if the map is full.
fn problem_of<K: Ord + Clone>(problems: &mut BTreeMap<K, Problem>, whose: K) -> &mut Problem {
    if problems.len() >= MOST_PROBLEMS && !problems.contains_key(&whose) {
        let oldest = problems.iter().min_by_key(|(_, problem)| problem.at_ms);
        if let Some(oldest) = oldest.map(|(whose, _)| whose.clone()) {
            problems.remove(&oldest);
        }
    }
    problems.entry(whose).or_insert(Problem {
        count: 0,
        at_ms: 0,
        message: String::new(),
    })
}

fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(MOST_LETTERS) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
#[path = "event_history_tests.rs"]
mod tests;
