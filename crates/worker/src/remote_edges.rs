//! The endpoints of all edges to and from other containers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_coordination::control::{Generation, RestoredWorker};
use ardea_core::{ChunkCodec, Dag, Edge, EdgeId, Error, ErrorCode, Result};
use ardea_engine::{ReceiveEnd, RemoteEdges, SendEnd, Site, SourceLog};
use ardea_network::exchange::{
    End, ReceiverConfig, RetainedOutput, SenderConfig, StreamCounts, StreamId, StreamReceiver,
    StreamSender, StreamSenderConfig,
};

use crate::attempt_recovery::AttemptRecovery;
use crate::endpoint_slot::EndpointSlot;
use crate::network::Network;
use crate::receiver::RemoteReceiver;
use crate::sender::RemoteSender;
use crate::traffic::{Arrivals, Traffic};

/// The job number in stream ids. It is constant, because a connection carries the streams of a
/// single job.
const JOB: u32 = 1;

/// The endpoint slots of one kind, by stream and peer.
type EndpointSlots<E> = Mutex<HashMap<(usize, Site), Arc<EndpointSlot<E>>>>;

/// The configuration of streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamConfig {
    pub(crate) sender: SenderConfig,
    pub(crate) receiver: ReceiverConfig,
    /// The execution attempt of the streams, if the job has a processing guarantee. Streams of
    /// different attempts have different ids, so data of one attempt is never received in another.
    /// A stream that has lost records within an attempt sends nothing more.
    pub(crate) life: Option<Generation>,
}

impl StreamConfig {
    fn stream(&self, stream: usize) -> StreamId {
        // Attempts count from one and never wrap around within a connection.
        let life = self.life.map_or(0, |life| life.0 as u32);
        StreamId::new(JOB.wrapping_add(life), stream as u32)
    }
}

/// The [`RemoteEdges`] of a container. An endpoint is created for each edge and other container on
/// first use, and stays until the process ends.
pub(crate) struct WorkerRemoteEdges {
    network: Network,
    edges: Vec<Known>,
    config: StreamConfig,
    /// The number of records sent over lost connections and not acknowledged.
    lost: Arc<AtomicU64>,
    senders: EndpointSlots<StreamSender>,
    receivers: EndpointSlots<StreamReceiver>,
    traffic: Arc<Traffic>,
    /// The workers that may be restored alone.
    recovery: AttemptRecovery,
}

/// An edge of the graph.
struct Known {
    /// The codec of the edge, if it has one.
    codec: Option<Arc<dyn ChunkCodec>>,
    from: Arc<str>,
    to: Arc<str>,
}

impl WorkerRemoteEdges {
    /// Returns the remote edges of this graph.
    pub(crate) fn new(dag: &Dag, network: Network, config: StreamConfig) -> Self {
        let name = |vertex| dag.get(vertex).name();
        let edges = dag.edges().iter().map(|edge| {
            let codec = edge.wanted_codec().cloned();
            Known {
                codec,
                from: Arc::clone(name(edge.source().0)),
                to: Arc::clone(name(edge.target().0)),
            }
        });
        // All edges share the network thread.
        if let Some(least) = least_latency(dag) {
            network.limit_latency(least);
        }
        WorkerRemoteEdges {
            edges: edges.collect(),
            network,
            config,
            lost: Arc::default(),
            senders: Mutex::default(),
            receivers: Mutex::default(),
            traffic: Arc::default(),
            recovery: AttemptRecovery::default(),
        }
    }

    /// Sets the workers that may be restored alone.
    pub(crate) fn with_recovery(mut self, recovery: AttemptRecovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// Returns the recovery of single workers in this attempt.
    pub(crate) fn recovery(&self) -> &AttemptRecovery {
        &self.recovery
    }

    /// Handles the recovery of single workers: kept output is sent to their new processes.
    pub(crate) fn workers_restarted(&self, restarted: &[RestoredWorker]) {
        for worker in restarted {
            if self.recovery.restarted(worker) {
                let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
                let site = Site(worker.worker.container.0);
                let slots = senders.iter().filter(|((_, to), _)| *to == site);
                slots.for_each(|(_, slot)| slot.wake());
            }
        }
    }

    /// Returns the byte counters of the edges.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the number of records sent over lost connections and not acknowledged.
    pub(crate) fn lost_records(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn codec(&self, edge: usize) -> Result<&Arc<dyn ChunkCodec>> {
        let known = self.edges.get(edge);
        let codec = known.and_then(|known| known.codec.as_ref());
        codec.ok_or_else(|| {
            let which = known.map_or_else(
                || "another graph".to_string(),
                |Known { from, to, .. }| format!("{from:?} to {to:?}"),
            );
            Error::new(
                ErrorCode::InvalidJob,
                format!("the edge from {which} can't lead to another container: it has no codec"),
            )
            .hint("give its records a type that can be serialised, or join its vertices by a forward edge")
        })
    }

    /// Returns the sending endpoint of a stream to `to`. The first call creates the endpoint.
    pub(crate) fn sending(
        &self,
        stream: usize,
        to: Site,
        codec: &Arc<dyn ChunkCodec>,
    ) -> Arc<EndpointSlot<StreamSender>> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let berth = senders.entry((stream, to)).or_insert_with(|| {
            let id = self.config.stream(stream);
            let slot = self.network.port_slot(to, End::Sender, id);
            let config = StreamSenderConfig {
                sender: self.config.sender,
                fails_on_loss: self.config.life.is_some(),
            };
            let counts = StreamCounts {
                lost: Arc::clone(&self.lost),
                bytes: self.bytes(stream),
            };
            let end = StreamSender::new(slot, Arc::clone(codec), config, counts);
            let end = match self.recovery.keeping_for(to) {
                Some((keeping, from)) => end.keeping(RetainedOutput::new(keeping, from)),
                None => end,
            };
            EndpointSlot::new(end, self.network.clone())
        });
        Arc::clone(berth)
    }

    /// Returns the byte counter of a stream. Only edges are counted, not streams of side channels.
    fn bytes(&self, stream: usize) -> Arc<AtomicU64> {
        let edge = self.edges.get(stream);
        edge.map_or_else(Arc::default, |edge| {
            self.traffic.sending(&edge.from, &edge.to)
        })
    }

    /// Returns the receiving endpoint of a stream from `from`. The first call creates the endpoint.
    pub(crate) fn receiving(
        &self,
        stream: usize,
        from: Site,
        codec: &Arc<dyn ChunkCodec>,
    ) -> Arc<EndpointSlot<StreamReceiver>> {
        let receivers = self.receivers.lock();
        let mut receivers = receivers.unwrap_or_else(PoisonError::into_inner);
        let berth = receivers.entry((stream, from)).or_insert_with(|| {
            let id = self.config.stream(stream);
            let slot = self.network.port_slot(from, End::Receiver, id);
            let end = StreamReceiver::new(slot, Arc::clone(codec), self.config.receiver);
            EndpointSlot::new(end, self.network.clone())
        });
        Arc::clone(berth)
    }
}

/// Returns the least of the latency budgets that edges of the graph have of their own.
fn least_latency(dag: &Dag) -> Option<Duration> {
    let remote = dag
        .edges()
        .iter()
        .filter(|edge| edge.wanted_codec().is_some());
    remote.filter_map(Edge::wanted_latency).min()
}

impl RemoteEdges for WorkerRemoteEdges {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn SendEnd>> {
        let codec = self.codec(edge.index())?;
        let berth = self.sending(edge.index(), to, codec);
        let sender = RemoteSender::new(berth);
        Ok(Box::new(sender.with_log(self.recovery.source_log())))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn ReceiveEnd>> {
        let codec = self.codec(edge.index())?;
        let berth = self.receiving(edge.index(), from, codec);
        let vertex = Arc::clone(&self.edges[edge.index()].to);
        let arrivals = Arrivals::new(Arc::clone(&self.traffic), vertex);
        let receiver = RemoteReceiver::new(berth, arrivals);
        Ok(Box::new(match self.recovery.covers(from) {
            true => receiver.by_whole_batches(self.recovery.repeated()),
            false => receiver,
        }))
    }

    fn source_log(&self) -> Option<Arc<SourceLog>> {
        self.recovery.source_log().cloned()
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::{Ordinal, Processor, Vertex, supplier};

    use super::*;
    use crate::backchannel::BackchannelCodec;

    struct Nothing;
    impl Processor for Nothing {}

    #[test]
    fn the_network_gathers_by_the_least_budget_of_the_edges_that_may_leave_the_process() {
        let mut dag = Dag::new();
        let nothing = |name: &str| Vertex::new(name.to_string(), supplier(|| Nothing));
        let [a, b, c] = ["a", "b", "c"].map(|name| dag.vertex(nothing(name)));
        let local = Edge::between(a, b).latency(Duration::ZERO);
        dag.edge(local);
        dag.edge(Edge::between(b, c).codec(Arc::new(BackchannelCodec)));
        assert_eq!(least_latency(&dag), None);
        for (output, millis) in [(1, 9), (2, 7)] {
            let edge = Edge::from_ordinals((a, Ordinal(output)), (c, Ordinal(output)));
            let edge = edge.latency(Duration::from_millis(millis));
            dag.edge(edge.codec(Arc::new(BackchannelCodec)));
        }
        assert_eq!(least_latency(&dag), Some(Duration::from_millis(7)));
    }

    #[test]
    fn streams_of_two_lives_are_never_the_same() {
        let lives = [None, Some(Generation(1)), Some(Generation(2))];
        let streams = lives.map(|life| {
            let config = StreamConfig {
                life,
                ..StreamConfig::default()
            };
            config.stream(7)
        });
        assert!(streams[0] != streams[1] && streams[1] != streams[2] && streams[0] != streams[2]);
    }
}
