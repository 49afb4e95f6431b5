//! Several nodes in one process that run parts of one job, with an in-memory replacement of the
//! network.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ardea_core::{
    Chunk, ChunkCodec, Clock, Dag, EdgeId, Guarantee, Marker, Result, Waker, Watermark,
};
use ardea_engine::{
    Deployment, ExecutionMode, JobConfig, JobStatus, Layout, MicroBatchConfig, Node, NodeConfig,
    Placement, ReceiveEnd, RemoteEdges, RemoteItem, SendEnd, Site, StartMode, StreamState, chains,
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
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn SendEnd>> {
        Ok(Box::new(Sender {
            stream: self.network.stream(edge, self.here, to),
            time: None,
            is_done: false,
        }))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn ReceiveEnd>> {
        Ok(Box::new(Receiver {
            stream: self.network.stream(edge, from, self.here),
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

    fn try_send(&mut self, make: impl FnOnce() -> Frame) -> bool {
        self.greet();
        let mut stream = self.stream();
        if stream.frames.len() >= MOST_FRAMES {
            return false;
        }
        stream.push(make());
        drop(stream);
        // Data after an end starts a new stream, which must be ended as well.
        self.is_done = false;
        true
    }
}

impl SendEnd for Sender {
    fn open(&mut self, waker: Waker) {
        let mut stream = self.stream();
        let before = stream.writer.replace(waker);
        assert!(before.is_none(), "a stream has one writer");
        if std::mem::take(&mut stream.has_new_writer) {
            stream.push(Frame::Begin);
        }
    }

    fn send(&mut self, target: u32, chunk: &mut Chunk) -> Result<bool> {
        Ok(self.try_send(|| Frame::Records(target, std::mem::take(chunk))))
    }

    fn mark(&mut self, marker: Marker) -> Result<bool> {
        match marker {
            Marker::Watermark(watermark) => self.time = Some(watermark),
            Marker::Idle => {
                self.is_done = false;
                self.stream().push(Frame::Marker(marker));
                return Ok(true);
            }
            _ => {}
        }
        Ok(self.try_send(|| Frame::Marker(marker)))
    }

    fn leave(&mut self, target: u32) -> Result<bool> {
        Ok(self.try_send(|| Frame::Left(target)))
    }

    fn finish(&mut self) -> Result<bool> {
        self.greet();
        self.is_done = self.is_done || self.try_send(|| Frame::Marker(Marker::Done));
        Ok(self.is_done)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(&mut self) {
        self.stream().writer = None;
    }
}

struct Receiver {
    stream: Arc<Mutex<Stream>>,
    is_done: bool,
}

impl ReceiveEnd for Receiver {
    fn open(&mut self, waker: Waker) {
        let mut stream = self.stream.lock().unwrap();
        let before = stream.reader.replace(waker);
        assert!(before.is_none(), "a stream has one reader");
    }

    fn receive(&mut self, _: Duration, _: usize, chunk: &mut Chunk) -> Result<Option<RemoteItem>> {
        let Some(frame) = self.stream.lock().unwrap().pop() else {
            return Ok(None);
        };
        Ok(Some(match frame {
            Frame::Records(target, records) => {
                *chunk = records;
                self.is_done = false;
                RemoteItem::Records { target }
            }
            Frame::Marker(marker) => {
                self.is_done = marker == Marker::Done;
                RemoteItem::Marker(marker)
            }
            Frame::Left(target) => RemoteItem::ProducersLeft { target },
            Frame::Begin => {
                self.is_done = false;
                RemoteItem::Restarted
            }
        }))
    }

    fn stream_state(&mut self) -> Option<StreamState> {
        Some(StreamState {
            has_begun: true,
            is_disconnected: self.is_done,
            ..StreamState::default()
        })
    }

    fn close(&mut self) {
        self.stream.lock().unwrap().reader = None;
    }
}

/// Several sites, each with its own node.
pub struct Sites {
    network: Network,
    pub nodes: Vec<Node>,
    pub parts: Vec<Deployment>,
    guarantee: Guarantee,
    /// True if no site was restarted, so that no record may be lost.
    are_whole: bool,
}

impl Sites {
    pub fn new(sites: u32, threads: u32) -> Self {
        Sites::with(sites, &config(threads))
    }

    pub fn with(sites: u32, config: &NodeConfig) -> Self {
        Sites::with_clock(sites, config, Clock::system())
    }

    pub fn with_clock(sites: u32, config: &NodeConfig, clock: Clock) -> Self {
        let start = |_| Node::start_with_clock(config.clone(), clock.clone()).unwrap();
        let nodes = (0..sites).map(start);
        Sites {
            network: Network::default(),
            nodes: nodes.collect(),
            parts: Vec::new(),
            guarantee: Guarantee::None,
            are_whole: true,
        }
    }

    /// Creates sites that process micro-batches of this length.
    pub fn in_batches(sites: u32, threads: u32, epoch: Duration) -> Self {
        let micro_batch = MicroBatchConfig {
            epoch,
            records: None,
            ..MicroBatchConfig::default()
        };
        let config = NodeConfig {
            mode: ExecutionMode::MicroBatch,
            micro_batch,
            ..config(threads)
        };
        Sites {
            guarantee: Guarantee::AtLeastOnce,
            ..Sites::with(sites, &config)
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
            let config = JobConfig {
                guarantee: self.guarantee,
                ..JobConfig::named("spread")
            };
            let part = node.deploy(
                dag,
                config,
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
