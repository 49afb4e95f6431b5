//! An agent by hand: what it obeys, and what it does without a master.

use super::*;
use crate::JobRef;
use ardea_packing::{
    JobDemand, PackingConfig, ResourceManager, Resources, RoundRobin, VertexDemand,
};

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

/// An agent that master `epoch` has welcomed.
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
        peers: Order::default(),
    })))
}

fn order(epoch: u64, number: u64) -> Order {
    Order {
        epoch: MasterEpoch(epoch),
        number,
    }
}

/// What is started and stopped by the actions.
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
    agent.on(later, AgentEvent::Lookup(Lookup::Nobody));
    assert_eq!(agent.instances(), [InstanceId::new("v", 0)]);
    let gone = agent.on(later, AgentEvent::Lookup(Lookup::JobGone));
    assert_eq!(gone, [AgentAction::Exit(Departure::JobOver)]);
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
