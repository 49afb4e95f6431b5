//! Which instances of a job are where.

use ardea_core::VertexId;

/// One of the processes that a job is spread over; the number of its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site(pub u32);

/// Where each instance of a job is, as seen from one of its processes. It says how many instances each vertex has, and by it records
/// are routed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    here: Site,
    sites: Vec<Vec<Site>>,
}

impl Placement {
    /// As seen from `here`; `sites` by vertex, in the order of the graph, and by instance.
    pub fn new(here: Site, sites: Vec<Vec<Site>>) -> Self {
        Placement { here, sites }
    }

    /// All of a job in one process, with so many instances of each vertex.
    pub fn of_one(here: Site, parallelism: impl IntoIterator<Item = u32>) -> Self {
        let sites = parallelism.into_iter();
        Placement {
            here,
            sites: sites.map(|count| vec![here; count as usize]).collect(),
        }
    }

    /// The vertices that it speaks of.
    pub(crate) fn vertex_ids(&self) -> impl ExactSizeIterator<Item = VertexId> + use<> {
        (0..self.sites.len()).map(VertexId::of_index)
    }

    /// Where the instances of a vertex are, by instance.
    pub fn sites(&self, vertex: VertexId) -> &[Site] {
        self.sites.get(vertex.index()).map_or(&[], Vec::as_slice)
    }

    /// This process.
    pub fn here(&self) -> Site {
        self.here
    }

    /// How many instances the vertex has, over all processes; zero if there is no such vertex.
    pub fn parallelism(&self, vertex: VertexId) -> u32 {
        self.sites(vertex).len() as u32
    }

    /// Where an instance is.
    pub fn site(&self, vertex: VertexId, instance: u32) -> Option<Site> {
        self.sites(vertex).get(instance as usize).copied()
    }

    /// The instances of a vertex that are at that site.
    pub fn at(&self, vertex: VertexId, site: Site) -> impl Iterator<Item = u32> + '_ {
        self.sites(vertex)
            .iter()
            .zip(0..)
            .filter(move |(at, _)| **at == site)
            .map(|(_, instance)| instance)
    }
}
