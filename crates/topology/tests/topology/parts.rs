//! Spouts and bolts for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_engine::{Node, NodeConfig};
use ardea_topology::{
    Bolt, Collector, ComponentContext, MessageId, Next, Outcome, Outputs, RunningTopology, Spout,
    SpoutCollector, Topology, Tuple,
};

/// The observations of a [`Numbers`] spout.
#[derive(Debug, Default)]
pub struct Seen {
    pub acked: Vec<u64>,
    pub failed: Vec<u64>,
    pub most_pending: usize,
    pub activations: u32,
    pub deactivations: u32,
}

/// Emits its instance's share of the numbers below `end`, as fields "number" and "word", and
/// replays failed ones.
pub struct Numbers {
    end: u64,
    next: u64,
    step: u64,
    tracked: bool,
    pending: usize,
    again: VecDeque<u64>,
    seen: Arc<Mutex<Seen>>,
}

impl Numbers {
    pub fn untracked(end: u64) -> Self {
        Numbers::new(end, false, Arc::default())
    }

    pub fn tracked(end: u64, seen: &Arc<Mutex<Seen>>) -> Self {
        Numbers::new(end, true, Arc::clone(seen))
    }

    fn new(end: u64, tracked: bool, seen: Arc<Mutex<Seen>>) -> Self {
        Numbers {
            end,
            next: 0,
            step: 1,
            tracked,
            pending: 0,
            again: VecDeque::new(),
            seen,
        }
    }
}

/// The word for a number.
pub fn word_of(number: u64) -> String {
    format!("word{}", number % 1000)
}

impl Spout for Numbers {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number", "word"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.next = u64::from(context.instance().index);
        self.step = u64::from(context.instance().parallelism);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let number = match self.again.pop_front() {
            Some(number) => number,
            None if self.next >= self.end => return Ok(Next::Done),
            None => {
                self.next += self.step;
                self.next - self.step
            }
        };
        let values = (number as i64, word_of(number));
        if self.tracked {
            self.pending += 1;
            let mut seen = self.seen.lock().unwrap();
            seen.most_pending = seen.most_pending.max(self.pending);
            drop(seen);
            out.emit_tracked(MessageId(number), values)?;
        } else {
            out.emit(values)?;
        }
        Ok(Next::More)
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        match self.again.is_empty() {
            true => Ok(Next::Done),
            false => self.next_tuple(out),
        }
    }

    fn ack(&mut self, message: MessageId) {
        self.pending -= 1;
        self.seen.lock().unwrap().acked.push(message.0);
    }

    fn fail(&mut self, message: MessageId) {
        self.pending -= 1;
        self.seen.lock().unwrap().failed.push(message.0);
        self.again.push_back(message.0);
    }

    fn activate(&mut self) {
        self.seen.lock().unwrap().activations += 1;
    }

    fn deactivate(&mut self) {
        self.seen.lock().unwrap().deactivations += 1;
    }
}

/// A bolt that calls a function for each tuple, with the number of its instance.
pub struct Each<F> {
    outputs: Outputs,
    instance: u32,
    work: F,
}

pub fn each<F>(work: F) -> Each<F>
where
    F: FnMut(u32, &Tuple<'_>, &mut Collector<'_>) -> Outcome + Send,
{
    emitting(Outputs::none(), work)
}

pub fn emitting<F>(outputs: Outputs, work: F) -> Each<F>
where
    F: FnMut(u32, &Tuple<'_>, &mut Collector<'_>) -> Outcome + Send,
{
    Each {
        outputs,
        instance: 0,
        work,
    }
}

impl<F> Bolt for Each<F>
where
    F: FnMut(u32, &Tuple<'_>, &mut Collector<'_>) -> Outcome + Send,
{
    fn outputs(&self) -> Outputs {
        self.outputs.clone()
    }

    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance().index;
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        (self.work)(self.instance, tuple, out)
    }
}

/// Pairs of an instance and a received number.
pub type Arrivals = Arc<Mutex<Vec<(u32, u64)>>>;

/// Creates a bolt that records received numbers.
pub fn notes(arrivals: &Arrivals) -> impl Bolt + use<> {
    let arrivals = Arc::clone(arrivals);
    each(move |instance, tuple, _| {
        let number = tuple.int("number")? as u64;
        arrivals.lock().unwrap().push((instance, number));
        Ok(())
    })
}

/// Creates a node with two threads on any machine.
pub fn node() -> Node {
    Node::start(NodeConfig {
        pin: false,
        ..NodeConfig::with_threads(2)
    })
    .unwrap()
}

/// Runs a topology to its end, within a minute.
pub fn run(topology: &Topology) -> RunningTopology {
    let node = node();
    let running = topology.submit(&node).unwrap();
    let status = running.job().wait(Duration::from_secs(60));
    assert!(status.is_over(), "{status:?}: {:?}", running.spouts());
    running.join().unwrap();
    running
}

/// Waits until `condition` holds, for half a minute.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
