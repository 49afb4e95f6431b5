//! Side-channel messages between containers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ardea_core::ErrorCode;
use ardea_engine::{Job, Parallelisms};
use ardea_worker::check_isolation;

use crate::containers::{start, thread};
use crate::instances::until;
use crate::jobs::Results;
use crate::master::{Master, plan};
use crate::receipts::WithReceipts;
use crate::spread::runtime;

/// Checks whether the list has enough receipts of these senders.
fn enough(list: &Results<(u32, u64)>, of: &[u32]) -> bool {
    let list = list.lock().unwrap();
    let count = |instance| list.iter().filter(|(of, _)| *of == instance).count();
    of.iter().all(|instance| count(*instance) >= 300)
}

fn is_unique(list: &Results<(u32, u64)>) -> bool {
    let mut list = list.lock().unwrap().clone();
    let count = list.len();
    list.sort_unstable();
    list.dedup();
    list.len() == count
}

#[test]
fn mail_reaches_instances_in_other_containers_and_a_lost_one_is_told() {
    runtime().block_on(async {
        let mut master = Master::start(plan(&[
            (1, &[("sends", 0)]),
            (2, &[("takes", 0), ("takes", 1)]),
            (3, &[("sends", 1)]),
        ]))
        .await;
        let jobs = [(); 3].map(|()| Arc::<WithReceipts>::default());
        let workers: Vec<_> = jobs
            .iter()
            .zip(1..)
            .map(|(job, container)| {
                let job: Arc<dyn Job> = Arc::<WithReceipts>::clone(job);
                thread(start(container, 1, &master.address), job)
            })
            .collect();
        master.start_reading().await;
        until(|| enough(&jobs[1].thanks, &[0, 1])).await;
        for job in &jobs {
            let unique = is_unique(&job.results) && is_unique(&job.thanks);
            assert!(unique, "no receipt comes twice");
        }
        master.dismiss(2).await;
        let lost = |job: &WithReceipts| job.lost.load(Ordering::SeqCst);
        until(|| lost(&jobs[0]) > 0 && lost(&jobs[2]) > 0).await;
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
    });
}

#[test]
fn an_isolated_vertex_of_a_job_with_side_channels_is_refused() {
    let refused = |isolated: &[&str]| {
        let job = WithReceipts {
            isolated: isolated.iter().map(|name| name.to_string()).collect(),
            ..WithReceipts::default()
        };
        let program = job.program(&Parallelisms::new()).unwrap();
        check_isolation(&job, &program)
    };
    refused(&[]).unwrap();
    let error = refused(&["takes"]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("\"takes\""), "{error}");
}

#[test]
fn little_mail_does_not_wait_for_more() {
    runtime().block_on(async {
        let mut master = Master::start(plan(&[(1, &[("sends", 0)]), (2, &[("takes", 0)])])).await;
        let jobs = [(); 2].map(|()| {
            Arc::new(WithReceipts {
                most: Some(7),
                ..WithReceipts::default()
            })
        });
        let workers: Vec<_> = jobs
            .iter()
            .zip(1..)
            .map(|(job, container)| {
                let job: Arc<dyn Job> = Arc::<WithReceipts>::clone(job);
                thread(start(container, 1, &master.address), job)
            })
            .collect();
        master.start_reading().await;
        until(|| jobs[0].results.lock().unwrap().len() == 7).await;
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
    });
}
