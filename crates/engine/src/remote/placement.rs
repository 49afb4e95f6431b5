//! The distribution of a job's instances over processes.

use ardea_core::VertexId;

/// The id of a process of a job, equal to the number of its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site(pub u32);

/// The process of each instance of a job, from the view of one process. The placement defines the
/// parallelism of the vertices and the routing of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    here: Site,
    sites: Vec<Vec<Site>>,
}

impl Placement {
    /// Creates a placement from the view of `here`; `sites` by vertex in the order of the graph,
    /// and by instance.
    pub fn new(here: Site, sites: Vec<Vec<Site>>) -> Self {
        Placement { here, sites }
    }

    /// Creates a placement of all instances in one process, with the parallelism of each vertex.
    pub fn of_one(here: Site, parallelism: impl IntoIterator<Item = u32>) -> Self {
        let sites = parallelism.into_iter();
        Placement {
            here,
            sites: sites.map(|count| vec![here; count as usize]).collect(),
        }
    }

    /// Returns the ids of all vertices.
    pub(crate) fn vertex_ids(&self) -> impl ExactSizeIterator<Item = VertexId> + use<> {
        (0..self.sites.len()).map(VertexId::of_index)
    }

    /// Returns the processes of a vertex's instances, by instance.
    pub fn sites(&self, vertex: VertexId) -> &[Site] {
        self.sites.get(vertex.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the id of this process.
    pub fn here(&self) -> Site {
        self.here
    }

    /// Returns the parallelism of the vertex over all processes; zero if there is no such vertex.
    pub fn parallelism(&self, vertex: VertexId) -> u32 {
        self.sites(vertex).len() as u32
    }

    /// Returns the process of an instance.
    pub fn site(&self, vertex: VertexId, instance: u32) -> Option<Site> {
        self.sites(vertex).get(instance as usize).copied()
    }

    /// Returns the instances of a vertex in the process `site`.
    pub fn at(&self, vertex: VertexId, site: Site) -> impl Iterator<Item = u32> + '_ {
        self.sites(vertex)
            .iter()
            .zip(0..)
            .filter(move |(at, _)| **at == site)
            .map(|(_, instance)| instance)
    }
}
