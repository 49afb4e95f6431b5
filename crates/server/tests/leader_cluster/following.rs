//! One program follows another: whoever leads, and whatever becomes of the new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ardea_checkpoint::local::Snapshots;
use ardea_coordination::control::{
    BROUGHT, Command, EpochsConfig, EpochsRecord, JobDefinition, JobPhase, JobRef, Left, LeftState,
    Needed, Successor, Upgrade, UpgradeEnd, UpgradeOrder,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_server::leader::{JobDesk, JobStore, Jobs, MasterProcess, StoredJob, new_submission};

use crate::rig::{Rig, leads, until, until_told};

/// All jobs promise something; what each has left is only noted.
#[derive(Debug, Default)]
struct Noted {
    /// What jobs begin with.
    brought: Mutex<BTreeMap<JobRef, LeftState>>,
    /// Of this submission no snapshot can be made.
    mute: Mutex<Option<u64>>,
    /// Nothing can be made ready for this one.
    unfit: Mutex<Option<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Snapshots for Noted {
    fn epochs(&self, _: &JobDefinition) -> Result<Option<EpochsConfig>> {
        Ok(Some(EpochsConfig {
            interval: Duration::from_millis(50),
            pause: Duration::from_millis(5),
            ..EpochsConfig::default()
        }))
    }

    fn make(&self, job: &JobRef, record: &Arc<EpochsRecord>) -> Result<()> {
        let newest = record.snapshots.last();
        let is_own = newest.is_some_and(|newest| newest.generation != BROUGHT);
        if is_own && *lock(&self.mute) == Some(job.submission) {
            return Err(Error::new(ErrorCode::DiskFull, "there is no room"));
        }
        Ok(())
    }

    fn brings(&self, job: &JobRef) -> bool {
        lock(&self.brought).contains_key(job)
    }

    fn first(&self, job: &JobRef) -> Result<Option<Arc<EpochsRecord>>> {
        let left = lock(&self.brought).get(job).copied();
        Ok(left.map(|left| Arc::new(EpochsRecord::brought(job.clone(), left.epoch))))
    }

    fn follow(&self, next: &Successor, left: &Left<'_>) -> Result<JobDefinition> {
        let job = &next.definition.job;
        if *lock(&self.unfit) == Some(job.submission) {
            return Err(Error::new(ErrorCode::InvalidJob, "it can't read that"));
        }
        let state = left.state.expect("it has committed something");
        lock(&self.brought).insert(job.clone(), state);
        Ok(next.definition.clone())
    }

    fn keep(&self, _: &JobRef, _: &Needed) {}
}

async fn master(rig: &Rig, holder: &str, noted: &Arc<Noted>) -> MasterProcess {
    let mut setup = rig.setup(holder);
    setup.snapshots = Some(Arc::clone(noted) as _);
    let started = MasterProcess::start(setup, Jobs::All).await;
    started.expect("it starts")
}

/// What another program is asked for by, and its submissions: its own, and that of the old one should it come back.
fn order(rig: &Rig, patience: Duration) -> (Command, u64, u64) {
    let (definition, demand, packing) = rig.job("word-count");
    let (next, back) = (definition.job.submission, new_submission());
    let order = UpgradeOrder {
        next: Successor {
            definition,
            demand,
            packing,
        },
        back,
        patience,
    };
    (Command::Upgrade(Box::new(order)), next, back)
}

/// What is stored of the job, as soon as it is that submission and its upgrade has ended.
async fn over(rig: &Rig, job: &JobRef, submission: u64) -> StoredJob {
    let job = JobRef {
        submission,
        ..job.clone()
    };
    let store = JobStore::new(rig.state(), job).expect("a job");
    let is_over = |stored: &StoredJob| matches!(stored.record.upgrade, Some(Upgrade::Over(_)));
    let look = async || store.read().await.expect("an answer").filter(is_over);
    until_told("the upgrade is over", look).await
}

/// A job that has committed something, and who leads it.
async fn living(rig: &Rig, master: &MasterProcess) -> (JobRef, JobDesk) {
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(master, "word-count", JobPhase::Running).await;
    loop {
        let epochs = desk.view().await.unwrap().epochs;
        if epochs.is_some_and(|epochs| epochs.committed.is_some()) {
            return (job, desk);
        }
    }
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_program_begins_from_the_last_epoch_of_the_old_one() {
    let (rig, noted) = (Rig::new().await, Arc::<Noted>::default());
    let master = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &master).await;
    let (command, next, _) = order(&rig, LONG);
    desk.command(command).await.unwrap();
    let stored = over(&rig, &job, next).await;
    let from = job.submission;
    let upgraded = Upgrade::Over(UpgradeEnd::Upgraded { from });
    assert_eq!(stored.record.upgrade, Some(upgraded));
    let followed = until("the new one", || {
        let desk = master.desk("word-count");
        desk.filter(|desk| desk.job().submission == next)
    });
    let epochs = followed.await.view().await.unwrap().epochs.unwrap();
    let left = lock(&noted.brought).values().next().copied().unwrap();
    assert_eq!(epochs.restored_from, Some(left.epoch.0));
    assert!(epochs.committed > Some(left.epoch.0));
    // Nothing is left of the old one but what is remembered.
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
    let (rig, noted) = (Rig::new().await, Arc::<Noted>::default());
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
    let (rig, noted) = (Rig::new().await, Arc::<Noted>::default());
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
    let (rig, noted) = (Rig::new().await, Arc::<Noted>::default());
    let first = master(&rig, "a", &noted).await;
    let (job, desk) = living(&rig, &first).await;
    let second = master(&rig, "b", &noted).await;
    let (command, next, _) = order(&rig, LONG);
    desk.command(command).await.unwrap();
    // As if the process had died.
    drop(first);
    over(&rig, &job, next).await;
    leads(&second, "word-count", JobPhase::Running).await;
}
