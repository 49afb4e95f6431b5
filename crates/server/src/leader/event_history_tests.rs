//! Tests of the event history.

use ardea_coordination::packing::InstanceId;

use super::*;

fn worker(container: u32, incarnation: u64) -> WorkerId {
    WorkerId {
        container: ContainerId(container),
        incarnation,
    }
}

fn joins(chronicle: &mut EventHistory, container: u32, incarnation: u64) {
    chronicle.note(&MasterStatus::Joined(worker(container, incarnation)));
}

fn exits(chronicle: &mut EventHistory, worker: WorkerId, how: Ending, words: &[&str]) {
    let event = ContainerEvent::Exited {
        worker,
        how,
        last_words: words.iter().map(|word| word.to_string()).collect(),
    };
    assert_eq!(chronicle.container(event, |_| false), Some(worker));
}

/// Returns the events as the next leader reads them.
fn handed_over(chronicle: &EventHistory) -> JobEvents {
    let json = serde_json::to_vec(chronicle.events()).unwrap();
    serde_json::from_slice(&json).unwrap()
}

#[test]
fn notes_and_problems_are_bounded_and_the_latest_stay() {
    let mut chronicle = EventHistory::new();
    for index in 0..2 * MOST_PROBLEMS as u32 {
        let message = "x".repeat(2 * MOST_LETTERS);
        chronicle.note(&MasterStatus::Problem(InstanceId::new("v", index), message));
    }
    let notes = chronicle.notes(usize::MAX);
    assert_eq!(notes.len(), MOST_NOTES);
    let last = format!("v#{}", 2 * MOST_PROBLEMS - 1);
    assert!(notes[MOST_NOTES - 1].text.contains(&last));
    assert!(notes[0].text.chars().count() <= MOST_LETTERS + 1);
    let problems = chronicle.problems();
    assert_eq!(problems.len(), MOST_PROBLEMS);
    assert_eq!(problems[0].instance, last);
    assert!(problems[0].message.chars().count() <= MOST_LETTERS + 1);
}

#[test]
fn a_life_that_failed_is_a_problem_of_its_container_and_told_once() {
    let mut chronicle = EventHistory::new();
    let worker = WorkerId {
        container: ContainerId(3),
        incarnation: 7,
    };
    let changes = chronicle.changes();
    for _ in 0..2 {
        chronicle.note(&MasterStatus::AttemptFailed(
            worker,
            "user code panicked".to_string(),
        ));
    }
    let failed = &chronicle.problems()[0];
    assert_eq!((failed.instance.as_str(), failed.count), ("container 3", 2));
    assert!(chronicle.notes(usize::MAX).is_empty());
    assert!(chronicle.changes() > changes, "it is handed over");
}

#[test]
fn restarts_and_repeated_problems_are_counted() {
    let mut chronicle = EventHistory::new();
    let id = ContainerId(3);
    for incarnation in [7, 9, 9] {
        joins(&mut chronicle, 3, incarnation);
        chronicle.note(&MasterStatus::Problem(
            InstanceId::new("v", 0),
            "why".to_string(),
        ));
    }
    assert_eq!(chronicle.restarts(id), 1);
    assert!(chronicle.has_been(id) && !chronicle.has_been(ContainerId(4)));
    assert_eq!(chronicle.problems()[0].count, 3);
}

#[test]
fn a_process_that_should_not_have_ended_is_counted_with_the_error_that_it_told() {
    let mut chronicle = EventHistory::new();
    exits(&mut chronicle, worker(2, 1), Ending::Code(0), &["bye"]);
    exits(&mut chronicle, worker(2, 2), Ending::Signal(9), &[]);
    let words = ["error: ARD-301: why", "  hint: what"];
    exits(&mut chronicle, worker(2, 3), Ending::Code(3), &words);
    let failures = chronicle.problems();
    assert_eq!((failures.len(), failures[0].count), (1, 2));
    let told = "its process ended with code 3: error: ARD-301: why";
    assert_eq!(failures[0].message, told);
}

#[test]
fn an_end_of_which_nobody_knows_how_is_a_problem_only_where_there_should_have_been_none() {
    let mut chronicle = EventHistory::new();
    let mut ends = |worker, expected| {
        let event = ContainerEvent::Exited {
            worker,
            how: Ending::Unknown,
            last_words: vec!["ended".to_string()],
        };
        chronicle.container(event, |_| expected);
        chronicle.problems().len()
    };
    assert_eq!(ends(worker(1, 1), true), 0);
    assert_eq!(ends(worker(1, 2), false), 1);
    let notes = chronicle.notes(2);
    let told = notes[0].text.as_str();
    assert_eq!(told, "the process of worker 1.1 has ended as expected");
}

#[test]
fn the_next_master_goes_on_counting_where_the_last_one_was() {
    let mut first = EventHistory::new();
    first.phase(JobPhase::Running);
    for (container, incarnation) in [(1, 10), (1, 11), (2, 20), (3, 30)] {
        joins(&mut first, container, incarnation);
    }
    first.note(&MasterStatus::Problem(
        InstanceId::new("v", 0),
        "once".to_string(),
    ));
    exits(&mut first, worker(1, 10), Ending::Signal(9), &[]);
    exits(&mut first, worker(3, 30), Ending::Signal(9), &[]);
    let handover = handed_over(&first);
    let mut next = EventHistory::new();
    // Events recorded before the handover has been read: some of them are in it.
    exits(&mut next, worker(3, 30), Ending::Signal(9), &[]);
    joins(&mut next, 1, 11);
    joins(&mut next, 2, 21);
    next.note(&MasterStatus::Problem(
        InstanceId::new("v", 0),
        "again".to_string(),
    ));
    next.resume(handover);
    joins(&mut next, 3, 31);
    let restarts = [1, 2, 3].map(|id| next.restarts(ContainerId(id)));
    assert_eq!(restarts, [1, 1, 1]);
    let problems = next.problems();
    let problem = &problems[0];
    assert_eq!((problem.count, problem.message.as_str()), (2, "again"));
    let failures = &problems[1..];
    let of: Vec<_> = failures.iter().map(|it| it.instance.as_str()).collect();
    assert_eq!(of, ["container 3", "container 1"]);
    assert!(failures.iter().all(|failure| failure.count == 1));
    let notes = next.notes(usize::MAX);
    assert_eq!(notes[0].text, "the job is running");
    let told = |note: &&NoteView| note.text.contains("ended by signal 9");
    assert_eq!(notes.iter().filter(told).count(), 2);
}

#[test]
fn a_job_runs_since_it_first_did_whatever_interrupts_it_and_whoever_leads() {
    let mut first = EventHistory::new();
    first.phase(JobPhase::Running);
    let began = 1_000;
    first.events.lasting = Some((JobPhase::Running, began));
    for interrupted in [JobPhase::Recovering, JobPhase::Updating] {
        first.phase(interrupted.clone());
        assert!(first.present().1 > began, "{interrupted:?} has just begun");
        first.phase(JobPhase::Running);
        assert_eq!(first.present(), (&JobPhase::Running, began));
    }
    for runs_before in [false, true] {
        let mut next = EventHistory::new();
        if runs_before {
            next.phase(JobPhase::Running);
        }
        next.resume(handed_over(&first));
        next.phase(JobPhase::Running);
        assert_eq!(next.present().1, began);
        next.phase(JobPhase::Paused);
        assert!(next.present().1 > began);
    }
}

#[test]
fn a_container_that_is_given_back_fails_not_however_it_ends_and_its_number_begins_anew() {
    let mut chronicle = EventHistory::new();
    for incarnation in [1, 2] {
        joins(&mut chronicle, 4, incarnation);
    }
    exits(&mut chronicle, worker(4, 1), Ending::Signal(9), &[]);
    assert_eq!(chronicle.restarts(ContainerId(4)), 1);
    // A plan without the container; its exit is reported when a later plan has the same id.
    chronicle.release_containers(|id| id == ContainerId(4));
    let handover = handed_over(&chronicle);
    let mut next = EventHistory::new();
    next.resume(handover);
    for chronicle in [&mut chronicle, &mut next] {
        assert!(!chronicle.has_been(ContainerId(4)));
        joins(chronicle, 4, 3);
        let refused = ["error: ARD-624 refused: the plan has no container 4"];
        exits(chronicle, worker(4, 2), Ending::Code(2), &refused);
        assert_eq!(chronicle.restarts(ContainerId(4)), 0);
        let failures = chronicle.problems();
        assert_eq!((failures.len(), failures[0].count), (1, 1));
        assert!(failures[0].message.contains("signal 9"), "{failures:?}");
        joins(chronicle, 4, 4);
        assert_eq!(chronicle.restarts(ContainerId(4)), 1);
    }
}

#[test]
fn an_end_that_was_told_before_counts_once_although_the_container_was_given_back_since() {
    let end = |chronicle: &mut EventHistory| {
        exits(chronicle, worker(4, 1), Ending::Signal(9), &[]);
    };
    let mut first = EventHistory::new();
    joins(&mut first, 4, 1);
    end(&mut first);
    // Reported again before the handover has been read: the update that removed the container has
    // ended by then.
    let mut next = EventHistory::new();
    end(&mut next);
    next.release_incarnation(worker(4, 2));
    next.resume(handed_over(&first));
    assert_eq!(next.problems()[0].count, 1);
}

#[test]
fn lives_that_a_master_has_given_back_count_no_more_when_it_hears_of_them_from_the_one_before() {
    let mut first = EventHistory::new();
    for incarnation in [1, 2] {
        joins(&mut first, 4, incarnation);
    }
    let mut next = EventHistory::new();
    next.release_incarnation(worker(4, 3));
    // The id is in use again: a new container, counted from zero.
    joins(&mut next, 4, 4);
    next.resume(handed_over(&first));
    assert_eq!(next.restarts(ContainerId(4)), 0);
    joins(&mut next, 4, 5);
    assert_eq!(next.restarts(ContainerId(4)), 1);
}

#[test]
fn a_process_of_a_container_that_is_given_back_before_it_was_heard_counts_neither() {
    let mut chronicle = EventHistory::new();
    chronicle.release_incarnation(worker(4, 1));
    joins(&mut chronicle, 4, 1);
    exits(&mut chronicle, worker(4, 1), Ending::Code(2), &["refused"]);
    let mut first = EventHistory::new();
    exits(&mut first, worker(4, 1), Ending::Code(2), &["refused"]);
    // The exit is reported again, and an exit that was not counted is not subtracted.
    chronicle.resume(handed_over(&first));
    assert_eq!(chronicle.problems()[0].count, 1);
    joins(&mut chronicle, 4, 2);
    assert_eq!(chronicle.restarts(ContainerId(4)), 0);
}

#[test]
fn a_process_that_ended_by_an_error_of_an_instance_is_no_second_problem() {
    let mut chronicle = EventHistory::new();
    chronicle.note(&MasterStatus::Problem(
        InstanceId::new("lines", 0),
        "ARD-301: cannot read x; check the path".to_string(),
    ));
    let words = ["error: ARD-301: cannot read x"];
    exits(&mut chronicle, worker(1, 1), Ending::Code(3), &words);
    exits(&mut chronicle, worker(2, 1), Ending::Signal(9), &[]);
    let told = chronicle.problems();
    let whose: Vec<_> = told.iter().map(|it| it.instance.as_str()).collect();
    assert_eq!(whose, ["container 2", "lines#0"]);
}
