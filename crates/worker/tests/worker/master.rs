//! A simulated leader: it has one plan at a time, and sends its workers the same messages as a real
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_coordination::control::{
    Assignment, AttemptEnd, CoordinatorMessage, ExecutionAttempt, FromParticipant, FromWorker,
    Generation, JobRef, Lookup, MasterEpoch, Order, Peer, PlanVersion, Registration, Run, Status,
    ToMaster, ToParticipant, ToWorker, WorkerId,
};
use ardea_coordination::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingPlan, Resources, VertexDemand,
};
use ardea_core::{Epoch, Result};
use ardea_network::rpc::{Listener, RpcConnection, Security, Sender};
use ardea_worker::MasterFinder;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

pub const EPOCH: MasterEpoch = MasterEpoch(1);

/// The timeout of any wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn job() -> JobRef {
    JobRef {
        cluster: "harbour".into(),
        name: "ferry".into(),
        submission: 7,
    }
}

/// A leader lookup with a settable result.
#[derive(Clone)]
pub struct Finder(Arc<Mutex<(String, MasterEpoch)>>);

impl Finder {
    pub fn at(address: &str) -> Finder {
        Finder(Arc::new(Mutex::new((address.to_string(), EPOCH))))
    }

    /// Sets another leader.
    pub fn set(&self, address: &str, epoch: MasterEpoch) {
        *self.0.lock().unwrap() = (address.to_string(), epoch);
    }
}

impl MasterFinder for Finder {
    fn look_up(&self) -> Pin<Box<dyn Future<Output = Lookup> + Send + '_>> {
        let (address, epoch) = self.0.lock().unwrap().clone();
        Box::pin(async move { Lookup::Master { address, epoch } })
    }
}

/// The instances of each container.
pub type Plan = [(u32, &'static [(&'static str, u32)])];

/// Builds a packing plan from the instances of each container.
pub fn plan(containers: &[(u32, &[(&str, u32)])]) -> Arc<PackingPlan> {
    let mut counts = BTreeMap::<&str, u32>::new();
    let mut placement = BTreeMap::new();
    for (container, instances) in containers {
        let ids = instances.iter().map(|(vertex, index)| {
            let count = counts.entry(vertex).or_default();
            *count = (*count).max(index + 1);
            InstanceId::new(*vertex, *index)
        });
        placement.insert(ContainerId(*container), ids.collect::<Vec<_>>());
    }
    let demand = counts
        .iter()
        .fold(JobDemand::new("ferry"), |demand, (name, count)| {
            demand.vertex(VertexDemand::new(*name, *count, Resources::ZERO))
        });
    Arc::new(PackingPlan::of(&demand, &PackingConfig::default(), placement).unwrap())
}

struct Member {
    id: WorkerId,
    endpoint: Arc<str>,
    sender: Sender,
    applied: Option<Order>,
    ended: bool,
}

pub struct Master {
    pub address: String,
    heard: mpsc::UnboundedReceiver<(ToMaster, Option<Sender>)>,
    members: BTreeMap<ContainerId, Member>,
    plans: BTreeMap<PlanVersion, Arc<PackingPlan>>,
    pub routes: PlanVersion,
    pub next: PlanVersion,
    pub last: PlanVersion,
    pub run: Run,
    /// The current attempt of a job with a processing guarantee.
    pub life: Option<ExecutionAttempt>,
    /// The instances of containers that differ from the current plan.
    pub running: BTreeMap<ContainerId, Vec<InstanceId>>,
    number: u64,
    pub problems: Vec<String>,
    /// The received reports about epochs.
    pub reports: Vec<(ContainerId, FromParticipant)>,
    /// The attempts that have failed in a container.
    pub lives_over: BTreeMap<Generation, AttemptEnd>,
    pub epoch: MasterEpoch,
    /// The last registration of each container's worker.
    pub registered: BTreeMap<ContainerId, Registration>,
    /// The task that accepts and reads connections.
    listening: JoinHandle<()>,
}

impl Drop for Master {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Master {
    pub async fn start(plan: Arc<PackingPlan>) -> Master {
        let security = Security::new("harbour");
        let mut listener = Listener::bind("127.0.0.1:0", security).await.unwrap();
        let address = listener.address().to_string();
        let (hears, heard) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(courier) = listener.accept().await {
                connections.spawn(listen(courier, hears.clone()));
            }
        });
        Master {
            address,
            heard,
            members: BTreeMap::new(),
            plans: BTreeMap::from([(PlanVersion(1), plan)]),
            routes: PlanVersion(1),
            next: PlanVersion(1),
            last: PlanVersion(1),
            run: Run::Prepared,
            life: None,
            running: BTreeMap::new(),
            number: 0,
            problems: Vec::new(),
            reports: Vec::new(),
            lives_over: BTreeMap::new(),
            epoch: EPOCH,
            registered: BTreeMap::new(),
            listening,
        }
    }

    pub fn add_plan(&mut self, version: u64, plan: Arc<PackingPlan>) {
        self.plans.insert(PlanVersion(version), plan);
    }

    fn containers(&self) -> BTreeSet<ContainerId> {
        let plans = [self.routes, self.next];
        let plans = plans.iter().map(|version| &self.plans[version]);
        plans
            .flat_map(|plan| plan.containers())
            .map(|it| it.id)
            .collect()
    }

    fn instances(&self, container: ContainerId) -> Arc<[InstanceId]> {
        let told = self.running.get(&container).map(|it| it.clone().into());
        let planned = self.plans[&self.routes].container(container);
        told.or(planned.map(|it| it.instances.clone().into()))
            .unwrap_or_default()
    }

    /// Handles messages of workers until `done` returns true.
    pub async fn listen_until(&mut self, done: impl Fn(&Master) -> bool) {
        let listen = async {
            while !done(self) {
                let (message, sender) = self.heard.recv().await.expect("somebody speaks");
                self.hear(message, sender).await;
            }
        };
        let timely = tokio::time::timeout(PATIENCE, listen).await.is_ok();
        assert!(
            timely,
            "nothing comes any more; problems: {:?}, of epochs {:?}, of lives {:?}",
            self.problems, self.reports, self.lives_over
        );
    }

    async fn hear(&mut self, message: ToMaster, sender: Option<Sender>) {
        match message {
            ToMaster::Register(registration) => self.register(registration, sender).await,
            ToMaster::Status(Status {
                worker,
                applied,
                ended,
                ..
            }) => {
                if let Some(member) = self.members.get_mut(&worker.container)
                    && member.id == worker
                {
                    member.applied = applied;
                    member.ended = ended;
                    let _ = member
                        .sender
                        .send(&ToWorker::StatusReceived(self.epoch))
                        .await;
                }
            }
            ToMaster::Problem { message, .. } => self.problems.push(message),
            ToMaster::NotMaster { .. } => panic!("there is no other master"),
            ToMaster::Epochs { worker, message } => {
                self.reports.push((worker.container, message));
            }
            ToMaster::AttemptOver {
                generation, why, ..
            } => {
                self.lives_over.insert(generation, why);
            }
        }
    }

    async fn register(&mut self, registration: Registration, sender: Option<Sender>) {
        let worker = registration.worker;
        let endpoint = Arc::clone(&registration.endpoint);
        self.registered.insert(worker.container, registration);
        let known = self.members.get(&worker.container);
        // A repeated registration on the same connection has no sender.
        let (Some(mut sender), true) = (sender, known.is_none_or(|known| known.id <= worker))
        else {
            return;
        };
        let _ = sender.send(&ToWorker::Welcome(self.epoch)).await;
        let member = Member {
            id: worker,
            endpoint,
            sender,
            applied: None,
            ended: false,
        };
        self.members.insert(worker.container, member);
        if self.is_complete() {
            self.assign().await;
        }
    }

    fn is_complete(&self) -> bool {
        let wanted = self.containers();
        wanted
            .iter()
            .all(|container| self.members.contains_key(container))
    }

    /// Sends the peers, the plans and the assignments to all workers.
    pub async fn assign(&mut self) {
        self.number += 1;
        let order = Order {
            epoch: self.epoch,
            number: self.number,
        };
        let peers: Arc<[Peer]> = self
            .members
            .values()
            .map(|member| Peer {
                worker: member.id,
                endpoint: Arc::clone(&member.endpoint),
            })
            .collect();
        let containers: Vec<ContainerId> = self.members.keys().copied().collect();
        for container in containers {
            let assignment = Assignment {
                order,
                instances: self.instances(container),
                run: self.run,
                routes: self.routes,
                next: self.next,
                last: self.last,
                attempt: self.life,
                restarted: Arc::from([]),
                peers: order,
            };
            let plans = self.plans.iter().map(|(version, plan)| ToWorker::Plan {
                epoch: self.epoch,
                version: *version,
                plan: Arc::clone(plan),
            });
            let told = plans.chain([
                ToWorker::Peers {
                    epoch: self.epoch,
                    from: Order::default(),
                    to: order,
                    changed: Arc::clone(&peers),
                },
                ToWorker::Assign(Arc::new(assignment)),
            ]);
            let told: Vec<ToWorker> = told.collect();
            let member = self.members.get_mut(&container).unwrap();
            for message in told {
                // The worker may be dead.
                let _ = member.sender.send(&message).await;
            }
        }
    }

    /// Waits until all workers are registered and have applied the last assignment.
    pub async fn settled(&mut self) {
        self.listen_until(|master| {
            let mut containers = master.containers().into_iter();
            containers.all(|container| master.is_settled(container))
        })
        .await;
    }

    /// Checks whether a worker has applied the last assignment.
    fn is_settled(&self, container: ContainerId) -> bool {
        let order = Order {
            epoch: self.epoch,
            number: self.number,
        };
        let member = self.members.get(&container);
        self.number > 0 && member.is_some_and(|member| member.applied == Some(order))
    }

    /// Sends a coordinator message to all participants of the current attempt.
    pub async fn say(&mut self, committed: Option<Epoch>, word: CoordinatorMessage) {
        let message = ToParticipant {
            master: self.epoch,
            generation: self.life.expect("there is a life").generation,
            committed,
            word,
        };
        for member in self.members.values_mut() {
            let _ = member.sender.send(&ToWorker::Epochs(message.clone())).await;
        }
    }

    /// Starts the sources.
    pub async fn start_reading(&mut self) {
        self.settled().await;
        self.run = Run::Running;
        self.assign().await;
        self.settled().await;
    }

    pub async fn all_ended(&mut self) {
        self.listen_until(|master| {
            let containers = master.containers();
            containers
                .iter()
                .all(|container| master.members.get(container).is_some_and(|it| it.ended))
        })
        .await;
    }

    /// Returns the last registered incarnation of a container's worker.
    pub fn incarnation(&self, container: u32) -> Option<u64> {
        let member = self.members.get(&ContainerId(container))?;
        Some(member.id.incarnation)
    }

    /// Releases a container once it has applied the last assignment.
    pub async fn dismiss(&mut self, container: u32) {
        let container = ContainerId(container);
        self.listen_until(|master| master.is_settled(container))
            .await;
        if let Some(mut member) = self.members.remove(&container) {
            let _ = member.sender.send(&ToWorker::Leave(self.epoch)).await;
        }
    }

    /// Ends the job.
    pub async fn say_farewell(mut self) {
        for member in self.members.values_mut() {
            let _ = member.sender.send(&ToWorker::Leave(self.epoch)).await;
        }
    }
}

/// Forwards the messages of a connection, with its sending end in the first one.
async fn listen(courier: RpcConnection, heard: mpsc::UnboundedSender<(ToMaster, Option<Sender>)>) {
    let (sender, mut receiver) = courier.split();
    let mut sender = Some(sender);
    loop {
        let message: Result<Option<FromWorker>> = receiver.receive().await;
        match message {
            Ok(Some(FromWorker::Control(message))) => drop(heard.send((message, sender.take()))),
            Ok(Some(FromWorker::Metrics(batch))) => {
                ardea_metrics::Batch::decode(&batch).expect("a batch");
            }
            Ok(None) | Err(_) => return,
        }
    }
}
