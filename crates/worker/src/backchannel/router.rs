//! Routing of side-channel messages as instances are placed and moved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{
    Backchannel, ChunkCodec, Dag, MessageReport, Parallelism, Processor, Result, Vertex, VertexId,
};
use ardea_engine::{JobConfig, JobHandle, Node, Placement, Site};

use super::messages::{Address, BackchannelCodec};
use super::receiver::BackchannelReceiverP;
use super::sender::{BackchannelSenderP, MailboxSet, RemoteQueue};
use crate::remote_edges::WorkerRemoteEdges;

/// The stream number of side-channel messages, greater than the stream numbers of all edges.
const BACKCHANNEL_STREAM: usize = u32::MAX as usize;

/// Transports the messages of all side channels of a job between this container and all others.
pub(crate) struct BackchannelRouter {
    channels: Arc<[Arc<dyn Backchannel>]>,
    crossings: Arc<WorkerRemoteEdges>,
    name: String,
    places: BTreeMap<QueueAddress, Site>,
    parallelism: BTreeMap<VertexId, u32>,
    routes: BTreeMap<Site, PeerRoute>,
    lost: Arc<AtomicU64>,
}

/// The destination of a message: side channel, index of the vertex in the channel, and instance.
type QueueAddress = (u32, u32, u32);

/// The route to one other container.
struct PeerRoute {
    round: Arc<MailboxSet>,
    mailboxes: BTreeMap<QueueAddress, Arc<RemoteQueue>>,
    job: JobHandle,
}

impl BackchannelRouter {
    /// Creates the router for the side channels of a job.
    pub(crate) fn new(
        name: &str,
        channels: Vec<Arc<dyn Backchannel>>,
        crossings: Arc<WorkerRemoteEdges>,
    ) -> Self {
        BackchannelRouter {
            channels: channels.into(),
            crossings,
            name: name.to_owned(),
            places: BTreeMap::new(),
            parallelism: BTreeMap::new(),
            routes: BTreeMap::new(),
            lost: Arc::default(),
        }
    }

    /// Applies a new placement of instances.
    ///
    /// # Errors
    /// If the engine's node has no capacity for the tasklets of a further route.
    pub(crate) fn place(
        &mut self,
        placement: &Placement,
        sites: &BTreeSet<Site>,
        node: &Node,
    ) -> Result<()> {
        if self.channels.is_empty() {
            return Ok(());
        }
        self.open_routes(placement.here(), sites, node)?;
        let channels = Arc::clone(&self.channels);
        let mut places = BTreeMap::new();
        for (channel, number) in channels.iter().zip(0_u32..) {
            for (vertex, at) in channel.vertices().iter().zip(0_u32..) {
                let parallelism = placement.parallelism(*vertex);
                if self.parallelism.insert(*vertex, parallelism) != Some(parallelism) {
                    channel.rescaled(*vertex, parallelism);
                }
                for instance in 0..parallelism {
                    if let Some(site) = placement.site(*vertex, instance) {
                        places.insert((number, at, instance), site);
                    }
                }
            }
        }
        for (mailbox, site) in &places {
            if self.places.get(mailbox) != Some(site) {
                self.moved(*mailbox, *site);
            }
        }
        let gone: Vec<QueueAddress> = self
            .places
            .keys()
            .filter(|mailbox| !places.contains_key(mailbox))
            .copied()
            .collect();
        for mailbox in gone {
            self.leave(mailbox);
        }
        self.places = places;
        self.routes.values().for_each(PeerRoute::publish);
        Ok(())
    }

    /// Notifies the channels that a container has been lost with the messages in transit.
    pub(crate) fn process_lost(&self) {
        self.channels.iter().for_each(|it| it.process_lost());
    }

    /// Notifies the channels that an instance of this container has been lost.
    pub(crate) fn instance_lost(&self, vertex: VertexId) {
        self.channels.iter().for_each(|it| it.instance_lost(vertex));
    }

    /// Returns the side-channel message statistics of instances that run or have run in this
    /// process.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let channels = self.channels.iter();
        channels.flat_map(|channel| channel.messages()).collect()
    }

    /// Returns the number of received messages that could not be delivered.
    pub(crate) fn lost_messages(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Opens routes to new containers and closes those to removed ones.
    fn open_routes(&mut self, here: Site, sites: &BTreeSet<Site>, node: &Node) -> Result<()> {
        self.routes.retain(|site, way| {
            let stays = sites.contains(site);
            if !stays {
                way.job.cancel();
            }
            stays
        });
        for site in sites.iter().filter(|site| **site != here) {
            if !self.routes.contains_key(site) {
                let round = Arc::new(MailboxSet::default());
                let way = PeerRoute {
                    job: self.start(*site, &round, node)?,
                    round,
                    mailboxes: BTreeMap::new(),
                };
                self.routes.insert(*site, way);
            }
        }
        Ok(())
    }

    /// Applies the move of an instance's mailbox to the container `to`.
    fn moved(&mut self, mailbox: QueueAddress, to: Site) {
        self.leave(mailbox);
        let (number, at, instance) = mailbox;
        let channel = Arc::clone(&self.channels[number as usize]);
        let vertex = channel.vertices()[at as usize];
        let Some(way) = self.routes.get_mut(&to) else {
            // The instance is now local.
            channel.stop_forwarding(vertex, instance);
            return;
        };
        let address = Address {
            channel: number,
            vertex: at,
            instance,
        };
        let far = Arc::new(RemoteQueue::new(channel, vertex, address, &way.round));
        far.register();
        way.mailboxes.insert(mailbox, far);
    }

    fn leave(&mut self, mailbox: QueueAddress) {
        let site = self.places.get(&mailbox);
        if let Some(way) = site.and_then(|site| self.routes.get_mut(site)) {
            way.mailboxes.remove(&mailbox);
        }
    }

    /// Starts the tasklets of a route.
    fn start(&self, to: Site, round: &Arc<MailboxSet>, node: &Node) -> Result<JobHandle> {
        let stream = BACKCHANNEL_STREAM;
        let codec: Arc<dyn ChunkCodec> = Arc::new(BackchannelCodec);
        let out = self.crossings.sending(stream, to, &codec);
        let back = self.crossings.receiving(stream, to, &codec);
        let round = Arc::clone(round);
        let (channels, lost) = (Arc::clone(&self.channels), Arc::clone(&self.lost));
        let mut dag = Dag::new();
        let carrier = move |_| -> Result<Box<dyn Processor>> {
            Ok(Box::new(BackchannelSenderP::new(
                Arc::clone(&round),
                Arc::clone(&out),
            )))
        };
        let deliverer = move |_| -> Result<Box<dyn Processor>> {
            Ok(Box::new(BackchannelReceiverP::new(
                Arc::clone(&channels),
                Arc::clone(&back),
                Arc::clone(&lost),
            )))
        };
        let one = Parallelism::ONE;
        dag.vertex(
            Vertex::new(format!("mail to container {}", to.0), Arc::new(carrier)).parallelism(one),
        );
        dag.vertex(
            Vertex::new(format!("mail from container {}", to.0), Arc::new(deliverer))
                .parallelism(one),
        );
        node.submit(&dag, JobConfig::named(format!("{}: mail", self.name)))
    }
}

impl PeerRoute {
    fn publish(&self) {
        self.round.set(self.mailboxes.values().cloned().collect());
    }
}

impl Drop for BackchannelRouter {
    fn drop(&mut self) {
        self.routes.values().for_each(|way| way.job.cancel());
    }
}
