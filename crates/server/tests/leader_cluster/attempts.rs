//! Jobs with a processing guarantee: their attempts and epochs across failures and leaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ardea_checkpoint::local::LeaderCheckpointBackend;
use ardea_coordination::control::{
    CheckpointCommand, CheckpointRecord, Command, CoordinatorConfig, Generation, JobDefinition,
    JobPhase, JobRef, RequiredCheckpoints, StoreReply, StoreRequest,
};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_server::leader::{JobStore, Jobs, MasterProcess};

use crate::fixture::{Fixture, desk, leads, until, until_told};

/// A checkpoint backend that gives all jobs a guarantee, with twenty epochs a second.
#[derive(Debug, Default)]
struct Often {
    /// True if checkpoints fail.
    refuses: AtomicBool,
    /// The latest epoch with a checkpoint.
    made: AtomicU64,
}

impl LeaderCheckpointBackend for Often {
    fn epochs(&self, _: &JobDefinition) -> Result<Option<CoordinatorConfig>> {
        Ok(Some(CoordinatorConfig {
            interval: Duration::from_millis(50),
            pause: Duration::from_millis(5),
            ..CoordinatorConfig::default()
        }))
    }

    fn make(&self, _: &JobRef, record: &Arc<CheckpointRecord>) -> Result<()> {
        if self.refuses.load(Ordering::Acquire) {
            return Err(Error::new(ErrorCode::DiskFull, "there is no room"));
        }
        let newest = record.committed.unwrap_or_default();
        self.made.store(newest.0, Ordering::Release);
        Ok(())
    }

    fn keep(&self, _: &JobRef, _: &RequiredCheckpoints) {}
}

async fn master(rig: &Fixture, holder: &str) -> MasterProcess {
    master_with(rig, holder, Arc::default()).await
}

async fn master_with(rig: &Fixture, holder: &str, checkpoints: Arc<Often>) -> MasterProcess {
    let mut setup = rig.setup(holder);
    setup.checkpoints = Some(checkpoints);
    let started = MasterProcess::start(setup, Jobs::All).await;
    started.expect("it starts")
}

async fn record(rig: &Fixture, job: &JobRef) -> Option<Arc<CheckpointRecord>> {
    let store = JobStore::new(rig.state(), job.clone()).expect("a job");
    match store.epochs(StoreRequest::Read).await {
        StoreReply::Found(found) => found.map(|(record, _)| record),
        other => panic!("{other:?}"),
    }
}

/// Waits until the record satisfies the condition.
async fn recorded(
    rig: &Fixture,
    job: &JobRef,
    wanted: impl Fn(&CheckpointRecord) -> bool,
) -> CheckpointRecord {
    let look = async || record(rig, job).await.filter(|record| wanted(record));
    (*until_told("it is in the record", look).await).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_are_committed_and_a_lost_worker_takes_all_back_to_the_newest() {
    let rig = Fixture::new().await;
    let master = master(&rig, "a").await;
    let job = rig.submit("word-count").await.unwrap();
    leads(&master, "word-count", JobPhase::Running).await;
    let first = recorded(&rig, &job, |record| record.committed >= Some(Epoch(3))).await;
    assert_eq!(first.generation, Generation(1));
    rig.machine.kill(1);
    let next = recorded(&rig, &job, |record| record.generation > Generation(1)).await;
    assert!(next.restored_from >= first.committed);
    leads(&master, "word-count", JobPhase::Running).await;
    recorded(&rig, &job, |record| record.committed > next.committed).await;
    // The other worker is the same process, and has restarted its instances.
    let notes = rig.machine.notes(2);
    let notes = notes.lock().unwrap();
    assert_eq!(
        (notes.starts, notes.lives.last()),
        (6, Some(&next.generation))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_master_goes_on_with_the_life_that_it_finds() {
    let rig = Fixture::new().await;
    let first = master(&rig, "a").await;
    let job = rig.submit("word-count").await.unwrap();
    leads(&first, "word-count", JobPhase::Running).await;
    let before = recorded(&rig, &job, |record| record.committed.is_some()).await;
    let second = master(&rig, "b").await;
    desk(&second, "word-count").await;
    drop(first);
    leads(&second, "word-count", JobPhase::Running).await;
    let wanted = |record: &CheckpointRecord| {
        record.master > before.master && record.committed > before.committed
    };
    let after = recorded(&rig, &job, wanted).await;
    assert_eq!(after.generation, before.generation);
    for notes in rig.machine.all_notes() {
        assert_eq!(notes.lock().unwrap().starts, 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_was_made_before_and_what_can_not_be_made_is_aborted_and_told() {
    let rig = Fixture::new().await;
    let often = Arc::<Often>::default();
    let master = master_with(&rig, "a", Arc::clone(&often)).await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let record = recorded(&rig, &job, |record| record.committed.is_some()).await;
    assert!(often.made.load(Ordering::Acquire) >= record.committed.unwrap().0);

    often.refuses.store(true, Ordering::Release);
    let begin = std::time::Instant::now();
    let aborted = loop {
        let epochs = desk.view().await.unwrap().description.epochs.unwrap();
        if epochs.aborted_count > 0 && epochs.trouble.is_some() {
            break epochs;
        }
        assert!(begin.elapsed() < crate::fixture::DEADLINE, "{epochs:?}");
    };
    assert_eq!(aborted.guarantee, "exactly-once");
    let why = aborted.trouble.unwrap();
    assert!(why.contains("there is no room"), "{why}");
    assert_eq!(aborted.committed, Some(often.made.load(Ordering::Acquire)));

    often.refuses.store(false, Ordering::Release);
    let before = aborted.committed.map(Epoch);
    recorded(&rig, &job, |record| record.committed > before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_begins_a_life_from_the_epoch_that_ends_for_it() {
    let rig = Fixture::new().await;
    let master = master(&rig, "a").await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let before = recorded(&rig, &job, |record| record.committed.is_some()).await;
    let update = Command::Update([("counts".into(), 6)].into());
    desk.command(update).await.unwrap();
    let after = recorded(&rig, &job, |record| record.generation > Generation(1)).await;
    assert!(after.restored_from > before.committed && after.failures == 0);
    assert_eq!(after.plan.0, before.plan.0 + 1);
    until("ten instances", || {
        let notes = rig.machine.all_notes();
        let running: usize = notes.iter().map(|n| n.lock().unwrap().running.len()).sum();
        (running == 10).then_some(())
    })
    .await;
    leads(&master, "word-count", JobPhase::Running).await;
    desk.command(Command::Epochs(CheckpointCommand::Savepoint))
        .await
        .unwrap();
    let kept = record(&rig, &job).await.unwrap();
    assert!(
        kept.checkpoints
            .iter()
            .any(|checkpoint| checkpoint.is_savepoint)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_gone_leaves_no_record_of_its_epochs() {
    let rig = Fixture::new().await;
    let master = master(&rig, "a").await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    recorded(&rig, &job, |record| record.committed.is_some()).await;
    desk.command(Command::Kill).await.unwrap();
    until("nobody stands for it", || {
        master.handle("word-count").is_none().then_some(())
    })
    .await;
    let store = JobStore::new(rig.state(), job).expect("a job");
    let left = rig.state().get(store.epochs_path()).await.unwrap();
    assert!(left.is_none());
}
