//! Upgrades of a job, with failovers and failing programs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ardea_checkpoint::local::LeaderCheckpointBackend;
use ardea_coordination::control::{
    CheckpointRecord, Command, CoordinatorConfig, FinalState, IMPORTED, JobDefinition, JobPhase,
    JobRef, PredecessorState, RequiredCheckpoints, Successor, Upgrade, UpgradeEnd, UpgradeOrder,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_server::leader::{JobHandle, JobStore, Jobs, MasterProcess, StoredJob, new_submission};

use crate::fixture::{Fixture, leads, until, until_told};

/// A checkpoint backend that gives all jobs a guarantee, and only records final states.
#[derive(Debug, Default)]
struct Noted {
    /// The initial states of jobs.
    brought: Mutex<BTreeMap<JobRef, FinalState>>,
    /// A submission whose checkpoints fail.
    mute: Mutex<Option<u64>>,
    /// A submission whose preparation fails.
    unfit: Mutex<Option<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl LeaderCheckpointBackend for Noted {
    fn epochs(&self, _: &JobDefinition) -> Result<Option<CoordinatorConfig>> {
        Ok(Some(CoordinatorConfig {
            interval: Duration::from_millis(50),
            pause: Duration::from_millis(5),
            ..CoordinatorConfig::default()
        }))
    }

    fn make(&self, job: &JobRef, record: &Arc<CheckpointRecord>) -> Result<()> {
        let newest = record.checkpoints.last();
        let is_own = newest.is_some_and(|newest| newest.generation != IMPORTED);
        if is_own && *lock(&self.mute) == Some(job.submission) {
            return Err(Error::new(ErrorCode::DiskFull, "there is no room"));
        }
        Ok(())
    }

    fn has_initial_state(&self, job: &JobRef) -> bool {
        lock(&self.brought).contains_key(job)
    }

    fn import_initial_state(&self, job: &JobRef) -> Result<Option<Arc<CheckpointRecord>>> {
        let left = lock(&self.brought).get(job).copied();
        Ok(left.map(|left| Arc::new(CheckpointRecord::imported(job.clone(), left.epoch))))
    }

    fn follow(&self, next: &Successor, left: &PredecessorState<'_>) -> Result<JobDefinition> {
        let job = &next.definition.job;
        if *lock(&self.unfit) == Some(job.submission) {
            return Err(Error::new(ErrorCode::InvalidJob, "it can't read that"));
        }
        let state = left.state.expect("it has committed something");
        lock(&self.brought).insert(job.clone(), state);
        Ok(next.definition.clone())
    }

    fn keep(&self, _: &JobRef, _: &RequiredCheckpoints) {}
}

async fn master(rig: &Fixture, holder: &str, noted: &Arc<Noted>) -> MasterProcess {
    let mut setup = rig.setup(holder);
    setup.checkpoints = Some(Arc::clone(noted) as _);
    let started = MasterProcess::start(setup, Jobs::All).await;
    started.expect("it starts")
}

/// Returns an upgrade command with its submissions: of the new program, and of the old one in a
/// rollback.
fn order(rig: &Fixture, patience: Duration) -> (Command, u64, u64) {
    let (definition, demand, packing) = rig.job("word-count");
    let (next, back) = (definition.job.submission, new_submission());
    let order = UpgradeOrder {
        next: Successor {
            definition,
            demand,
            packing,
        },
        back,
        commit_timeout: patience,
    };
    (Command::Upgrade(Box::new(order)), next, back)
}

/// Waits until the stored job has this submission and its upgrade has ended.
async fn over(rig: &Fixture, job: &JobRef, submission: u64) -> StoredJob {
    let job = JobRef {
        submission,
        ..job.clone()
    };
    let store = JobStore::new(rig.state(), job).expect("a job");
    let is_over = |stored: &StoredJob| matches!(stored.record.upgrade, Some(Upgrade::Over(_)));
    let look = async || store.read().await.expect("an answer").filter(is_over);
    until_told("the upgrade is over", look).await
}

/// Starts a job, and waits for its first commit.
async fn living(rig: &Fixture, master: &MasterProcess) -> (JobRef, JobHandle) {
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(master, "word-count", JobPhase::Running).await;
    loop {
        let epochs = desk.view().await.unwrap().description.epochs;
        if epochs.is_some_and(|epochs| epochs.committed.is_some()) {
            return (job, desk);
        }
    }
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_program_begins_from_the_last_epoch_of_the_old_one() {
    let (rig, noted) = (Fixture::new().await, Arc::<Noted>::default());
    let master = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &master).await;
    let (command, next, _) = order(&rig, LONG);
    desk.command(command).await.unwrap();
    let stored = over(&rig, &job, next).await;
    let from = job.submission;
    let upgraded = Upgrade::Over(UpgradeEnd::Upgraded { from });
    assert_eq!(stored.record.upgrade, Some(upgraded));
    let followed = until("the new one", || {
        let desk = master.handle("word-count");
        desk.filter(|desk| desk.job().submission == next)
    });
    let epochs = followed
        .await
        .view()
        .await
        .unwrap()
        .description
        .epochs
        .unwrap();
    let left = lock(&noted.brought).values().next().copied().unwrap();
    assert_eq!(epochs.restored_from, Some(left.epoch.0));
    assert!(epochs.committed > Some(left.epoch.0));
    // Of the old job only the summary remains.
    let store = JobStore::new(rig.state(), job).expect("a job");
    until("nothing of the old one", || {
        let running = rig.machine.workers().len();
        (running == 2).then_some(())
    })
    .await;
    assert!(store.read().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_commits_nothing_gives_way_to_the_old_one_with_the_same_state() {
    let (rig, noted) = (Fixture::new().await, Arc::<Noted>::default());
    let master = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &master).await;
    let (command, next, back) = order(&rig, Duration::from_millis(500));
    *lock(&noted.mute) = Some(next);
    desk.command(command).await.unwrap();
    let stored = over(&rig, &job, back).await;
    let Some(Upgrade::Over(UpgradeEnd::RolledBack { tried, why })) = &stored.record.upgrade else {
        panic!("{:?}", stored.record.upgrade);
    };
    assert_eq!(*tried, next);
    assert!(why.contains("committed nothing"), "{why}");
    let brought = lock(&noted.brought).values().copied().collect::<Vec<_>>();
    assert!(
        brought.len() == 2 && brought[0] == brought[1],
        "{brought:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_for_which_nothing_can_be_made_ready_never_takes_the_place() {
    let (rig, noted) = (Fixture::new().await, Arc::<Noted>::default());
    let master = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &master).await;
    let (command, next, back) = order(&rig, LONG);
    *lock(&noted.unfit) = Some(next);
    desk.command(command).await.unwrap();
    let stored = over(&rig, &job, back).await;
    let why = stored.record.upgrade.as_ref().and_then(Upgrade::why);
    assert!(why.unwrap().contains("can't read that"), "{why:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_goes_on_whoever_leads() {
    let (rig, noted) = (Fixture::new().await, Arc::<Noted>::default());
    let first = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &first).await;
    let second = master(&rig, "b", &noted).await;
    let (command, next, _) = order(&rig, LONG);
    desk.command(command).await.unwrap();
    // As after the death of the process.
    drop(first);
    over(&rig, &job, next).await;
    leads(&second, "word-count", JobPhase::Running).await;
}
