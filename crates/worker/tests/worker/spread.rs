//! A job over several containers has the same results as in one process.

use std::sync::Arc;

use ardea_coordination::packing::PackingPlan;
use ardea_engine::{Job, JobConfig, Node, NodeConfig};

use crate::containers::{over_each_transport, start, thread};
use crate::jobs::Adding;
use crate::master::Master;
use crate::master::plan;

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

pub fn embedded(total: u64) -> Vec<(u64, u64)> {
    let job = Adding::new(total);
    let program = job.program(&Default::default()).unwrap();
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let handle = node
        .submit(&program.dag, JobConfig::named("alone"))
        .unwrap();
    handle.join().unwrap();
    job.results()
}

/// Runs the job over the containers of this plan, to its end.
fn spread(total: u64, plan: Arc<PackingPlan>) -> Vec<(u64, u64)> {
    runtime().block_on(async {
        let containers: Vec<u32> = plan.containers().iter().map(|it| it.id.0).collect();
        let mut master = Master::start(plan).await;
        let job = Arc::new(Adding::new(total));
        let workers: Vec<_> = containers
            .into_iter()
            .map(|container| {
                let job: Arc<dyn Job> = Arc::<Adding>::clone(&job);
                thread(start(container, 1, &master.address), job)
            })
            .collect();
        master.start_reading().await;
        master.all_ended().await;
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
        job.results()
    })
}

#[test]
fn a_job_over_containers_gives_what_it_gives_in_one_process() {
    over_each_transport(compare_with_one_process);
}

fn compare_with_one_process() {
    let expected = embedded(50_000);
    assert_eq!(expected.len(), 100);
    let plans = [
        plan(&[(1, &[("numbers", 0), ("sums", 0), ("list", 0)])]),
        plan(&[(1, &[("numbers", 0)]), (2, &[("sums", 0), ("list", 0)])]),
        plan(&[
            (1, &[("numbers", 0), ("sums", 1)]),
            (2, &[("numbers", 1), ("sums", 0)]),
            (3, &[("numbers", 2), ("sums", 2), ("list", 0)]),
        ]),
    ];
    for plan in plans {
        assert_eq!(spread(50_000, Arc::clone(&plan)), expected, "{plan}");
    }
}
