//! Side-channel messages between containers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ardea_engine::Job;

use crate::containers::{start, thread};
use crate::instances::{isolating, until};
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

fn mail_with(isolated: &[&str]) {
    runtime().block_on(async {
        let mut master = Master::start(plan(&[
            (1, &[("sends", 0)]),
            (2, &[("takes", 0), ("takes", 1)]),
            (3, &[("sends", 1)]),
        ]))
        .await;
        let jobs = [(); 3].map(|()| {
            Arc::new(WithReceipts {
                isolated: isolated.iter().map(|name| name.to_string()).collect(),
                ..WithReceipts::default()
            })
        });
        let workers: Vec<_> = jobs
            .iter()
            .zip(1..)
            .map(|(job, container)| {
                let mut start = isolating(start(container, 1, &master.address), isolated);
                start.settings.insert("test.receipts".into(), "yes".into());
                let job: Arc<dyn Job> = Arc::<WithReceipts>::clone(job);
                thread(start, job)
            })
            .collect();
        master.start_reading().await;
        // The messages of isolated instances are visible in their output.
        until(|| match isolated.contains(&"takes") {
            true => enough(&jobs[0].results, &[0]) && enough(&jobs[2].results, &[1]),
            false => enough(&jobs[1].thanks, &[0, 1]),
        })
        .await;
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
fn mail_reaches_instances_in_other_containers_and_a_lost_one_is_told() {
    mail_with(&[]);
}

#[test]
fn mail_from_and_to_isolated_instances_passes_through_their_containers() {
    mail_with(&["takes"]);
    mail_with(&["sends"]);
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
