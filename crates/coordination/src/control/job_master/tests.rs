//! Tests of a job master. The simulated metadata store and scheduler reply immediately, and the
//! test plays the workers.

mod cancelled_plans;
mod execution_attempts;
mod placed_anew;

use std::sync::Arc;
use std::time::Duration;

use crate::packing::{
    ContainerId, ContainerLimits, InstanceId, JobDemand, MilliCores, PackingConfig, Resources,
    RoundRobin, VertexDemand,
};
use ardea_core::{Error, ErrorCode};

use super::*;
use crate::control::{
    Assignment, CheckpointRecord, Credentials, JobRecord, RecoveryScope, Run, StoreReply,
    StoreRequest, StoreVersion,
};

struct TestHarness {
    master: JobMaster,
    now: Duration,
    stored: Option<(Arc<JobRecord>, StoreVersion)>,
    /// The job's stored record at the time of its removal.
    left: Option<Arc<JobRecord>>,
    epochs: Option<(Arc<CheckpointRecord>, StoreVersion)>,
    told: Vec<(WorkerId, ToWorker)>,
    replies: Vec<(CommandId, Result<(), Rejection>)>,
    calls: Vec<SchedulerCall>,
    notes: Vec<MasterStatus>,
    finished: bool,
    /// True if the metadata store refuses all writes.
    refuses: bool,
    /// True if no other job can replace the job, although an upgrade requires it.
    is_unfollowed: bool,
    /// True if replies to writes are lost, and the metadata store cannot be read after that.
    is_torn: bool,
    /// True if the initial state of the job is damaged.
    is_unbringable: bool,
    /// True if the scheduler has no room for more than two containers, or for larger ones.
    is_full: bool,
    /// True if the scheduler ignores requests to restart containers.
    is_deaf: bool,
    /// The part of the job that is restored if a worker is lost, as all workers report.
    scope: RecoveryScope,
}

fn job() -> JobRef {
    JobRef {
        cluster: "prod".into(),
        name: "word-count".into(),
        submission: 7,
    }
}

fn worker(container: u32) -> WorkerId {
    WorkerId {
        container: ContainerId(container),
        incarnation: 1,
    }
}

impl TestHarness {
    /// Creates a job of four instances in two containers, with room for three each.
    fn new() -> Self {
        TestHarness::with(MasterConfig::default())
    }

    fn with(config: MasterConfig) -> Self {
        let each = Resources {
            cpu: MilliCores(1_000),
            ..Resources::ZERO
        };
        let limit = Resources {
            cpu: MilliCores(3_000),
            ..Resources::UNLIMITED
        };
        let demand = JobDemand::new("word-count").vertex(VertexDemand::new("v", 4, each));
        let packing = PackingConfig {
            limits: ContainerLimits::of(limit),
            ..PackingConfig::default()
        };
        let record = JobRecord::submitted(job(), demand, packing);
        let manager = Arc::new(RoundRobin);
        let mut desk = TestHarness {
            master: JobMaster::new(job(), MasterEpoch(1), manager, config),
            now: Duration::ZERO,
            stored: Some((Arc::new(record), StoreVersion(1))),
            left: None,
            epochs: None,
            told: Vec::new(),
            replies: Vec::new(),
            calls: Vec::new(),
            notes: Vec::new(),
            finished: false,
            refuses: false,
            is_unfollowed: false,
            is_torn: false,
            is_unbringable: false,
            is_full: false,
            is_deaf: false,
            scope: RecoveryScope::default(),
        };
        desk.happens(MasterEvent::Tick);
        desk
    }

    /// Creates the job of [`new`](Self::new) with all workers running.
    fn running() -> Self {
        let mut desk = TestHarness::new();
        for container in [1, 2] {
            desk.register(worker(container), Credentials::of(&job()));
        }
        for container in [1, 2, 1, 2] {
            desk.carry_out(worker(container));
        }
        assert_eq!(desk.master.phase(), &JobPhase::Running);
        desk
    }

    fn happens(&mut self, event: MasterEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.master.on(self.now, event) {
                match action {
                    MasterAction::To(worker, message) => self.told.push((worker, message)),
                    MasterAction::Record(id, request) => {
                        events.push(MasterEvent::Record(id, self.store(request)));
                    }
                    MasterAction::Epochs(id, request) => {
                        events.push(MasterEvent::Epochs(id, self.store_epochs(request)));
                    }
                    MasterAction::Scheduler(order, call) => {
                        let is_larger = |it: &ContainerRequest| it.required.cpu.0 > 2_300;
                        let is_more = match &call {
                            SchedulerCall::EnsureContainers(wanted) => {
                                wanted.len() > 2 || wanted.iter().any(is_larger)
                            }
                            _ => false,
                        };
                        let is_again = matches!(call, SchedulerCall::Restart(_));
                        let is_refused = self.is_full && is_more || self.is_deaf && is_again;
                        let answer = match is_refused {
                            true => SchedulerAnswer::Failed("no host has room".into()),
                            false => SchedulerAnswer::Done,
                        };
                        self.calls.push(call);
                        events.push(MasterEvent::Scheduler(order, answer));
                    }
                    MasterAction::Reply(id, reply) => self.replies.push((id, reply)),
                    MasterAction::JobGone => self.finished = true,
                    MasterAction::Note(note) => self.notes.push(note),
                    MasterAction::Phase(_) | MasterAction::Keep(_) => {}
                }
            }
        }
        assert_eq!(self.master.superseded_by(), None);
    }

    fn store(&mut self, request: StoreRequest<Arc<JobRecord>>) -> StoreReply<Arc<JobRecord>> {
        match request {
            StoreRequest::Read if self.is_torn => {
                let why = Error::new(ErrorCode::MetastoreCorrupt, "the record is damaged");
                StoreReply::Refused(Rejection::not_stored(&why.hint("remove it")))
            }
            StoreRequest::Write { .. } if self.is_torn => StoreReply::Unavailable,
            StoreRequest::Read => StoreReply::Found(self.stored.clone()),
            StoreRequest::Write { .. } if self.refuses => {
                let why = Error::new(ErrorCode::LimitReached, "too large");
                StoreReply::Refused(Rejection::not_stored(&why))
            }
            StoreRequest::Write { value, expected } => {
                let version = self.stored.as_ref().map(|(_, version)| *version);
                assert_eq!(expected, version);
                let version = StoreVersion(version.map_or(1, |version| version.0 + 1));
                self.stored = Some((value, version));
                StoreReply::Written(version)
            }
            StoreRequest::Delete { .. } if self.is_unfollowed && self.gives_way() => {
                let why = Error::new(ErrorCode::ReadFailed, "its folder is away");
                StoreReply::Refused(Rejection::not_stored(&why))
            }
            StoreRequest::Delete { .. } => {
                self.left = self.stored.take().map(|(record, _)| record);
                StoreReply::Deleted
            }
        }
    }

    fn gives_way(&self) -> bool {
        self.stored
            .as_ref()
            .is_some_and(|(it, _)| it.is_being_replaced())
    }

    fn store_epochs(
        &mut self,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        match request {
            StoreRequest::Read if self.is_unbringable => {
                let why = Error::new(ErrorCode::CheckpointDamaged, "a block is missing");
                StoreReply::Refused(Rejection::not_stored(&why.hint("restore it")))
            }
            StoreRequest::Read => StoreReply::Found(self.epochs.clone()),
            StoreRequest::Write { value, expected } => {
                let version = self.epochs.as_ref().map(|(_, version)| *version);
                assert_eq!(expected, version);
                let version = StoreVersion(version.map_or(1, |version| version.0 + 1));
                self.epochs = Some((value, version));
                StoreReply::Written(version)
            }
            StoreRequest::Delete { .. } => panic!("the driver removes it, with the lease"),
        }
    }

    fn register(&mut self, worker: WorkerId, who: Credentials) {
        let registration = Registration {
            worker,
            who,
            endpoint: "there".into(),
            held: None,
        };
        self.happens(MasterEvent::From(ToMaster::Register(registration)));
    }

    fn newest(&self, worker: WorkerId) -> Option<&Assignment> {
        let mut told = self.told.iter().rev();
        told.find_map(|(to, message)| match message {
            ToWorker::Assign(assignment) if *to == worker => Some(&**assignment),
            _ => None,
        })
    }

    /// Reports that `worker` runs its last assignment.
    fn carry_out(&mut self, worker: WorkerId) {
        self.say(worker, false);
    }

    /// Reports that `worker` runs its last assignment. `ended` is true if all its instances have
    /// completed.
    fn say(&mut self, worker: WorkerId, ended: bool) {
        let applied = self.newest(worker).map(|assignment| assignment.order);
        let status = Status {
            worker,
            applied,
            ended,
            scope: self.scope,
        };
        self.happens(MasterEvent::From(ToMaster::Status(status)));
    }

    fn command(&mut self, command: Command) -> Option<Result<(), Rejection>> {
        let id = CommandId(self.replies.len() as u64);
        self.happens(MasterEvent::Command(id, command));
        let mut replies = self.replies.iter();
        replies
            .find(|(of, _)| *of == id)
            .map(|(_, reply)| reply.clone())
    }

    fn indices(&self, container: u32) -> Vec<u32> {
        let assignment = self.newest(worker(container)).unwrap();
        assignment
            .instances
            .iter()
            .map(|id: &InstanceId| id.index)
            .collect()
    }
}

#[test]
fn sources_read_when_all_workers_are_prepared_and_not_before() {
    let mut desk = TestHarness::new();
    assert!(
        matches!(&desk.calls[..], [SchedulerCall::EnsureContainers(containers)] if containers.len() == 2)
    );
    desk.register(worker(1), Credentials::of(&job()));
    desk.carry_out(worker(1));
    assert_eq!(desk.newest(worker(1)).unwrap().run, Run::Prepared);
    desk.register(worker(2), Credentials::of(&job()));
    desk.carry_out(worker(1));
    assert_eq!(desk.master.phase(), &JobPhase::Starting);
    desk.carry_out(worker(2));
    for container in [1, 2] {
        assert_eq!(desk.newest(worker(container)).unwrap().run, Run::Running);
    }
}

#[test]
fn a_worker_of_another_version_is_refused_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    let mut who = Credentials::of(&job());
    who.protocol += 1;
    let stranger = WorkerId {
        incarnation: 2,
        ..worker(1)
    };
    desk.register(stranger, who);
    let Some((to, ToWorker::Refused(_, refused))) = desk.told.last() else {
        panic!("{:?}", desk.told.last());
    };
    assert_eq!(
        (*to, refused.code()),
        (stranger, ErrorCode::VersionMismatch)
    );
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn an_update_starts_what_is_new_and_leaves_the_rest_alone() {
    let mut desk = TestHarness::running();
    let update = |count| Command::Update([("v".into(), count)].into());
    assert_eq!(desk.command(update(6)), Some(Ok(())));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    let busy = desk.command(update(5)).unwrap().unwrap_err();
    assert_eq!(busy.code(), ErrorCode::WrongState);
    for _ in 0..3 {
        desk.carry_out(worker(1));
        desk.carry_out(worker(2));
    }
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(
        (desk.indices(1), desk.indices(2)),
        (vec![0, 2, 4], vec![1, 3, 5])
    );
}

#[test]
fn a_worker_that_comes_when_the_routes_have_switched_is_told_of_the_last_plan_until_all_is_done() {
    let mut desk = TestHarness::running();
    desk.command(Command::Update([("v".into(), 2)].into()));
    let plans = |desk: &TestHarness, worker| {
        let told = desk.newest(worker).unwrap();
        [told.routes, told.next, told.last].map(|version| version.0)
    };
    assert_eq!(plans(&desk, worker(1)), [1, 2, 1]);
    desk.carry_out(worker(1));
    desk.carry_out(worker(2));
    assert_eq!(plans(&desk, worker(1)), [2, 2, 1]);

    desk.happens(MasterEvent::Exited(worker(1)));
    let second = WorkerId {
        incarnation: 2,
        ..worker(1)
    };
    desk.register(second, Credentials::of(&job()));
    desk.now += Duration::from_secs(1);
    desk.happens(MasterEvent::Tick);
    assert_eq!(plans(&desk, second), [2, 2, 1]);
    let is_plan = |version| {
        move |(to, message): &(WorkerId, ToWorker)| {
            let told = matches!(message, ToWorker::Plan { version: it, .. } if it.0 == version);
            told && *to == second
        }
    };
    assert!([1, 2].iter().all(|it| desk.told.iter().any(is_plan(*it))));

    for _ in 0..3 {
        desk.carry_out(second);
        desk.carry_out(worker(2));
    }
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(plans(&desk, second), [2, 2, 2]);
}

#[test]
fn the_job_does_without_a_container_when_everybody_routes_by_the_plan_that_has_it_not() {
    let mut desk = TestHarness::running();
    let given_back = |desk: &TestHarness| {
        let ids = [1, 2, 3].map(ContainerId);
        ids.map(|id| desk.master.is_container_obsolete(id))
    };
    let carry_out = |desk: &mut TestHarness| {
        desk.carry_out(worker(1));
        desk.carry_out(worker(2));
    };
    let switched = |desk: &TestHarness| {
        let (record, _) = desk.stored.as_ref().unwrap();
        record.previous.as_ref().map(|previous| previous.switched)
    };
    assert_eq!(given_back(&desk), [false, false, true]);
    desk.command(Command::Update([("v".into(), 1)].into()));
    assert_eq!(switched(&desk), Some(false));
    assert_eq!(given_back(&desk), [false, false, true]);
    carry_out(&mut desk);
    // Workers that have not received the new assignment yet still route by the previous plan.
    assert_eq!(switched(&desk), Some(true));
    assert_eq!(given_back(&desk), [false, false, true]);
    carry_out(&mut desk);
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    assert_eq!(given_back(&desk), [false, true, true]);
    desk.carry_out(worker(1));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(given_back(&desk), [false, true, true]);
}

#[test]
fn an_update_that_makes_no_sense_is_refused_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    for (vertex, count) in [("w", 1), ("v", 0), ("v", u32::MAX), ("v", 10_001)] {
        let update = Command::Update([(vertex.into(), count)].into());
        let refused = desk.command(update).unwrap().unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidJob, "{refused}");
        assert_eq!(desk.master.phase(), &JobPhase::Running);
        // The code appears once, and the hint is that of the rejection.
        let told = ardea_core::Error::from(refused).to_string();
        assert_eq!(told.matches("ARD-").count(), 1, "{told}");
        assert_eq!(told.contains("10000 of a vertex"), count > 1, "{told}");
        assert_eq!(told.contains("did you mean v?"), vertex == "w", "{told}");
    }
}

#[test]
fn a_killed_job_leaves_no_record_and_tells_its_workers_to_end() {
    let mut desk = TestHarness::running();
    assert_eq!(desk.command(Command::Kill), Some(Ok(())));
    assert!(desk.finished && desk.stored.is_none());
    assert_eq!(desk.calls.last(), Some(&SchedulerCall::Kill));
    for container in [1, 2] {
        let leave = (worker(container), ToWorker::Leave(MasterEpoch(1)));
        assert!(desk.told.contains(&leave));
    }
}

#[test]
fn a_worker_whose_process_ends_is_started_again_at_once_and_after_a_wait_the_next_time() {
    let mut desk = TestHarness::running();
    let restarts = |desk: &TestHarness| {
        let restart = SchedulerCall::Restart(ContainerId(1));
        desk.calls.iter().filter(|call| **call == restart).count()
    };
    desk.happens(MasterEvent::Exited(worker(1)));
    assert_eq!(desk.master.phase(), &JobPhase::Recovering);
    assert_eq!(restarts(&desk), 1);
    let second = WorkerId {
        incarnation: 2,
        ..worker(1)
    };
    desk.register(second, Credentials::of(&job()));
    desk.happens(MasterEvent::Exited(second));
    assert_eq!(restarts(&desk), 1);
    desk.now += Duration::from_millis(100);
    desk.happens(MasterEvent::Tick);
    assert_eq!(restarts(&desk), 2);
}

#[test]
fn a_job_has_finished_when_every_worker_says_that_all_it_runs_has_ended() {
    let mut desk = TestHarness::running();
    desk.say(worker(1), true);
    desk.say(worker(2), false);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    // A report about an earlier assignment does not apply to the current one.
    assert_eq!(desk.command(Command::Pause), Some(Ok(())));
    desk.say(worker(2), true);
    assert_eq!(desk.master.phase(), &JobPhase::Paused);
    desk.say(worker(1), true);
    assert!(desk.finished && desk.stored.is_none());
    assert_eq!(desk.calls.last(), Some(&SchedulerCall::Kill));
    let leave = (worker(1), ToWorker::Leave(MasterEpoch(1)));
    assert!(desk.told.contains(&leave));
}

#[test]
fn a_master_that_takes_over_a_finished_job_starts_nothing_and_removes_it() {
    let mut desk = TestHarness::running();
    let (record, version) = desk.stored.take().unwrap();
    let finished = true;
    let record = JobRecord {
        finished,
        ..(*record).clone()
    };
    desk.stored = Some((Arc::new(record), version));
    desk.calls.clear();
    let manager = Arc::new(RoundRobin);
    desk.master = JobMaster::new(job(), MasterEpoch(2), manager, MasterConfig::default());
    desk.happens(MasterEvent::Tick);
    assert_eq!(desk.calls, [SchedulerCall::Kill]);
    assert!(desk.stored.is_none());
}

#[test]
fn a_command_that_may_have_been_stored_is_answered_with_the_code_of_doubt() {
    let mut desk = TestHarness::running();
    desk.is_torn = true;
    assert_eq!(desk.command(Command::Pause), None);
    desk.now += Duration::from_secs(1);
    desk.happens(MasterEvent::Tick);
    let (_, reply) = desk.replies.last().unwrap();
    let doubtful = reply.clone().unwrap_err();
    assert_eq!(doubtful.code(), ErrorCode::Superseded);
    let told = doubtful.to_string();
    assert!(told.contains("it is not known whether"), "{told}");
    assert!(told.contains("the record is damaged"), "{told}");

    // The next write has not been sent, so it is not done.
    assert_eq!(desk.command(Command::Kill), None);
    desk.now += Duration::from_secs(1);
    desk.happens(MasterEvent::Tick);
    let (_, reply) = desk.replies.last().unwrap();
    let refused = reply.clone().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::MetastoreCorrupt);
}

#[test]
fn an_update_that_can_not_be_stored_is_refused_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    desk.refuses = true;
    let update = Command::Update([("v".into(), 6)].into());
    let refused = desk.command(update).unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "too large");
    assert_eq!(refused.code(), ErrorCode::LimitReached);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn a_new_master_does_not_take_the_end_of_an_earlier_process_for_that_of_the_container() {
    let mut desk = TestHarness::running();
    let manager = Arc::new(RoundRobin);
    desk.master = JobMaster::new(job(), MasterEpoch(2), manager, MasterConfig::default());
    desk.happens(MasterEvent::Tick);
    desk.happens(MasterEvent::Exited(worker(1)));
    desk.now += Duration::from_secs(1);
    desk.happens(MasterEvent::Tick);
    assert!(!desk.calls.contains(&SchedulerCall::Restart(ContainerId(1))));
    let later = WorkerId {
        incarnation: 2,
        ..worker(1)
    };
    desk.register(later, Credentials::of(&job()));
    assert_eq!(desk.master.workers().collect::<Vec<_>>(), [later]);
}

#[test]
fn messages_read_back_as_they_are_written() {
    let desk = TestHarness::running();
    assert!(desk.told.len() > 5);
    for (_, message) in &desk.told {
        let json = serde_json::to_string(message).unwrap();
        assert_eq!(&serde_json::from_str::<ToWorker>(&json).unwrap(), message);
    }
    let (record, _) = desk.stored.unwrap();
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<JobRecord>(&json).unwrap(), *record);
}
