//! No thread outlives its node or its job: counted in a separate test process.
#![cfg(all(target_os = "linux", not(loom)))]

use std::fs::read_dir;
use std::time::{Duration, Instant};

use ardea_core::{Dag, Edge, Isolation, Outbox, Processor, Progress, Result, Vertex, supplier};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

fn threads() -> usize {
    read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Waits until the process has `wanted` threads; a joined thread may remain in the list for a
/// moment.
fn until_threads(wanted: usize) {
    let start = Instant::now();
    while threads() != wanted {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} threads instead of {wanted}",
            threads()
        );
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

struct Endless;
impl Processor for Endless {
    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::MADE)
    }
}

struct Short;
impl Processor for Short {}

fn dag<P: Processor + 'static>(make: fn() -> P, isolation: Isolation) -> Dag {
    let mut dag = Dag::new();
    let source = dag.vertex(Vertex::new("source", supplier(make)).isolation(isolation));
    let sink = dag.vertex(Vertex::new("sink", supplier(|| Short)).isolation(isolation));
    dag.edge(Edge::between(source, sink));
    dag
}

#[test]
fn threads_end_with_their_job_and_with_their_node() {
    let before = threads();
    let node = Node::start(NodeConfig::with_threads(3)).unwrap();
    until_threads(before + 3);

    let short = node
        .submit(&dag(|| Short, Isolation::Thread), JobConfig::default())
        .unwrap();
    short.join().unwrap();
    until_threads(before + 3);

    let jobs: Vec<_> = [Isolation::Thread, Isolation::Tasklet]
        .map(|isolation| {
            node.submit(&dag(|| Endless, isolation), JobConfig::default())
                .unwrap()
        })
        .into();
    until_threads(before + 3 + 6);
    drop(node);
    until_threads(before);
    for job in jobs {
        assert!(matches!(job.status(), JobStatus::Cancelled));
    }
}
