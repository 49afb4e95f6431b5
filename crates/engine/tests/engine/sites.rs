//! Several nodes in one process that run parts of one job, with an in-memory replacement of the
//! network.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use ardea_core::{
    Chunk, ChunkCodec, Dag, EdgeEndpoint, EdgeId, Epoch, Inbox, InstanceContext, Marker, Ordinal,
    Outbox, OutboxRuntime, Processor, Progress, Result, SourceControl, Waker, Watermark,
};
use ardea_engine::{
    Deployment, JobConfig, JobStatus, Layout, Node, NodeConfig, Placement, RemoteEdges, Site,
    StartMode, chains,
};

use crate::processors::{config, until};

/// A codec for edges between sites; chunks are passed unencoded.
pub struct AnyWhere;

impl ChunkCodec for AnyWhere {
    fn encode(&self, _: &mut Chunk, _: usize, _: &mut Vec<u8>) -> Result<usize> {
        unreachable!("chunks travel as they are")
    }

    fn decode(&self, _: usize, _: &[u8], _: &mut Chunk) -> Result<()> {
        unreachable!("chunks travel as they are")
    }
}

/// A message between two sites.
#[derive(Debug)]
enum Frame {
    Records(u32, Chunk),
    Marker(Marker),
    Left(u32),
    /// Start of the stream after the sending site has restarted: earlier frames are void.
    Begin,
}

/// The frames of one edge from one site to another, with at most one writer and one reader.
#[derive(Default)]
struct Stream {
    frames: VecDeque<Frame>,
    writer: Option<Waker>,
    reader: Option<Waker>,
    /// True if the receiving site has restarted, and needs the watermark again.
    has_new_reader: bool,
    /// True if the sending site has restarted.
    has_new_writer: bool,
}

const MOST_FRAMES: usize = 3;

impl Stream {
    fn push(&mut self, frame: Frame) {
        self.frames.push_back(frame);
        if let Some(reader) = &self.reader {
            reader.wake();
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        if let Some(writer) = &self.writer {
            writer.wake();
        }
        Some(frame)
    }
}

type Streams = HashMap<(EdgeId, Site, Site), Arc<Mutex<Stream>>>;

/// All streams between all sites.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<Streams>>);

impl Network {
    fn stream(&self, edge: EdgeId, from: Site, to: Site) -> Arc<Mutex<Stream>> {
        let mut streams = self.0.lock().unwrap();
        Arc::clone(streams.entry((edge, from, to)).or_default())
    }
}

/// The network from the view of one site.
struct Port {
    network: Network,
    here: Site,
}

impl RemoteEdges for Port {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>> {
        Ok(Box::new(Sender {
            stream: self.network.stream(edge, self.here, to),
            time: None,
            is_done: false,
        }))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>> {
        Ok(Box::new(Receiver {
            stream: self.network.stream(edge, from, self.here),
            held: None,
            is_done: false,
        }))
    }
}

struct Sender {
    stream: Arc<Mutex<Stream>>,
    time: Option<Watermark>,
    is_done: bool,
}

impl Sender {
    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap()
    }

    /// Repeats the watermark to a restarted receiver.
    fn greet(&mut self) {
        let mut stream = self.stream.lock().unwrap();
        if std::mem::take(&mut stream.has_new_reader) {
            for time in [Some(Watermark::NONE), self.time].into_iter().flatten() {
                stream.push(Frame::Marker(Marker::Watermark(time)));
            }
            self.is_done = false;
        }
    }

    fn try_send(&mut self, frame: Frame) -> Progress {
        self.greet();
        let mut stream = self.stream();
        if stream.frames.len() >= MOST_FRAMES {
            return Progress::NONE;
        }
        stream.push(frame);
        drop(stream);
        // Data after an end starts a new stream, which must be ended as well.
        self.is_done = false;
        Progress::DONE
    }
}

impl Processor for Sender {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let mut stream = self.stream();
        let before = stream.writer.replace(context.waker.clone());
        assert!(before.is_none(), "a stream has one writer");
        if std::mem::take(&mut stream.has_new_writer) {
            stream.push(Frame::Begin);
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        self.greet();
        let mut stream = self.stream.lock().unwrap();
        if stream.frames.len() < MOST_FRAMES {
            let mut chunk = Chunk::default();
            inbox.swap(&mut chunk);
            stream.push(Frame::Records(u32::from(input.0), chunk));
            self.is_done = false;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, _: &mut Outbox) -> Result<Progress> {
        self.time = Some(watermark);
        Ok(self.try_send(Frame::Marker(Marker::Watermark(watermark))))
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        Ok(self.try_send(Frame::Marker(Marker::Barrier(epoch))))
    }

    fn on_edge_done(&mut self, input: Ordinal, _: &mut Outbox) -> Result<Progress> {
        Ok(self.try_send(Frame::Left(u32::from(input.0))))
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.greet();
        if !self.is_done && self.try_send(Frame::Marker(Marker::Done)).done {
            self.is_done = true;
        }
        Ok(Progress::NONE)
    }

    fn close(&mut self) {
        self.stream().writer = None;
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }

    fn edge_endpoint(&mut self) -> Option<&mut dyn EdgeEndpoint> {
        Some(self)
    }
}

impl SourceControl for Sender {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = self.complete(outbox)?;
        Ok(Progress {
            made: self.is_done,
            done: self.is_done,
        })
    }
}

impl EdgeEndpoint for Sender {
    fn on_idle(&mut self) -> bool {
        self.is_done = false;
        self.stream().push(Frame::Marker(Marker::Idle));
        false
    }
}

struct Receiver {
    stream: Arc<Mutex<Stream>>,
    held: Option<Frame>,
    is_done: bool,
}

impl Receiver {
    /// Returns false if there is no room for the frame yet.
    fn give_out(&mut self, frame: Frame, outbox: &mut Outbox) -> Result<bool> {
        match frame {
            Frame::Records(target, mut chunk) => {
                let lane = Ordinal(target as u16);
                if lane.index() >= outbox.lanes() {
                    outbox.count_misrouted(chunk.len());
                    return Ok(true);
                }
                if !outbox.offer_chunk(lane, &mut chunk)? {
                    self.held = Some(Frame::Records(target, chunk));
                    return Ok(false);
                }
                self.is_done = false;
            }
            Frame::Marker(marker) => {
                outbox.marker(marker);
                self.is_done = marker == Marker::Done;
            }
            Frame::Left(target) if (target as usize) < outbox.lanes() => {
                outbox.signal_producers_left(Ordinal(target as u16))?;
            }
            Frame::Left(_) => {}
            Frame::Begin => {
                self.is_done = false;
                outbox.signal_restart();
            }
        }
        Ok(true)
    }
}

impl Processor for Receiver {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let mut stream = self.stream.lock().unwrap();
        let before = stream.reader.replace(context.waker.clone());
        assert!(before.is_none(), "a stream has one reader");
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let frame = self.held.take();
        let frame = frame.or_else(|| self.stream.lock().unwrap().pop());
        let moved = frame.map_or(Ok(false), |frame| self.give_out(frame, outbox))?;
        Ok(Progress {
            made: moved,
            done: false,
        })
    }

    fn close(&mut self) {
        self.stream.lock().unwrap().reader = None;
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for Receiver {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.complete(outbox)?;
        Ok(Progress {
            done: self.is_done && !progress.made,
            ..progress
        })
    }
}

/// Several sites, each with its own node.
pub struct Sites {
    network: Network,
    pub nodes: Vec<Node>,
    pub parts: Vec<Deployment>,
    /// True if no site was restarted, so that no record may be lost.
    are_whole: bool,
}

impl Sites {
    pub fn new(sites: u32, threads: u32) -> Self {
        Sites::with(sites, &config(threads))
    }

    pub fn with(sites: u32, config: &NodeConfig) -> Self {
        let nodes = (0..sites).map(|_| Node::start(config.clone()).unwrap());
        Sites {
            network: Network::default(),
            nodes: nodes.collect(),
            parts: Vec::new(),
            are_whole: true,
        }
    }

    pub fn crossings(&self, site: usize) -> Arc<dyn RemoteEdges> {
        Arc::new(Port {
            network: self.network.clone(),
            here: Site(site as u32),
        })
    }

    /// Stops a site, as if its process were killed, and starts this layout there.
    pub fn replace(&mut self, site: usize, dag: &Dag, layout: impl Into<Layout>) {
        self.are_whole = false;
        self.parts[site].end();
        until("all of it is gone", || self.nodes[site].tasklets() == 0);
        for ((_, from, to), stream) in self.network.0.lock().unwrap().iter() {
            let mut stream = stream.lock().unwrap();
            stream.has_new_writer |= *from == Site(site as u32);
            if *to == Site(site as u32) {
                stream.frames.clear();
                stream.has_new_reader = true;
                if let Some(writer) = &stream.writer {
                    writer.wake();
                }
            }
        }
        let config = JobConfig::named("spread");
        let crossings = self.crossings(site);
        let node = &self.nodes[site];
        self.parts[site] = node
            .deploy(dag, config, layout, crossings, StartMode::Running)
            .unwrap();
    }

    /// Starts a job with this placement: by vertex and instance.
    pub fn deploy(&mut self, dag: &Dag, places: &[Vec<u32>]) {
        for (site, node) in self.nodes.iter().enumerate() {
            let part = node.deploy(
                dag,
                JobConfig::named("spread"),
                placement(site, places),
                self.crossings(site),
                StartMode::Paused,
            );
            self.parts.push(part.unwrap());
        }
        self.parts.iter().for_each(Deployment::resume);
    }

    /// Waits until all instances have ended, and then ends the rest.
    pub fn complete(&mut self) {
        for (site, part) in self.parts.iter().enumerate() {
            until("all instances have ended", || part.status().is_over());
            let status = part.status();
            assert!(
                matches!(status, JobStatus::Completed),
                "site {site}: {status}"
            );
            assert!(part.misrouted() == 0 || !self.are_whole);
        }
        self.parts.clear();
        for node in &self.nodes {
            until("all is gone", || node.tasklets() == 0);
        }
    }
}

/// Returns the placement from the view of one site.
pub fn placement(here: usize, places: &[Vec<u32>]) -> Placement {
    let sites = places
        .iter()
        .map(|sites| sites.iter().copied().map(Site).collect());
    Placement::new(Site(here as u32), sites.collect())
}

/// Places instances by `choose`, respecting chains.
pub fn place(dag: &Dag, counts: &[u32], mut choose: impl FnMut() -> u32) -> Vec<Vec<u32>> {
    let mut places = vec![Vec::new(); counts.len()];
    for chain in chains(dag).unwrap() {
        let sites: Vec<u32> = (0..counts[chain[0].index()]).map(|_| choose()).collect();
        for vertex in chain {
            places[vertex.index()] = sites.clone();
        }
    }
    places
}
