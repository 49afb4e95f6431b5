//! Ctrl-C that ends a program with embedded jobs: each test observes a child process, which runs
//! the same test.
#![cfg(not(loom))]

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Dag, Outbox, Processor, Progress, Result, SourceControl, Vertex, supplier};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than the time within which signals count as one.
const APART: Duration = Duration::from_millis(200);

/// The environment variable of a child process, with the name of its test.
const CHILD: &str = "CTRL_C_ENDS_CHILD";

/// A source without data. It prints when it is drained or closed, and then blocks forever unless it
/// is mild.
struct Silence {
    is_mild: bool,
}

impl Processor for Silence {
    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::NONE)
    }

    fn close(&mut self) {
        eprintln!("closing");
        if !self.is_mild {
            park_for_ever();
        }
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for Silence {
    fn on_drain(&mut self, _: &mut Outbox) -> Result<Progress> {
        eprintln!("draining");
        Ok(Progress::done_if(self.is_mild))
    }
}

fn park_for_ever() -> ! {
    loop {
        thread::park();
    }
}

fn start(node: &Node, is_mild: bool) -> JobHandle {
    let mut dag = Dag::new();
    dag.vertex(Vertex::new(
        "silence",
        supplier(move || Silence { is_mild }),
    ));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.drain_on_ctrl_c().unwrap();
    eprintln!("listening");
    job
}

/// Returns true if this process is the child of the test `test`.
fn is_child_of(test: &str) -> bool {
    env::var(CHILD).is_ok_and(|parent| parent == test)
}

struct Watched {
    child: Child,
    said: BufReader<ChildStderr>,
    signalled: Option<Instant>,
}

impl Watched {
    fn of(test: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, test)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Watched {
            child,
            said,
            signalled: None,
        }
    }

    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while line != format!("{what}\n") {
            line.clear();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended before it said {what:?}");
        }
    }

    /// Sends a signal, at least `APART` after the previous one.
    fn signal(&mut self, signal: Signal) {
        while let Some(last) = self.signalled
            && last.elapsed() < APART
        {
            thread::park_timeout(APART - last.elapsed().min(APART));
        }
        self.signalled = Some(Instant::now());
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ended_by(&mut self) -> Option<i32> {
        self.child.wait().unwrap().signal()
    }
}

#[test]
fn the_third_ends_a_process_whose_job_does_not_stop() {
    const NAME: &str = "the_third_ends_a_process_whose_job_does_not_stop";
    if is_child_of(NAME) {
        let node = Node::start(NodeConfig::with_threads(1)).unwrap();
        let _job = start(&node, false);
        park_for_ever();
    }
    let mut program = Watched::of(NAME);
    program.says("listening");
    program.signal(Signal::INT);
    program.says("draining");
    program.signal(Signal::INT);
    program.says("closing");
    program.signal(Signal::INT);
    assert_eq!(program.ended_by(), Some(Signal::INT.as_raw()));
}

#[test]
fn once_the_job_is_over_signals_do_what_they_do_by_default() {
    const NAME: &str = "once_the_job_is_over_signals_do_what_they_do_by_default";
    if is_child_of(NAME) {
        let node = Node::start(NodeConfig::with_threads(1)).unwrap();
        start(&node, true).join().unwrap();
        eprintln!("over");
        park_for_ever();
    }
    let mut program = Watched::of(NAME);
    program.says("listening");
    program.signal(Signal::INT);
    program.says("over");
    program.signal(Signal::TERM);
    assert_eq!(program.ended_by(), Some(Signal::TERM.as_raw()));
}
