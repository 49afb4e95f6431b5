//! What tests stand on: a state manager, a machine for containers, masters, and a job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    JobDefinition, JobPhase, JobRef, LeaseConfig, MasterConfig, ProgramRef, WorkerId,
};
use ardea_coordination::packing::{
    JobDemand, PackingConfig, ResourceManagers, Resources, VertexDemand,
};
use ardea_core::Result;
use ardea_metastore::conformance::Faulty;
use ardea_metastore::{FileState, StateManager, StateOptions};
use ardea_network::rpc::Security;
use ardea_scheduler::Schedulers;
use ardea_server::leader::{
    JobDesk, Jobs, LaunchSetup, MasterProcess, MasterSetup, Standing, new_submission, submit,
};

use crate::scheduler::Machine;

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Rig {
    /// Where the state manager keeps its files, if it keeps any.
    pub folder: Option<tempfile::TempDir>,
    pub state: Arc<Faulty>,
    pub machine: Machine,
    pub security: Security,
    /// How long a master's lease is: short, so that tests are, and longer than a busy machine stands still.
    pub term: Duration,
}

impl Rig {
    /// With a state manager in files.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        Rig::over(Arc::new(state.expect("it opens")), Some(folder))
    }

    /// With this state manager.
    pub fn over(state: Arc<dyn StateManager>, folder: Option<tempfile::TempDir>) -> Self {
        let state = Arc::new(Faulty::over(state));
        let security = Security::new("harbour");
        Rig {
            folder,
            machine: Machine::new(
                Arc::clone(&state) as Arc<dyn StateManager>,
                security.clone(),
            ),
            state,
            security,
            term: Duration::from_secs(5),
        }
    }

    pub fn state(&self) -> Arc<dyn StateManager> {
        Arc::clone(&self.state) as Arc<dyn StateManager>
    }

    /// What a master of this name is set up with.
    pub fn setup(&self, holder: &str) -> MasterSetup {
        MasterSetup {
            holder: holder.to_string(),
            listen: "127.0.0.1:0".to_string(),
            advertised_host: None,
            state: self.state(),
            security: self.security.clone(),
            managers: ResourceManagers::builtin(),
            schedulers: Schedulers::none().with("tasks", self.machine.clone()),
            launch: LaunchSetup::default(),
            lease: LeaseConfig {
                term: self.term,
                drift_margin: Duration::from_millis(200),
                every: Duration::from_millis(400),
                patience: Duration::from_secs(1),
            },
            master: MasterConfig::default(),
            snapshots: None,
        }
    }

    pub async fn master(&self, holder: &str) -> MasterProcess {
        let started = MasterProcess::start(self.setup(holder), Jobs::All).await;
        started.expect("it starts")
    }

    /// A job of this name: four words and two counts in two containers.
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

    /// Submits a job, and gives up after so long.
    pub async fn submit_as(
        &self,
        (definition, demand, packing): (JobDefinition, JobDemand, PackingConfig),
        patience: Duration,
    ) -> Result<()> {
        let (state, managers) = (self.state(), ResourceManagers::builtin());
        submit(state, definition, demand, packing, &managers, patience).await
    }

    /// Waits until all workers do what a condition says.
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

/// Waits until there is an answer.
pub async fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    until_told(what, async || answer()).await
}

/// The same of an answer that has to be waited for.
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

/// Waits until a process stands for the job.
pub async fn desk(master: &MasterProcess, name: &str) -> JobDesk {
    until("a desk", || master.desk(name)).await
}

/// Waits until a process leads the job, and the job is in this phase.
pub async fn leads(master: &MasterProcess, name: &str, wanted: JobPhase) -> JobDesk {
    let desk = desk(master, name).await;
    let phase = desk
        .wait_for(|standing| matches!(standing, Standing::Leads { phase, .. } if *phase == wanted));
    match tokio::time::timeout(DEADLINE, phase).await {
        Ok(Standing::Leads { .. }) => desk,
        other => panic!("{name} is not {wanted:?}: {other:?}, {:?}", desk.standing()),
    }
}
