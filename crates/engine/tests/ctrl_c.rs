//! Ctrl-C in a program with embedded jobs. A separate test process, since signals concern all its
//! threads.
#![cfg(not(loom))]

use std::time::Duration;

use ardea_core::{Dag, Outbox, Processor, Progress, Result, SourceControl, Vertex, supplier};
use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig};
use rustix::process::{Signal, getpid, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the time within which signals count as one.
const APART: Duration = Duration::from_millis(200);

/// A source without data; it ends when drained unless it is stubborn.
struct Silence {
    is_stubborn: bool,
}

impl Processor for Silence {
    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::NONE)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for Silence {
    fn on_drain(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::done_if(!self.is_stubborn))
    }
}

fn start(node: &Node, is_stubborn: bool) -> JobHandle {
    let mut dag = Dag::new();
    dag.vertex(Vertex::new(
        "silence",
        supplier(move || Silence { is_stubborn }),
    ));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.drain_on_ctrl_c().unwrap();
    job
}

fn interrupt(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn the_first_drains_all_jobs_its_echo_nothing_and_the_second_cancels_those_that_are_left() {
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let (mild, stubborn) = (start(&node, false), start(&node, true));
    mild.drain_on_ctrl_c().unwrap();
    interrupt(Signal::INT);
    interrupt(Signal::TERM);
    assert!(matches!(mild.wait(PATIENCE), JobStatus::Drained));
    assert!(matches!(stubborn.wait(APART), JobStatus::Running));
    let later = start(&node, false);
    interrupt(Signal::TERM);
    assert!(matches!(stubborn.wait(PATIENCE), JobStatus::Cancelled));
    assert!(matches!(later.wait(PATIENCE), JobStatus::Drained));
}
