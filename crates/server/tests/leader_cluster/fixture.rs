//! Test fixture: a metadata store, a machine for containers, leaders, and a job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    JobDefinition, JobPhase, JobRef, LeaseConfig, MasterConfig, ProgramRef, WorkerId,
};
use ardea_coordination::elasticity::ElasticityPolicies;
use ardea_coordination::optimizer::OptimizerRules;
use ardea_coordination::packing::{
    JobDemand, PackingConfig, PackingPolicies, Resources, VertexDemand,
};
use ardea_core::Result;
use ardea_metastore::conformance::FaultyStore;
use ardea_metastore::{FileState, MetadataStore, StateOptions};
use ardea_network::rpc::Security;
use ardea_scheduler::Schedulers;
use ardea_server::leader::{
    JobHandle, Jobs, LaunchSetup, LeadershipState, MasterProcess, MasterSetup, new_submission,
    submit,
};

use crate::scheduler::Machine;

/// The timeout of any wait.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Fixture {
    /// The folder of the metadata store, if it has one.
    pub folder: Option<tempfile::TempDir>,
    pub state: Arc<FaultyStore>,
    pub machine: Machine,
    pub security: Security,
    /// The term of leases: short for fast tests, but longer than the pauses of a busy machine.
    pub term: Duration,
}

impl Fixture {
    /// Creates a fixture with a metadata store in files.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        Fixture::over(Arc::new(state.expect("it opens")), Some(folder))
    }

    /// Creates a fixture with this metadata store.
    pub fn over(state: Arc<dyn MetadataStore>, folder: Option<tempfile::TempDir>) -> Self {
        let state = Arc::new(FaultyStore::over(state));
        let security = Security::new("harbour");
        Fixture {
            folder,
            machine: Machine::new(
                Arc::clone(&state) as Arc<dyn MetadataStore>,
                security.clone(),
            ),
            state,
            security,
            term: Duration::from_secs(5),
        }
    }

    pub fn state(&self) -> Arc<dyn MetadataStore> {
        Arc::clone(&self.state) as Arc<dyn MetadataStore>
    }

    /// Returns the setup of a leader candidate of this name.
    pub fn setup(&self, holder: &str) -> MasterSetup {
        MasterSetup {
            holder: holder.to_string(),
            listen: "127.0.0.1:0".to_string(),
            advertised_host: None,
            state: self.state(),
            security: self.security.clone(),
            managers: PackingPolicies::builtin(),
            elasticity: ElasticityPolicies::builtin(),
            optimizer: OptimizerRules::builtin(),
            schedulers: Schedulers::none().with("tasks", self.machine.clone()),
            launch: LaunchSetup::default(),
            lease: LeaseConfig {
                term: self.term,
                drift_margin: Duration::from_millis(200),
                renew_interval: Duration::from_millis(400),
                request_timeout: Duration::from_secs(1),
            },
            master: MasterConfig::default(),
            checkpoints: None,
        }
    }

    pub async fn master(&self, holder: &str) -> MasterProcess {
        let started = MasterProcess::start(self.setup(holder), Jobs::All).await;
        started.expect("it starts")
    }

    /// Returns a job of this name: four words and two counts in two containers.
    pub fn job(&self, name: &str) -> (JobDefinition, JobDemand, PackingConfig) {
        let definition = JobDefinition {
            job: JobRef {
                cluster: "harbour".into(),
                name: name.into(),
                submission: new_submission(),
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "word-count".into(),
                arguments: Vec::new(),
            },
            packing: "round-robin".into(),
            scheduler: "tasks".into(),
            settings: BTreeMap::new(),
            version: "0.1.0".into(),
        };
        let demand = JobDemand::new(name)
            .vertex(VertexDemand::new("words", 4, Resources::ZERO))
            .vertex(VertexDemand::new("counts", 2, Resources::ZERO));
        let packing = PackingConfig {
            containers: std::num::NonZeroU32::new(2),
            ..PackingConfig::default()
        };
        (definition, demand, packing)
    }

    /// Submits a job of this name.
    pub async fn submit(&self, name: &str) -> Result<JobRef> {
        let asked = self.job(name);
        let job = asked.0.job.clone();
        self.submit_as(asked, DEADLINE).await?;
        Ok(job)
    }

    /// Submits a job with a timeout.
    pub async fn submit_as(
        &self,
        (definition, demand, packing): (JobDefinition, JobDemand, PackingConfig),
        patience: Duration,
    ) -> Result<()> {
        let (state, managers) = (self.state(), PackingPolicies::builtin());
        submit(state, definition, demand, packing, &managers, patience).await
    }

    /// Waits until the set of running workers satisfies the condition.
    pub async fn workers(
        &self,
        what: &str,
        mut condition: impl FnMut(&[WorkerId]) -> bool,
    ) -> Vec<WorkerId> {
        until(what, || {
            let workers = self.machine.workers();
            condition(&workers).then_some(workers)
        })
        .await
    }
}

/// Polls until there is a result.
pub async fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    until_told(what, async || answer()).await
}

/// Polls asynchronously until there is a result.
pub async fn until_told<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    loop {
        looks.tick().await;
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begin.elapsed() < DEADLINE, "in vain: {what}");
    }
}

/// Waits until the process is a candidate for the job.
pub async fn desk(master: &MasterProcess, name: &str) -> JobHandle {
    until("a desk", || master.handle(name)).await
}

/// Waits until the process leads the job and the job is in this phase.
pub async fn leads(master: &MasterProcess, name: &str, wanted: JobPhase) -> JobHandle {
    let desk = desk(master, name).await;
    let phase = desk.wait_for(
        |standing| matches!(standing, LeadershipState::Leading { phase, .. } if *phase == wanted),
    );
    match tokio::time::timeout(DEADLINE, phase).await {
        Ok(LeadershipState::Leading { .. }) => desk,
        other => panic!("{name} is not {wanted:?}: {other:?}, {:?}", desk.state()),
    }
}
