//! Jobs distributed over several nodes of one process, connected by queues of bytes instead of a
//! network.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, ChunkCodec, Dag, EdgeId, Epoch, Inbox, InstanceContext, Marker, Ordinal, Outbox,
    Parallelism, Processor, Progress, Result, SourceControl, Waker, Watermark,
};
use ardea_engine::{
    Deployment, JobConfig, JobStatus, Node, NodeConfig, Placement, RemoteEdges, Site, StartMode,
    colocation_groups,
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
            held: None,
            is_done: false,
        }
    }
}

impl RemoteEdges for Network {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>> {
        Ok(Box::new(Sender(self.end(edge, self.here, to))))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>> {
        Ok(Box::new(Receiver(self.end(edge, from, self.here))))
    }
}

/// One end of a stream.
struct End {
    stream: Shared,
    codec: Arc<dyn ChunkCodec>,
    held: Option<(u32, Chunk)>,
    is_done: bool,
}

impl End {
    fn join(&self, context: &InstanceContext) {
        self.stream.lock().unwrap().ends.push(context.waker.clone());
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

    fn mark(&self, marker: Marker) -> Result<Progress> {
        let is_sent = self.try_push(|| Ok(Frame::Marker(marker)))?;
        Ok(if is_sent {
            Progress::DONE
        } else {
            Progress::NONE
        })
    }

    fn pop(&self) -> Option<Frame> {
        let mut stream = self.stream.lock().unwrap();
        let frame = stream.frames.pop_front();
        stream.ends.iter().for_each(Waker::wake);
        frame
    }
}

struct Sender(End);

impl Processor for Sender {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.join(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let mut chunk = Chunk::default();
        inbox.swap(&mut chunk);
        while !chunk.is_empty() {
            let is_sent = self.0.try_push(|| {
                let mut payload = Vec::new();
                let records = self.0.codec.encode(&mut chunk, 500, &mut payload)?;
                Ok(Frame::Records(u32::from(input.0), records, payload))
            })?;
            if !is_sent {
                break;
            }
        }
        inbox.swap(&mut chunk);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, _: &mut Outbox) -> Result<Progress> {
        self.0.mark(Marker::Watermark(watermark))
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.0.mark(Marker::Barrier(epoch))
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.0.is_done = self.0.is_done || self.0.mark(Marker::Done)?.done;
        Ok(Progress::NONE)
    }
}

struct Receiver(End);

impl Processor for Receiver {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.join(context);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.0.held.is_none() {
            match self.0.pop() {
                None => return Ok(Progress::NONE),
                Some(Frame::Marker(marker)) => {
                    outbox.marker(marker);
                    return Ok(Progress::MADE);
                }
                Some(Frame::Records(target, records, payload)) => {
                    let mut chunk = Chunk::default();
                    self.0.codec.decode(records, &payload, &mut chunk)?;
                    self.0.held = Some((target, chunk));
                }
            }
        }
        let Some((target, mut chunk)) = self.0.held.take() else {
            return Ok(Progress::NONE);
        };
        if outbox.offer_chunk(Ordinal(target as u16), &mut chunk)? {
            return Ok(Progress::MADE);
        }
        self.0.held = Some((target, chunk));
        Ok(Progress::NONE)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for Receiver {
    fn on_drain(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::DONE)
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
            node.deploy(
                dag,
                JobConfig::named("spread"),
                placement,
                Arc::new(network),
                StartMode::Running,
            )
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
