//! Who carries whose mail, as instances come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{
    ChunkCodec, Dag, MessageReport, Parallelism, Processor, Result, SideChannel, Vertex, VertexId,
};
use ardea_engine::{JobConfig, JobHandle, Node, Placement, Site};

use super::carrier::{CarrierP, FarMailbox, Round};
use super::deliverer::DelivererP;
use super::directory::Directory;
use super::letters::{Address, LettersCodec};
use crate::crossings::WorkerCrossings;

/// The stream of mail: above those of all edges.
const MAIL_STREAM: usize = u32::MAX as usize;

/// Carries the mail of all side channels of a job between this container and all others.
pub(crate) struct PostOffice {
    channels: Arc<[Arc<dyn SideChannel>]>,
    crossings: Arc<WorkerCrossings>,
    name: String,
    places: BTreeMap<Mailbox, Site>,
    parallelism: BTreeMap<VertexId, u32>,
    ways: BTreeMap<Site, Way>,
    directory: Arc<Directory>,
    lost: Arc<AtomicU64>,
}

/// Channel, vertex among the channel's, instance.
type Mailbox = (u32, u32, u32);

/// What leads to one other container.
struct Way {
    round: Arc<Round>,
    boxes: BTreeMap<Mailbox, Arc<FarMailbox>>,
    job: JobHandle,
}

impl PostOffice {
    /// For the side channels of the job of this name.
    pub(crate) fn new(
        name: &str,
        channels: Vec<Arc<dyn SideChannel>>,
        crossings: Arc<WorkerCrossings>,
    ) -> Self {
        PostOffice {
            channels: channels.into(),
            crossings,
            name: name.to_owned(),
            places: BTreeMap::new(),
            parallelism: BTreeMap::new(),
            ways: BTreeMap::new(),
            directory: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// Instances are placed so from now on, in these containers.
    ///
    /// # Errors
    /// If the node has no room for the tasklets of another container's mail.
    pub(crate) fn place(
        &mut self,
        placement: &Placement,
        sites: &BTreeSet<Site>,
        node: &Node,
    ) -> Result<()> {
        if self.channels.is_empty() {
            return Ok(());
        }
        self.open_ways(placement.here(), sites, node)?;
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
        let gone: Vec<Mailbox> = self
            .places
            .keys()
            .filter(|mailbox| !places.contains_key(mailbox))
            .copied()
            .collect();
        for mailbox in gone {
            self.leave(mailbox);
        }
        self.places = places;
        self.ways.values().for_each(Way::publish);
        let far = self.ways.values().flat_map(|way| way.boxes.values());
        self.directory
            .set(far.map(|far| (far.address, Arc::clone(far))).collect());
        Ok(())
    }

    /// A container is gone with whatever was under way there.
    pub(crate) fn process_lost(&self) {
        self.channels.iter().for_each(|it| it.process_lost());
    }

    /// An instance that ran here was lost, or its process, and this container was not.
    pub(crate) fn instance_lost(&self, vertex: VertexId) {
        self.channels.iter().for_each(|it| it.instance_lost(vertex));
    }

    /// What became of the messages of instances that have lived in this process.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let channels = self.channels.iter();
        channels.flat_map(|channel| channel.messages()).collect()
    }

    /// Letters that came and could not be delivered.
    pub(crate) fn lost_letters(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// There is a way to each other container, and none to any that is no part of the job any more.
    fn open_ways(&mut self, here: Site, sites: &BTreeSet<Site>, node: &Node) -> Result<()> {
        self.ways.retain(|site, way| {
            let stays = sites.contains(site);
            if !stays {
                way.job.cancel();
            }
            stays
        });
        for site in sites.iter().filter(|site| **site != here) {
            if !self.ways.contains_key(site) {
                let round = Arc::new(Round::default());
                let way = Way {
                    job: self.start(*site, &round, node)?,
                    round,
                    boxes: BTreeMap::new(),
                };
                self.ways.insert(*site, way);
            }
        }
        Ok(())
    }

    /// An instance is in this container now.
    fn moved(&mut self, mailbox: Mailbox, to: Site) {
        self.leave(mailbox);
        let (number, at, instance) = mailbox;
        let channel = Arc::clone(&self.channels[number as usize]);
        let vertex = channel.vertices()[at as usize];
        let Some(way) = self.ways.get_mut(&to) else {
            // It is here.
            channel.keep(vertex, instance);
            return;
        };
        let address = Address {
            channel: number,
            vertex: at,
            instance,
        };
        let far = Arc::new(FarMailbox::new(channel, vertex, address, &way.round));
        far.be_carried();
        way.boxes.insert(mailbox, far);
    }

    fn leave(&mut self, mailbox: Mailbox) {
        let site = self.places.get(&mailbox);
        if let Some(way) = site.and_then(|site| self.ways.get_mut(site)) {
            way.boxes.remove(&mailbox);
        }
    }

    /// Starts the tasklets of a way.
    fn start(&self, to: Site, round: &Arc<Round>, node: &Node) -> Result<JobHandle> {
        let stream = MAIL_STREAM;
        let codec: Arc<dyn ChunkCodec> = Arc::new(LettersCodec);
        let out = self.crossings.sending(stream, to, &codec);
        let back = self.crossings.receiving(stream, to, &codec);
        let round = Arc::clone(round);
        let (channels, lost) = (Arc::clone(&self.channels), Arc::clone(&self.lost));
        let mut dag = Dag::new();
        let carrier = move |_| -> Result<Box<dyn Processor>> {
            Ok(Box::new(CarrierP::new(
                Arc::clone(&round),
                Arc::clone(&out),
            )))
        };
        let directory = Arc::clone(&self.directory);
        let deliverer = move |_| -> Result<Box<dyn Processor>> {
            Ok(Box::new(DelivererP::new(
                Arc::clone(&channels),
                Arc::clone(&directory),
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

impl Way {
    fn publish(&self) {
        self.round.set(self.boxes.values().cloned().collect());
    }
}

impl Drop for PostOffice {
    fn drop(&mut self) {
        self.ways.values().for_each(|way| way.job.cancel());
    }
}
