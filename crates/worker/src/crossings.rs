//! The ends of all edges that lead to other containers, or come from there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_coordination::control::Generation;
use ardea_core::{ChunkCodec, Dag, EdgeId, Error, ErrorCode, Isolation, Processor, Result};
use ardea_engine::{Crossings, Site};
use ardea_network::exchange::{End, ReceiverConfig, SenderConfig, StreamId};

use crate::berth::Berth;
use crate::instance::{Passing, is_instance};
use crate::network::Network;
use crate::receive_end::ReceiveEnd;
use crate::receiver::ReceiverP;
use crate::send_end::{Counts, SendEnd};
use crate::sender::SenderP;
use crate::station::Station;
use crate::traffic::{Arrivals, Traffic};

/// A connection carries one job: its streams need no number of it, unless it has lives.
const JOB: u32 = 1;

/// The ends of one kind, by stream and peer.
type Berths<E> = Mutex<HashMap<(usize, Site), Arc<Berth<E>>>>;

/// How streams are configured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamConfig {
    pub(crate) sender: SenderConfig,
    pub(crate) receiver: ReceiverConfig,
    /// The life of the job that the streams belong to: what is under way in one is never taken in another, since their streams have other
    /// numbers. And where something was lost on one, nothing more is sent over it.
    pub(crate) life: Option<Generation>,
}

impl StreamConfig {
    fn stream(&self, stream: usize) -> StreamId {
        // Lives count from one, and there will never be so many that two of one connection have the same number.
        let life = self.life.map_or(0, |life| life.0 as u32);
        StreamId::new(JOB.wrapping_add(life), stream as u32)
    }
}

/// The [`Crossings`] of a container: an end for each edge and other container that was ever needed, which stays as long as this process does.
pub(crate) struct WorkerCrossings {
    network: Network,
    edges: Vec<Known>,
    config: StreamConfig,
    /// Records that were sent over connections which are gone, and are not known to have been dealt with.
    lost: Arc<AtomicU64>,
    senders: Berths<SendEnd>,
    receivers: Berths<ReceiveEnd>,
    traffic: Arc<Traffic>,
}

/// What is known of an edge.
struct Known {
    /// If it has one.
    codec: Option<Arc<dyn ChunkCodec>>,
    from: Arc<str>,
    to: Arc<str>,
}

impl WorkerCrossings {
    /// Those of this graph.
    pub(crate) fn new(dag: &Dag, network: Network, config: StreamConfig) -> Self {
        let name = |vertex| dag.get(vertex).name();
        let edges = dag.edges().iter().map(|edge| {
            let codec = edge.wanted_codec().cloned();
            // What comes for an instance's process is for nobody here to decode.
            let is_for_others = dag.get(edge.target().0).wanted_isolation() == Isolation::Process;
            Known {
                codec: match is_for_others {
                    true => codec.map(|codec| Arc::new(Passing(codec)) as Arc<dyn ChunkCodec>),
                    false => codec,
                },
                from: Arc::clone(name(edge.source().0)),
                to: Arc::clone(name(edge.target().0)),
            }
        });
        WorkerCrossings {
            edges: edges.collect(),
            network,
            config,
            lost: Arc::default(),
            senders: Mutex::default(),
            receivers: Mutex::default(),
            traffic: Arc::default(),
        }
    }

    /// What the edges have carried so far.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// How many records were lost with connections so far: sent, and not known to have been dealt with.
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

    /// The sending end of a stream, the same whenever it is asked for.
    pub(crate) fn sending(
        &self,
        stream: usize,
        to: Site,
        codec: &Arc<dyn ChunkCodec>,
    ) -> Arc<Berth<SendEnd>> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let berth = senders.entry((stream, to)).or_insert_with(|| {
            let id = self.config.stream(stream);
            let station = Station::new(to, End::Sender, id);
            let (network, lost) = (self.network.clone(), Arc::clone(&self.lost));
            let (codec, config) = (Arc::clone(codec), self.config);
            let counts = Counts {
                lost,
                bytes: self.bytes(stream, to),
            };
            let end = SendEnd::new(station, codec, config, network.clone(), counts);
            Berth::new(end, network)
        });
        Arc::clone(berth)
    }

    /// Counts what is sent: on edges to other containers, and not what goes to processes of instances, or is mail.
    fn bytes(&self, stream: usize, to: Site) -> Arc<AtomicU64> {
        let edge = self.edges.get(stream).filter(|_| !is_instance(to));
        edge.map_or_else(Arc::default, |edge| {
            self.traffic.sending(&edge.from, &edge.to)
        })
    }

    /// The receiving end of a stream, the same whenever it is asked for.
    pub(crate) fn receiving(
        &self,
        stream: usize,
        from: Site,
        codec: &Arc<dyn ChunkCodec>,
    ) -> Arc<Berth<ReceiveEnd>> {
        let receivers = self.receivers.lock();
        let mut receivers = receivers.unwrap_or_else(PoisonError::into_inner);
        let berth = receivers.entry((stream, from)).or_insert_with(|| {
            let id = self.config.stream(stream);
            let station = Station::new(from, End::Receiver, id);
            let (codec, network) = (Arc::clone(codec), self.network.clone());
            let end = ReceiveEnd::new(station, codec, self.config.receiver, network.clone());
            Berth::new(end, network)
        });
        Arc::clone(berth)
    }
}

impl Crossings for WorkerCrossings {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>> {
        let codec = self.codec(edge.index())?;
        let berth = self.sending(edge.index(), to, codec);
        Ok(Box::new(SenderP::new(berth)))
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>> {
        let codec = self.codec(edge.index())?;
        let berth = self.receiving(edge.index(), from, codec);
        let vertex = Arc::clone(&self.edges[edge.index()].to);
        let arrivals = Arrivals::new(Arc::clone(&self.traffic), vertex);
        Ok(Box::new(ReceiverP::new(berth, arrivals)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
