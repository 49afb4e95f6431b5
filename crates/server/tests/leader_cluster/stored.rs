//! Stored nodes and their cleanup: late leases, and cancelled submissions.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ardea_coordination::control::{LeaseRecord, Lookup, MasterEpoch, StoreReply, StoreRequest};
use ardea_core::ErrorCode;
use ardea_metastore::layout::{JobLayout, history, jobs};
use ardea_metastore::{Expected, MetadataStore};
use ardea_server::leader::{JobStore, LeaseFinder, all_past_jobs, sweep};

use crate::fixture::{DEADLINE, Fixture};

fn lease() -> LeaseRecord {
    LeaseRecord {
        holder: "late".into(),
        address: "127.0.0.1:1".into(),
        epoch: MasterEpoch(1),
        resigned: false,
    }
}

fn claim() -> StoreRequest<LeaseRecord> {
    StoreRequest::Write {
        value: lease(),
        expected: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_a_job_that_is_gone_is_not_taken_and_leaves_nothing() {
    let rig = Fixture::new().await;
    let job = rig.submit("word-count").await.unwrap();
    let store = JobStore::new(rig.state(), job).unwrap();
    assert!(matches!(store.lease(claim()).await, StoreReply::Written(_)));
    assert_eq!(store.lease(claim()).await, StoreReply::Conflict);
    assert_eq!(store.leader().await.unwrap(), Some(lease()));
    let layout = JobLayout::of("word-count").unwrap();
    rig.state
        .delete(layout.definition(), Expected::Any)
        .await
        .unwrap();
    rig.state
        .delete(store.lease_path(), Expected::Any)
        .await
        .unwrap();
    assert_eq!(store.lease(claim()).await, StoreReply::JobGone);
    assert!(rig.state.get(store.lease_path()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finder_tells_who_leads_and_who_follows_and_that_the_job_is_gone() {
    let rig = Fixture::new().await;
    let job = rig.submit("word-count").await.unwrap();
    let store = JobStore::new(rig.state(), job.clone()).unwrap();
    let finder = LeaseFinder::new(rig.state(), job).unwrap();
    assert_eq!(finder.look_up().await, Lookup::NoLeader);
    let mut expected = None;
    for epoch in [1, 2] {
        let value = LeaseRecord {
            epoch: MasterEpoch(epoch),
            ..lease()
        };
        let claim = StoreRequest::Write { value, expected };
        let StoreReply::Written(version) = store.lease(claim).await else {
            panic!("it is not taken");
        };
        expected = Some(version);
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < DEADLINE, "{epoch} is not found");
            let found = finder.look_up().await;
            if matches!(found, Lookup::Master { epoch: MasterEpoch(e), .. } if e == epoch) {
                break;
            }
        }
    }
    // An orphaned lease must not mislead lookups forever.
    rig.state
        .delete(store.layout().definition(), Expected::Any)
        .await
        .unwrap();
    let begin = Instant::now();
    while finder.look_up().await != Lookup::JobGone {
        assert!(begin.elapsed() < DEADLINE, "the job is looked for in vain");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_removes_what_belongs_to_no_job_and_nothing_else() {
    let rig = Fixture::new().await;
    let job = rig.submit("word-count").await.unwrap();
    let store = JobStore::new(rig.state(), job).unwrap();
    store.lease(claim()).await;
    let layout = JobLayout::of("word-count").unwrap();
    let orphans = [
        layout.master(7).unwrap(),
        layout.container(3).unwrap(),
        JobLayout::of("gone").unwrap().master(8).unwrap(),
    ];
    let fact = br#"{"submission":"7"}"#;
    for orphan in &orphans {
        rig.state.set(orphan, fact, Expected::Absent).await.unwrap();
    }
    sweep(&*rig.state).await.unwrap();
    for orphan in &orphans {
        assert!(rig.state.get(orphan).await.unwrap().is_none(), "{orphan}");
    }
    assert_eq!(
        rig.state.children(&jobs().unwrap()).await.unwrap(),
        ["word-count"]
    );
    assert_eq!(store.leader().await.unwrap(), Some(lease()));
    assert!(store.read().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_what_is_damaged_a_sweep_leaves_only_what_may_be_of_a_job_that_is_there() {
    let rig = Fixture::new().await;
    rig.submit("word-count").await.unwrap();
    rig.submit("a damaged one").await.unwrap();
    let [there, damaged, gone] =
        ["word-count", "a damaged one", "gone"].map(|name| JobLayout::of(name).unwrap());
    let past = history().unwrap().child("gone").unwrap();
    let past = past.child("0000000000000008").unwrap();
    let stay = [
        there.scheduler().clone(),
        damaged.definition().clone(),
        damaged.master(8).unwrap(),
        past,
    ];
    // The path of a lease names its job.
    let go = [
        there.master(8).unwrap(),
        gone.master(8).unwrap(),
        gone.container(3).unwrap(),
    ];
    for path in stay.iter().chain(&go) {
        rig.state.set(path, b"{}", Expected::Any).await.unwrap();
        let mut file = rig.folder.as_ref().unwrap().path().join("tree");
        file.extend(path.names());
        std::fs::write(file.join(".node"), "junk").unwrap();
    }
    let whole = gone.master(9).unwrap();
    rig.state.set(&whole, b"{}", Expected::Any).await.unwrap();
    sweep(&*rig.state).await.unwrap();
    for path in &stay {
        assert!(rig.state.get(path).await.is_err(), "{path}");
    }
    for path in go.iter().chain([&whole]) {
        assert!(rig.state.get(path).await.unwrap().is_none(), "{path}");
    }
    let names = rig.state.children(&jobs().unwrap()).await.unwrap();
    assert_eq!(names, ["a%20damaged%20one", "word-count"]);
    assert_eq!(all_past_jobs(&*rig.state).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_job_is_damaged_is_refused_with_what_to_remove() {
    let rig = Fixture::new().await;
    rig.submit("word-count").await.unwrap();
    let layout = JobLayout::of("word-count").unwrap();
    let mut file = rig.folder.as_ref().unwrap().path().join("tree");
    file.extend(layout.definition().names());
    std::fs::write(file.join(".node"), "junk").unwrap();
    let error = rig.submit("word-count").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("remove"), "{hint}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_aborted_at_any_moment_leaves_a_whole_job_or_none() {
    let rig = Fixture::new().await;
    let (mut whole, mut none) = (0, 0);
    for polls in 0..40 {
        let name = format!("job {polls}");
        let asked = rig.job(&name);
        let (job, demand) = (asked.0.job.clone(), asked.1.clone());
        {
            let mut submitting = pin!(rig.submit_as(asked.clone(), DEADLINE));
            // Between two polls the runtime continues; after the last one the submission is
            // dropped.
            for _ in 0..polls {
                let look = submitting
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(done) = look {
                    done.unwrap();
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let store = JobStore::new(rig.state(), job).unwrap();
        match store.read().await.unwrap() {
            Some(stored) => {
                assert_eq!(stored.record.demand, demand);
                whole += 1;
            }
            None => none += 1,
        }
        // It can be submitted again with the same number in either case.
        rig.submit_as(asked, DEADLINE).await.unwrap();
        assert!(store.exists().await.unwrap());
    }
    assert!(none > 0, "{whole} whole, {none} none");
}
