//! What a master has seen of its job: notes, problems, restarts; and what those before it have seen, as far as it was handed over.
//! Bounded, and for people; no machine decides by it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ardea_coordination::control::{JobPhase, Note, WorkerId};
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_scheduler::{ContainerEvent, Ending, RunningContainer};

use crate::leader::clock::now_ms;
use crate::leader::handover::{Handover, Life};
use crate::leader::view::ended;
use crate::leader::{FailureView, Happening, NoteView, ProblemView};

/// How many notes are kept.
const MOST_NOTES: usize = 1_000;

/// Of how many instances problems are kept.
const MOST_PROBLEMS: usize = 1_000;

/// How much of a message is kept, in letters.
const MOST_LETTERS: usize = 2_000;

/// What is known of what a job's masters have seen.
#[derive(Debug)]
pub(crate) struct Chronicle {
    phase: JobPhase,
    since_ms: u64,
    /// What the job did last of what lasts, and since when: a recovery or a change of plans interrupts it, and ends it not.
    lasting: Option<(JobPhase, u64)>,
    notes: VecDeque<Noted>,
    problems: BTreeMap<InstanceId, Problem>,
    /// Of processes that should not have ended.
    failures: BTreeMap<ContainerId, Problem>,
    lives: BTreeMap<ContainerId, Lives>,
    places: BTreeMap<ContainerId, RunningContainer>,
    /// How often anything of this has changed.
    changes: u64,
}

/// A note.
#[derive(Debug)]
struct Noted {
    view: NoteView,
    /// Whether it is an end that this master has counted as a failure.
    is_counted: bool,
}

#[derive(Debug)]
struct Problem {
    count: u64,
    at_ms: u64,
    message: String,
}

/// The lives of a container's process.
#[derive(Debug, Default)]
struct Lives {
    /// The first that this master has heard of, and the newest.
    heard: Option<(u64, u64)>,
    /// The latest whose end was told.
    ended: Option<u64>,
    /// The newest that the job has done without, since another plan has no such container. It and those before count no more:
    /// who gets the number later begins anew.
    given_back: Option<u64>,
    restarts: u32,
}

impl Lives {
    /// Whether it is a life that counts no more.
    fn is_given_back(&self, incarnation: u64) -> bool {
        self.given_back >= Some(incarnation)
    }

    /// Forgets this life and those before it.
    fn give_back(&mut self, incarnation: u64) {
        self.given_back = self.given_back.max(Some(incarnation));
        if self.heard.is_some_and(|(_, newest)| newest <= incarnation) {
            self.heard = None;
            self.restarts = 0;
        }
    }

    /// Goes on from what was known before of the same container. What either has given back counts for the other no more as well.
    fn resume(&mut self, before: &Life) {
        let mut before = Lives {
            heard: before.newest.map(|newest| (newest, newest)),
            ended: before.ended,
            given_back: before.given_back,
            restarts: before.restarts,
        };
        if let Some(incarnation) = self.given_back {
            before.give_back(incarnation);
        }
        if let Some(incarnation) = before.given_back {
            self.give_back(incarnation);
        }
        // Those that were started while nobody led are known by the newest of them.
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

impl Chronicle {
    pub(crate) fn new() -> Self {
        Chronicle {
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
        self.since_ms = self.happens(Happening::Phase(phase));
        self.goes_on();
    }

    /// What lasts has begun, or goes on after an interruption; then it has been so since it began.
    fn goes_on(&mut self) {
        if !matches!(self.phase, JobPhase::Running | JobPhase::Paused) {
            return;
        }
        match &self.lasting {
            Some((phase, began)) if *phase == self.phase => self.since_ms = *began,
            _ => self.lasting = Some((self.phase.clone(), self.since_ms)),
        }
    }

    pub(crate) fn note(&mut self, mut note: Note) {
        match &mut note {
            Note::Joined(worker) => self.lives(*worker),
            Note::Problem(instance, message) => {
                shorten(message);
                count(&mut self.problems, instance.clone(), message.clone());
            }
            // A problem of its container; what people read of it is that the job goes back.
            Note::LifeFailed(worker, why) => {
                shorten(why);
                count(&mut self.failures, worker.container, why.clone());
                self.changes += 1;
                return;
            }
            Note::SchedulerFailed(why) | Note::WentBack(why) | Note::Stuck { why, .. } => {
                shorten(why);
            }
            _ => {}
        }
        self.happens(Happening::Noted(note));
    }

    /// What a scheduler tells; who has ended, if somebody has. `was_to_end` says of whom that is no surprise.
    pub(crate) fn container(
        &mut self,
        event: ContainerEvent,
        was_to_end: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        match event {
            ContainerEvent::Started(running) => {
                self.lives(running.worker);
                self.places.insert(running.worker.container, running);
                None
            }
            ContainerEvent::Exited {
                worker,
                how,
                mut last_words,
            } => {
                // A scheduler that has just been started tells how things are: ends that its predecessor has told as well.
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
                let exited = Happening::Exited {
                    worker,
                    how,
                    last_words,
                    expected,
                };
                self.keep(exited, is_counted);
                Some(worker)
            }
            ContainerEvent::Notice { container, text } => {
                self.happens(Happening::Notice { container, text });
                None
            }
        }
    }

    /// Something that a person has to know of this process.
    pub(crate) fn notice(&mut self, text: String) {
        let container = None;
        self.happens(Happening::Notice { container, text });
    }

    /// Counts a life of a container that was not known of.
    fn lives(&mut self, worker: WorkerId) {
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

    /// The job does without this life of a container, and those before it: however they end that is no failure, and they count no more.
    pub(crate) fn gives_back(&mut self, worker: WorkerId) {
        let lives = self.lives.entry(worker.container).or_default();
        lives.give_back(worker.incarnation);
    }

    /// As [`gives_back`](Self::gives_back), of all that is known of those containers.
    pub(crate) fn gave_back(&mut self, is_given_back: impl Fn(ContainerId) -> bool) {
        for (id, lives) in &mut self.lives {
            if let Some((_, newest)) = lives.heard
                && is_given_back(*id)
            {
                lives.give_back(newest);
                self.changes += 1;
            }
        }
    }

    fn happens(&mut self, what: Happening) -> u64 {
        self.keep(what, false)
    }

    /// Notes it; when that was.
    fn keep(&mut self, what: Happening, is_counted: bool) -> u64 {
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        self.changes += 1;
        let at_ms = now_ms();
        let view = NoteView { at_ms, what };
        self.notes.push_back(Noted { view, is_counted });
        at_ms
    }

    /// How often anything has changed that is handed over.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What the next master should know; whoever hands it over says who it is.
    pub(crate) fn hand_over(&self) -> Handover {
        let lives = self.lives.iter().map(|(container, lives)| Life {
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

    /// Takes up what masters before this one have seen; what this one has seen meanwhile stays, and is counted on top of it.
    pub(crate) fn resume(&mut self, before: Handover) {
        for life in &before.lives {
            self.forget_told(life);
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
            self.notes.push_front(Noted { view, is_counted });
        }
        if let Some((phase, began)) = before.lasting {
            match &mut self.lasting {
                Some((now, since)) if *now == phase => *since = began,
                Some(_) => {}
                None => self.lasting = Some((phase, began)),
            }
            self.goes_on();
        }
        self.changes += 1;
    }

    /// Forgets the end of a life that was told before as well.
    fn forget_told(&mut self, life: &Life) {
        let failures = &mut self.failures;
        self.notes.retain(|note| match &note.view.what {
            Happening::Exited { worker, .. }
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

    /// The last so many notes, the latest last.
    pub(crate) fn notes(&self, most: usize) -> Vec<NoteView> {
        let skip = self.notes.len().saturating_sub(most);
        let notes = self.notes.iter().skip(skip);
        notes.map(|note| note.view.clone()).collect()
    }

    /// Problems, the latest first.
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

    /// How processes of containers ended that should not have, the latest first.
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

    /// Whether the container has had a worker, or been started, as far as is known.
    pub(crate) fn has_been(&self, container: ContainerId) -> bool {
        self.lives
            .get(&container)
            .is_some_and(|lives| lives.heard.is_some())
    }

    pub(crate) fn restarts(&self, container: ContainerId) -> u32 {
        self.lives.get(&container).map_or(0, |lives| lives.restarts)
    }

    /// So many of the machines that containers were started on last, sorted.
    pub(crate) fn machines(&self, most: usize) -> Vec<String> {
        let machines: BTreeSet<&str> = self.places.values().map(|it| it.host.as_str()).collect();
        machines.into_iter().take(most).map(String::from).collect()
    }

    /// Where a container runs, as far as the scheduler has told.
    pub(crate) fn place(&self, container: ContainerId) -> Option<&RunningContainer> {
        self.places.get(&container)
    }
}

/// Whether it is something that should not have happened. How a process ended that an earlier host had started nobody can say: where it
/// was to end, that is no failure.
fn is_failure(how: &Ending, expected: bool) -> bool {
    match how {
        Ending::Code(0) => false,
        Ending::Unknown => !expected,
        _ => true,
    }
}

/// Counts what went wrong with somebody.
fn count<K: Ord + Clone>(problems: &mut BTreeMap<K, Problem>, whose: K, message: String) {
    let problem = problem_of(problems, whose);
    problem.count = problem.count.saturating_add(1);
    problem.at_ms = now_ms();
    problem.message = message;
}

/// Adds what went wrong with somebody before: so often, and last then.
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

/// What went wrong with somebody; the oldest of others is forgotten if there are too many.
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
#[path = "chronicle_tests.rs"]
mod tests;
