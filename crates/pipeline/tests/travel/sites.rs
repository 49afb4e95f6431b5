//! Jobs distributed over several nodes of one process, connected by queues of bytes instead of a
//! network.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::{Chunk, ChunkCodec, Dag, EdgeId, Guarantee, Marker, Parallelism, Result, Waker};
use ardea_engine::{
    Deployment, ExecutionMode, JobConfig, JobStatus, Node, NodeConfig, Placement, ReceiveEnd,
    RemoteEdges, RemoteItem, SendEnd, Site, StartMode, StreamState, colocation_groups,
};

/// A message between two sites.
enum Frame {
    Records(u32, usize, Vec<u8>),
    Marker(Marker),
}

/// The messages of an edge from one site to another.
#[derive(Default)]
struct Stream {
    frames: VecDeque<Frame>,
    ends: Vec<Waker>,
}

const MOST_FRAMES: usize = 3;

type Shared = Arc<Mutex<Stream>>;
type Streams = HashMap<(EdgeId, Site, Site), Shared>;

#[derive(Clone)]
struct Network {
    dag: Dag,
    here: Site,
    streams: Arc<Mutex<Streams>>,
}

impl Network {
    fn end(&self, edge: EdgeId, from: Site, to: Site) -> End {
        let mut streams = self.streams.lock().unwrap();
        let codec = self.dag.edges()[edge.index()].wanted_codec();
        End {
            stream: Arc::clone(streams.entry((edge, from, to)).or_default()),
            codec: Arc::clone(codec.expect("only edges with a codec leave a site")),
            is_done: false,
        }
    }
}

impl RemoteEdges for Network {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn SendEnd>> {
        Ok(Box::new(Sender(self.end(edge, self.here, to))))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn ReceiveEnd>> {
        Ok(Box::new(Receiver(self.end(edge, from, self.here))))
    }
}

/// One end of a stream.
struct End {
    stream: Shared,
    codec: Arc<dyn ChunkCodec>,
    is_done: bool,
}

impl End {
    fn join(&self, waker: Waker) {
        self.stream.lock().unwrap().ends.push(waker);
    }

    fn try_push(&self, make: impl FnOnce() -> Result<Frame>) -> Result<bool> {
        let mut stream = self.stream.lock().unwrap();
        if stream.frames.len() >= MOST_FRAMES {
            return Ok(false);
        }
        stream.frames.push_back(make()?);
        stream.ends.iter().for_each(Waker::wake);
        Ok(true)
    }

    fn pop(&self) -> Option<Frame> {
        let mut stream = self.stream.lock().unwrap();
        let frame = stream.frames.pop_front();
        stream.ends.iter().for_each(Waker::wake);
        frame
    }
}

struct Sender(End);

impl SendEnd for Sender {
    fn open(&mut self, waker: Waker) {
        self.0.join(waker);
    }

    fn send(&mut self, target: u32, chunk: &mut Chunk) -> Result<bool> {
        while !chunk.is_empty() {
            let is_sent = self.0.try_push(|| {
                let mut payload = Vec::new();
                let records = self.0.codec.encode(chunk, 500, &mut payload)?;
                Ok(Frame::Records(target, records, payload))
            })?;
            if !is_sent {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn mark(&mut self, marker: Marker) -> Result<bool> {
        self.0.try_push(|| Ok(Frame::Marker(marker)))
    }

    fn leave(&mut self, _: u32) -> Result<bool> {
        Ok(true)
    }

    fn finish(&mut self) -> Result<bool> {
        self.0.is_done = self.0.is_done || self.mark(Marker::Done)?;
        Ok(self.0.is_done)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Receiver(End);

impl ReceiveEnd for Receiver {
    fn open(&mut self, waker: Waker) {
        self.0.join(waker);
    }

    fn receive(&mut self, _: Duration, _: usize, chunk: &mut Chunk) -> Result<Option<RemoteItem>> {
        Ok(match self.0.pop() {
            None => None,
            Some(Frame::Marker(marker)) => Some(RemoteItem::Marker(marker)),
            Some(Frame::Records(target, records, payload)) => {
                self.0.codec.decode(records, &payload, chunk)?;
                Some(RemoteItem::Records { target })
            }
        })
    }

    fn stream_state(&mut self) -> Option<StreamState> {
        Some(StreamState {
            is_disconnected: true,
            ..StreamState::default()
        })
    }
}

/// Runs a job to its end over several sites. `choose` returns the site of an instance; vertices of
/// a chain are placed together.
pub fn run(dag: &Dag, sites: u32, config: &NodeConfig, mut choose: impl FnMut() -> u32) {
    let mut places = vec![Vec::new(); dag.vertices().len()];
    for group in colocation_groups(dag).unwrap() {
        let Parallelism::Exactly(count) = dag.get(group[0]).wanted_parallelism() else {
            panic!("the program says how many there are");
        };
        let at: Vec<Site> = (0..count.get()).map(|_| Site(choose() % sites)).collect();
        for vertex in group {
            places[vertex.index()].clone_from(&at);
        }
    }
    let streams = Arc::default();
    let nodes: Vec<Node> = (0..sites)
        .map(|_| Node::start(config.clone()).unwrap())
        .collect();
    let parts: Vec<Deployment> = (0..)
        .map(Site)
        .zip(&nodes)
        .map(|(here, node)| {
            let network = Network {
                dag: dag.clone(),
                here,
                streams: Arc::clone(&streams),
            };
            let placement = Placement::new(here, places.clone());
            // Micro-batches on several sites require a guarantee.
            let guarantee = match config.mode {
                ExecutionMode::Continuous => Guarantee::None,
                ExecutionMode::MicroBatch | ExecutionMode::Auto => Guarantee::AtLeastOnce,
            };
            let job = JobConfig {
                guarantee,
                ..JobConfig::named("spread")
            };
            node.deploy(dag, job, placement, Arc::new(network), StartMode::Running)
                .unwrap()
        })
        .collect();
    let start = Instant::now();
    while !parts.iter().all(|part| part.status().is_over()) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the job does not end"
        );
        std::thread::park_timeout(Duration::from_millis(1));
    }
    for part in &parts {
        let status = part.status();
        assert!(matches!(status, JobStatus::Completed), "{status}");
    }
}
