//! What a master has seen of its job: notes, problems, restarts. Bounded, and for people; no machine decides by it.

use std::collections::{BTreeMap, VecDeque};

use ardea_control::{JobPhase, Note, WorkerId};
use ardea_packing::{ContainerId, InstanceId};
use ardea_scheduler::{ContainerEvent, Ending, RunningContainer};

use crate::clock::now_ms;
use crate::view::ended;
use crate::{FailureView, Happening, NoteView, ProblemView};

/// How many notes are kept.
const MOST_NOTES: usize = 1_000;

/// Of how many instances problems are kept.
const MOST_PROBLEMS: usize = 1_000;

/// How much of a message is kept, in letters.
const MOST_LETTERS: usize = 2_000;

/// What a master has seen of its job.
#[derive(Debug)]
pub(crate) struct Chronicle {
    phase: JobPhase,
    since_ms: u64,
    notes: VecDeque<NoteView>,
    problems: BTreeMap<InstanceId, Problem>,
    /// Of processes that should not have ended.
    failures: BTreeMap<ContainerId, Problem>,
    restarts: BTreeMap<ContainerId, u32>,
    /// The latest life of each container.
    newest: BTreeMap<ContainerId, u64>,
    places: BTreeMap<ContainerId, RunningContainer>,
}

#[derive(Debug)]
struct Problem {
    count: u64,
    at_ms: u64,
    message: String,
}

impl Chronicle {
    pub(crate) fn new() -> Self {
        Chronicle {
            phase: JobPhase::Reading,
            since_ms: now_ms(),
            notes: VecDeque::new(),
            problems: BTreeMap::new(),
            failures: BTreeMap::new(),
            restarts: BTreeMap::new(),
            newest: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn phase(&mut self, phase: JobPhase) {
        self.phase = phase.clone();
        self.since_ms = self.happens(Happening::Phase(phase));
    }

    pub(crate) fn note(&mut self, mut note: Note) {
        match &mut note {
            Note::Joined(worker) => self.lives(*worker),
            Note::Problem(instance, message) => {
                shorten(message);
                count(&mut self.problems, instance.clone(), message.clone());
            }
            Note::SchedulerFailed(why) => shorten(why),
            _ => {}
        }
        self.happens(Happening::Noted(note));
    }

    /// What a scheduler tells; who has ended, if somebody has.
    pub(crate) fn container(&mut self, event: ContainerEvent) -> Option<WorkerId> {
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
                for line in &mut last_words {
                    shorten(line);
                }
                if how != Ending::Code(0) {
                    let message = format!("its process {}", ended(&how, &last_words));
                    count(&mut self.failures, worker.container, message);
                }
                self.happens(Happening::Exited {
                    worker,
                    how,
                    last_words,
                });
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
        let newest = self
            .newest
            .entry(worker.container)
            .or_insert(worker.incarnation);
        if worker.incarnation > *newest {
            *newest = worker.incarnation;
            *self.restarts.entry(worker.container).or_default() += 1;
        }
    }

    fn happens(&mut self, what: Happening) -> u64 {
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        let at_ms = now_ms();
        self.notes.push_back(NoteView { at_ms, what });
        at_ms
    }

    pub(crate) fn present(&self) -> (&JobPhase, u64) {
        (&self.phase, self.since_ms)
    }

    /// The last so many notes, the latest last.
    pub(crate) fn notes(&self, most: usize) -> Vec<NoteView> {
        let skip = self.notes.len().saturating_sub(most);
        self.notes.iter().skip(skip).cloned().collect()
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
        self.newest.contains_key(&container)
    }

    pub(crate) fn restarts(&self, container: ContainerId) -> u32 {
        self.restarts.get(&container).copied().unwrap_or(0)
    }

    /// Where a container runs, as far as the scheduler has told.
    pub(crate) fn place(&self, container: ContainerId) -> Option<&RunningContainer> {
        self.places.get(&container)
    }
}

/// Counts what went wrong with somebody; the oldest is forgotten if there are too many.
fn count<K: Ord + Clone>(problems: &mut BTreeMap<K, Problem>, whose: K, message: String) {
    if problems.len() >= MOST_PROBLEMS && !problems.contains_key(&whose) {
        let oldest = problems.iter().min_by_key(|(_, problem)| problem.at_ms);
        if let Some(oldest) = oldest.map(|(whose, _)| whose.clone()) {
            problems.remove(&oldest);
        }
    }
    let problem = problems.entry(whose).or_insert(Problem {
        count: 0,
        at_ms: 0,
        message: String::new(),
    });
    problem.count += 1;
    problem.at_ms = now_ms();
    problem.message = message;
}

fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(MOST_LETTERS) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_problems_are_bounded_and_the_latest_stay() {
        let mut chronicle = Chronicle::new();
        for index in 0..2 * MOST_PROBLEMS as u32 {
            let message = "x".repeat(2 * MOST_LETTERS);
            chronicle.note(Note::Problem(InstanceId::new("v", index), message));
        }
        let notes = chronicle.notes(usize::MAX);
        assert_eq!(notes.len(), MOST_NOTES);
        let last = InstanceId::new("v", 2 * MOST_PROBLEMS as u32 - 1);
        assert!(matches!(
            &notes[MOST_NOTES - 1].what,
            Happening::Noted(Note::Problem(instance, _)) if *instance == last
        ));
        let problems = chronicle.problems();
        assert_eq!(problems.len(), MOST_PROBLEMS);
        assert!(problems.iter().any(|problem| problem.instance == last));
        assert!(problems[0].message.chars().count() <= MOST_LETTERS + 1);
    }

    #[test]
    fn restarts_and_repeated_problems_are_counted() {
        let mut chronicle = Chronicle::new();
        let id = ContainerId(3);
        for incarnation in [7, 9, 9] {
            chronicle.note(Note::Joined(WorkerId {
                container: id,
                incarnation,
            }));
            chronicle.note(Note::Problem(InstanceId::new("v", 0), "why".to_string()));
        }
        assert_eq!(chronicle.restarts(id), 1);
        assert!(chronicle.has_been(id) && !chronicle.has_been(ContainerId(4)));
        assert_eq!(chronicle.problems()[0].count, 3);
    }

    #[test]
    fn a_process_that_should_not_have_ended_is_counted_with_the_error_that_it_told() {
        let mut chronicle = Chronicle::new();
        let worker = WorkerId {
            container: ContainerId(2),
            incarnation: 1,
        };
        let mut exits = |how, words: &[&str]| {
            chronicle.container(ContainerEvent::Exited {
                worker,
                how,
                last_words: words.iter().map(|word| word.to_string()).collect(),
            });
        };
        exits(Ending::Code(0), &["bye"]);
        exits(Ending::Signal(9), &[]);
        exits(Ending::Code(3), &["error: ARD-301: why", "  hint: what"]);
        let failures = chronicle.failures();
        assert_eq!((failures.len(), failures[0].count), (1, 2));
        let told = "its process ended with code 3: error: ARD-301: why";
        assert_eq!(failures[0].message, told);
    }
}
