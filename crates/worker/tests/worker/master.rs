//! A master by hand: it has one plan at a time, and tells its workers what a real one would.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_coordination::control::{
    Assignment, EpochWord, FromParticipant, FromWorker, Generation, JobRef, Life, LifeEnd, Lookup,
    MasterEpoch, Order, Peer, PlanVersion, Registration, Run, Status, ToMaster, ToParticipant,
    ToWorker, WorkerId,
};
use ardea_coordination::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingPlan, Resources, VertexDemand,
};
use ardea_core::{Epoch, Result};
use ardea_network::rpc::{Courier, Listener, Security, Sender};
use ardea_worker::MasterFinder;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

pub const EPOCH: MasterEpoch = MasterEpoch(1);

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn job() -> JobRef {
    JobRef {
        cluster: "harbour".into(),
        name: "ferry".into(),
        submission: 7,
    }
}

/// Finds the master wherever it is at the time.
#[derive(Clone)]
pub struct Finder(Arc<Mutex<(String, MasterEpoch)>>);

impl Finder {
    pub fn at(address: &str) -> Finder {
        Finder(Arc::new(Mutex::new((address.to_string(), EPOCH))))
    }

    /// Another one is the master now.
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

/// The instances of each vertex by container.
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
    /// The life that all are in, of a job with a guarantee.
    pub life: Option<Life>,
    /// What each container runs, where that is not what the plan of the routes says.
    pub running: BTreeMap<ContainerId, Vec<InstanceId>>,
    number: u64,
    pub problems: Vec<String>,
    /// What was said of epochs.
    pub reports: Vec<(ContainerId, FromParticipant)>,
    /// The lives that could not go on somewhere.
    pub lives_over: BTreeMap<Generation, LifeEnd>,
    pub epoch: MasterEpoch,
    /// How each container's worker has registered last.
    pub registered: BTreeMap<ContainerId, Registration>,
    /// Takes connections, and listens to them.
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

    /// Takes in what workers say, until `done`.
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
            }) => {
                if let Some(member) = self.members.get_mut(&worker.container)
                    && member.id == worker
                {
                    member.applied = applied;
                    member.ended = ended;
                    let _ = member.sender.send(&ToWorker::Heard(self.epoch)).await;
                }
            }
            ToMaster::Problem { message, .. } => self.problems.push(message),
            ToMaster::NotMaster { .. } => panic!("there is no other master"),
            ToMaster::Epochs { worker, message } => {
                self.reports.push((worker.container, message));
            }
            ToMaster::LifeOver {
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
        // Asked again on the same connection: it was welcomed already.
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

    /// Tells everybody everything.
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
                life: self.life,
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
                // It may be dead.
                let _ = member.sender.send(&message).await;
            }
        }
    }

    /// Waits until all workers are there and have done what they were told last.
    pub async fn settled(&mut self) {
        self.listen_until(|master| {
            let mut containers = master.containers().into_iter();
            containers.all(|container| master.is_settled(container))
        })
        .await;
    }

    /// Whether a worker has done what it was told last.
    fn is_settled(&self, container: ContainerId) -> bool {
        let order = Order {
            epoch: self.epoch,
            number: self.number,
        };
        let member = self.members.get(&container);
        self.number > 0 && member.is_some_and(|member| member.applied == Some(order))
    }

    /// Says something of epochs to all that are in the present life.
    pub async fn say(&mut self, committed: Option<Epoch>, word: EpochWord) {
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

    /// Has sources read.
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

    /// Which life of a container's worker was heard of last.
    pub fn incarnation(&self, container: u32) -> Option<u64> {
        let member = self.members.get(&ContainerId(container))?;
        Some(member.id.incarnation)
    }

    /// A container is not needed any more: it is let go when all that it had has ended.
    pub async fn dismiss(&mut self, container: u32) {
        let container = ContainerId(container);
        self.listen_until(|master| master.is_settled(container))
            .await;
        if let Some(mut member) = self.members.remove(&container) {
            let _ = member.sender.send(&ToWorker::Leave(self.epoch)).await;
        }
    }

    /// The job is over.
    pub async fn say_farewell(mut self) {
        for member in self.members.values_mut() {
            let _ = member.sender.send(&ToWorker::Leave(self.epoch)).await;
        }
    }
}

/// The sender travels with the first message.
async fn listen(courier: Courier, heard: mpsc::UnboundedSender<(ToMaster, Option<Sender>)>) {
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
