//! Tests of a worker agent: the commands that it obeys, and its behaviour without a leader.

use super::*;
use crate::control::{
    AttemptFailure, CoordinatorMessage, EpochKind, JobRef, RestoredWorker, SnapshotAck,
    ToParticipant,
};
use crate::packing::{
    JobDemand, PackingConfig, PackingPolicy, Resources, RoundRobin, VertexDemand,
};
use ardea_core::Epoch;

const NOW: Duration = Duration::ZERO;

fn agent() -> WorkerAgent {
    let job = JobRef {
        cluster: "prod".into(),
        name: "word-count".into(),
        submission: 7,
    };
    let worker = WorkerId {
        container: ContainerId(1),
        incarnation: 1,
    };
    WorkerAgent::new(
        worker,
        Credentials::of(&job),
        "here",
        AgentConfig::default(),
    )
}

/// Creates an agent that is registered with the master of this epoch.
fn joined(epoch: u64) -> WorkerAgent {
    let mut agent = agent();
    let address = "there".to_string();
    let epoch = MasterEpoch(epoch);
    agent.on(NOW, AgentEvent::Lookup(Lookup::Master { address, epoch }));
    agent.on(NOW, AgentEvent::From(ToWorker::Welcome(epoch)));
    agent
}

fn plan(epoch: u64) -> AgentEvent {
    let demand = JobDemand::new("word-count");
    let demand = demand.vertex(VertexDemand::new("v", 2, Resources::ZERO));
    let plan = RoundRobin.pack(&demand, &PackingConfig::default()).unwrap();
    AgentEvent::From(ToWorker::Plan {
        epoch: MasterEpoch(epoch),
        version: PlanVersion(1),
        plan: Arc::new(plan),
    })
}

fn assignment(epoch: u64, number: u64, indices: &[u32]) -> AgentEvent {
    let instances = indices.iter().map(|index| InstanceId::new("v", *index));
    let order = order(epoch, number);
    AgentEvent::From(ToWorker::Assign(Arc::new(Assignment {
        order,
        instances: instances.collect(),
        run: Run::Running,
        routes: PlanVersion(1),
        next: PlanVersion(1),
        last: PlanVersion(1),
        attempt: None,
        restarted: Arc::from([]),
        peers: Order::default(),
    })))
}

fn order(epoch: u64, number: u64) -> Order {
    Order {
        epoch: MasterEpoch(epoch),
        number,
    }
}

/// Returns the indices of the instances that each change in `actions` starts and stops.
fn changes(actions: &[AgentAction]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let indices = |ids: &[InstanceId]| ids.iter().map(|id| id.index).collect();
    let changes = actions.iter().filter_map(|action| match action {
        AgentAction::Apply(change) => Some((indices(&change.start), indices(&change.stop))),
        _ => None,
    });
    changes.collect()
}

#[test]
fn only_the_newest_order_is_carried_out_and_only_what_differs() {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    let first = agent.on(NOW, assignment(1, 2, &[0, 1]));
    assert_eq!(changes(&first), [(vec![0, 1], vec![])]);
    for late in [assignment(1, 1, &[]), assignment(1, 2, &[0, 1])] {
        assert_eq!(changes(&agent.on(NOW, late)), []);
    }
    let next = agent.on(NOW, assignment(1, 3, &[1]));
    assert_eq!(changes(&next), [(vec![], vec![0])]);
}

#[test]
fn an_earlier_master_is_not_obeyed_and_told_so() {
    let mut agent = joined(2);
    agent.on(NOW, plan(2));
    let told = [
        assignment(1, 9, &[0]),
        AgentEvent::From(ToWorker::Leave(MasterEpoch(1))),
    ];
    for late in told {
        let actions = agent.on(NOW, late);
        let not_master = ToMaster::NotMaster {
            worker: agent.id(),
            newest: MasterEpoch(2),
        };
        assert!(actions.contains(&AgentAction::Send("there".into(), not_master)));
        assert_eq!(changes(&actions), []);
        assert!(
            !actions
                .iter()
                .any(|action| matches!(action, AgentAction::Exit(_)))
        );
    }
}

#[test]
fn an_order_waits_for_its_plan_and_dies_with_its_master() {
    let mut agent = joined(1);
    assert_eq!(changes(&agent.on(NOW, assignment(1, 1, &[0]))), []);
    assert_eq!(changes(&agent.on(NOW, plan(1))), [(vec![0], vec![])]);

    let mut agent = joined(1);
    assert_eq!(changes(&agent.on(NOW, assignment(1, 1, &[0]))), []);
    agent.on(NOW, AgentEvent::From(ToWorker::Welcome(MasterEpoch(2))));
    assert_eq!(changes(&agent.on(NOW, plan(2))), []);
}

#[test]
fn without_a_master_it_goes_on_and_looks_for_one() {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    agent.on(NOW, assignment(1, 1, &[0]));
    let later = Duration::from_secs(10);
    let actions = agent.on(later, AgentEvent::Tick);
    assert!(actions.contains(&AgentAction::LookUp));
    agent.on(later, AgentEvent::Lookup(Lookup::NoLeader));
    assert_eq!(agent.instances(), [InstanceId::new("v", 0)]);
    let gone = agent.on(later, AgentEvent::Lookup(Lookup::JobGone));
    assert_eq!(gone, [AgentAction::Exit(LeaveReason::JobOver)]);
}

#[test]
fn what_is_being_stopped_counts_as_held_until_it_has_stopped() {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    agent.on(NOW, assignment(1, 1, &[0, 1]));
    agent.on(NOW, AgentEvent::Applied(order(1, 1)));
    agent.on(NOW, assignment(1, 2, &[0]));
    let held = |agent: &WorkerAgent| agent.registration().held.unwrap().instances.len();
    assert_eq!(held(&agent), 2);
    agent.on(NOW, AgentEvent::Applied(order(1, 2)));
    assert_eq!(held(&agent), 1);
}

#[test]
fn the_end_of_all_instances_is_told_until_a_later_order_is_carried_out() {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    agent.on(NOW, assignment(1, 1, &[0]));
    agent.on(NOW, AgentEvent::Applied(order(1, 1)));
    let ended = |agent: &mut WorkerAgent, event| {
        let told = agent.on(NOW, event).into_iter().rev();
        let mut statuses = told.filter_map(|action| match action {
            AgentAction::Send(_, ToMaster::Status(status)) => Some(status.ended),
            _ => None,
        });
        statuses.next()
    };
    assert_eq!(
        ended(&mut agent, AgentEvent::Ended(order(1, 1))),
        Some(true)
    );
    agent.on(NOW, assignment(1, 2, &[0, 1]));
    assert_eq!(
        ended(&mut agent, AgentEvent::Ended(order(1, 1))),
        Some(true)
    );
    let applied = AgentEvent::Applied(order(1, 2));
    assert_eq!(ended(&mut agent, applied), Some(false));
}

/// Creates an assignment in the attempt `generation`, which starts from the epoch `from`.
fn assignment_of_life(number: u64, indices: &[u32], generation: u64, from: u64) -> AgentEvent {
    let AgentEvent::From(ToWorker::Assign(assignment)) = assignment(1, number, indices) else {
        unreachable!("it is one");
    };
    let life = ExecutionAttempt {
        generation: Generation(generation),
        from: Some(Epoch(from)),
        taken_in: Generation(generation - 1),
    };
    let life = Some(life);
    AgentEvent::From(ToWorker::Assign(Arc::new(Assignment {
        attempt: life,
        ..(*assignment).clone()
    })))
}

/// Creates an agent that runs two instances in the second attempt of its job.
fn living() -> WorkerAgent {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    let first = agent.on(NOW, assignment_of_life(1, &[0, 1], 2, 7));
    assert_eq!(changes(&first), [(vec![0, 1], vec![])]);
    agent
}

fn end(generation: u64, epoch: u64) -> AgentEvent {
    AgentEvent::From(ToWorker::Epochs(ToParticipant {
        master: MasterEpoch(1),
        generation: Generation(generation),
        committed: Some(Epoch(7)),
        word: CoordinatorMessage::End(Epoch(epoch), EpochKind::Usual),
    }))
}

fn is_end(actions: &[AgentAction], generation: u64) -> bool {
    let generation = Generation(generation);
    actions.iter().any(|action| {
        matches!(action, AgentAction::Epochs(of, ParticipantAction::End(..)) if *of == generation)
    })
}

/// Returns the generations of the attempts that the agent reports as ended.
fn lives_over(actions: &[AgentAction]) -> Vec<u64> {
    let told = actions.iter().filter_map(|action| match action {
        AgentAction::Send(_, ToMaster::AttemptOver { generation, .. }) => Some(generation.0),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_later_life_stops_all_of_the_earlier_one_and_begins_from_its_epoch() {
    let mut agent = living();
    // The same attempt continues: nothing is stopped.
    let same = agent.on(NOW, assignment_of_life(2, &[0, 1], 2, 7));
    assert_eq!(changes(&same), [(vec![], vec![])]);
    let next = agent.on(NOW, assignment_of_life(3, &[1], 3, 9));
    let [.., AgentAction::Apply(change)] = &next[..] else {
        panic!("{next:?}");
    };
    assert!(change.begins && change.attempt.unwrap().from == Some(Epoch(9)));
    assert_eq!(changes(&next), [(vec![1], vec![0, 1])]);
    let held = agent.registration().held.unwrap();
    assert_eq!(held.attempt, Some(Generation(3)));
}

#[test]
fn words_of_epochs_count_in_their_life_only() {
    let mut agent = living();
    assert!(is_end(&agent.on(NOW, end(2, 8)), 2));
    assert!(!is_end(&agent.on(NOW, end(3, 9)), 3));
    agent.on(NOW, assignment_of_life(2, &[0, 1], 3, 7));
    assert!(!is_end(&agent.on(NOW, end(2, 9)), 2));
    assert!(is_end(&agent.on(NOW, end(3, 9)), 3));
    // Events of the earlier attempt are ignored.
    let receipt = SnapshotAck {
        since: None,
        place: vec![1],
        bytes: 1,
    };
    let saved = |epoch| ParticipantEvent::Saved(Epoch(epoch), receipt.clone());
    let tells = |actions: Vec<AgentAction>| {
        let epochs =
            |action: &AgentAction| matches!(action, AgentAction::Send(_, ToMaster::Epochs { .. }));
        actions.iter().any(epochs)
    };
    let late = AgentEvent::Epochs(Generation(2), saved(8));
    assert!(!tells(agent.on(NOW, late)));
    let timely = AgentEvent::Epochs(Generation(3), saved(9));
    assert!(tells(agent.on(NOW, timely)));
}

#[test]
fn that_a_life_can_not_go_on_is_told_until_there_is_a_later_one() {
    let mut agent = living();
    let over = |generation| {
        let why = AttemptEnd::Failed(AttemptFailure::transient("it panicked"));
        AgentEvent::AttemptOver(Generation(generation), why)
    };
    assert_eq!(lives_over(&agent.on(NOW, over(1))), [] as [u64; 0]);
    assert!(lives_over(&agent.on(NOW, over(2))).contains(&2));
    // A snapshot taken now is not consistent with the rest of the job.
    let receipt = SnapshotAck {
        since: None,
        place: vec![1],
        bytes: 1,
    };
    let saved = ParticipantEvent::Saved(Epoch(8), receipt);
    let told = agent.on(NOW, AgentEvent::Epochs(Generation(2), saved));
    let is_word =
        |action: &AgentAction| matches!(action, AgentAction::Send(_, ToMaster::Epochs { .. }));
    assert!(!told.iter().any(is_word));
    let later = NOW + Duration::from_secs(1);
    assert_eq!(lives_over(&agent.on(later, AgentEvent::Tick)), [2]);
    agent.on(later, assignment_of_life(2, &[0, 1], 3, 7));
    let later = later + Duration::from_secs(1);
    assert_eq!(
        lives_over(&agent.on(later, AgentEvent::Tick)),
        [] as [u64; 0]
    );
}

#[test]
fn a_worker_that_is_being_restored_alone_is_part_of_the_attempt_when_all_know_of_it() {
    let mut agent = joined(1);
    agent.on(NOW, plan(1));
    let worker = agent.id();
    let told = |number: u64, is_complete: bool| {
        let AgentEvent::From(ToWorker::Assign(assignment)) =
            assignment_of_life(number, &[0, 1], 2, 7)
        else {
            unreachable!("it is one");
        };
        let restarted = RestoredWorker {
            worker,
            from: Some(Epoch(7)),
            is_complete,
        };
        AgentEvent::From(ToWorker::Assign(Arc::new(Assignment {
            restarted: Arc::from([restarted]),
            ..(*assignment).clone()
        })))
    };
    let held = |agent: &mut WorkerAgent| agent.registration().held.unwrap().attempt;
    agent.on(NOW, told(1, false));
    assert_eq!(held(&mut agent), None);
    let changed = agent.on(NOW, told(2, true));
    assert_eq!(changes(&changed), [(vec![], vec![])]);
    assert_eq!(held(&mut agent), Some(Generation(2)));
}
