//! From a packing plan, which has names, to what the engine places, which has numbers.

use std::collections::{BTreeSet, HashMap};

use ardea_coordination::packing::{ContainerId, InstanceId, PackingPlan};
use ardea_core::{Dag, Error, ErrorCode, Result, VertexId};
use ardea_engine::{InstanceAt, Parallelisms, Placement, Site};

/// The vertices of a graph by name, and the other way round.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    ids: HashMap<String, VertexId>,
    count: usize,
}

impl Names {
    pub(crate) fn of(dag: &Dag) -> Result<Self> {
        let ids = dag.topological_order()?.into_iter();
        Ok(Names {
            ids: ids.map(|id| (dag.get(id).name().to_string(), id)).collect(),
            count: dag.vertices().len(),
        })
    }

    /// The vertex of this name.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the program has none.
    pub(crate) fn vertex(&self, name: &str) -> Result<VertexId> {
        self.ids.get(name).copied().ok_or_else(|| unknown(name))
    }

    /// The vertices.
    pub(crate) fn vertices(&self) -> impl Iterator<Item = VertexId> + '_ {
        self.ids.values().copied()
    }

    /// How many vertices there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All instances in one place but one, which is at another, from where it is seen.
    pub(crate) fn around(
        &self,
        own: InstanceAt,
        (here, elsewhere): (Site, Site),
        parallelisms: &Parallelisms,
    ) -> Placement {
        let mut sites = vec![Vec::new(); self.count];
        for (name, id) in &self.ids {
            let count = parallelisms.get(name).copied().unwrap_or(1);
            sites[id.index()] = vec![elsewhere; count as usize];
        }
        if let Some(own) = sites[own.0.index()].get_mut(own.1 as usize) {
            *own = here;
        }
        Placement::new(here, sites)
    }

    /// The vertex and the number of an instance.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the program has no such vertex.
    pub(crate) fn instance(&self, id: &InstanceId) -> Result<(VertexId, u32)> {
        Ok((self.vertex(id.vertex.as_str())?, id.index))
    }

    /// Where the instances are by this plan, as seen from `here`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if plan and program speak of different vertices.
    pub(crate) fn placement(&self, plan: &PackingPlan, here: ContainerId) -> Result<Placement> {
        let mut sites: Vec<Vec<Site>> = vec![Vec::new(); self.count];
        for vertex in &plan.demand().vertices {
            let id = self.ids.get(vertex.name.as_str());
            let id = id.ok_or_else(|| unknown(vertex.name.as_str()))?;
            sites[id.index()] = vec![Site(here.0); vertex.parallelism as usize];
        }
        for container in plan.containers() {
            for instance in &container.instances {
                let (vertex, index) = self.instance(instance)?;
                if let Some(site) = sites[vertex.index()].get_mut(index as usize) {
                    *site = Site(container.id.0);
                }
            }
        }
        let unplaced = self.ids.iter().find(|(_, id)| sites[id.index()].is_empty());
        if let Some((name, _)) = unplaced {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                format!("the job's plan does not place the vertex {name:?} of its program"),
            )
            .hint("submit the job again with the program that it runs"));
        }
        Ok(Placement::new(Site(here.0), sites))
    }
}

/// The containers of a plan.
pub(crate) fn sites(plan: &PackingPlan) -> BTreeSet<Site> {
    let containers = plan.containers().iter();
    containers.map(|container| Site(container.id.0)).collect()
}

/// How many instances each vertex has by this plan.
pub(crate) fn parallelisms(plan: &PackingPlan) -> Parallelisms {
    let vertices = plan.demand().vertices.into_iter();
    vertices
        .map(|vertex| (vertex.name.to_string(), vertex.parallelism))
        .collect()
}

fn unknown(vertex: &str) -> Error {
    Error::new(
        ErrorCode::InvalidJob,
        format!("the job's plan places the vertex {vertex:?}, which its program hasn't"),
    )
    .hint("submit the job again with the program that it runs")
}
