//! Conversion of packing plans, which contain vertex names, to placements, which contain vertex
//! ids.

use std::collections::{BTreeSet, HashMap};

use ardea_coordination::packing::{ContainerId, InstanceId, PackingPlan};
use ardea_core::{Dag, Error, ErrorCode, Result, VertexId};
use ardea_engine::{Parallelisms, Placement, Site};

/// The ids of a graph's vertices by name.
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

    /// Returns the id of the vertex of this name.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the program has no vertex of this name.
    pub(crate) fn vertex(&self, name: &str) -> Result<VertexId> {
        self.ids.get(name).copied().ok_or_else(|| unknown(name))
    }

    /// Returns the vertex and the index of an instance.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the program has no such vertex.
    pub(crate) fn instance(&self, id: &InstanceId) -> Result<(VertexId, u32)> {
        Ok((self.vertex(id.vertex.as_str())?, id.index))
    }

    /// Returns the placement of the instances by this plan, for the container `here`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if plan and program have different vertices.
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

/// Returns the containers of a plan.
pub(crate) fn sites(plan: &PackingPlan) -> BTreeSet<Site> {
    let containers = plan.containers().iter();
    containers.map(|container| Site(container.id.0)).collect()
}

/// Returns the parallelism of each vertex by this plan.
pub(crate) fn parallelisms(plan: &PackingPlan) -> Parallelisms {
    let vertices = plan.demand().vertices.into_iter();
    vertices
        .map(|vertex| (vertex.name.to_string(), vertex.parallelism))
        .collect()
}

fn unknown(vertex: &str) -> Error {
    Error::new(
        ErrorCode::InvalidJob,
        format!("the job's plan places the vertex {vertex:?}, which its program does not have"),
    )
    .hint("submit the job again with the program that it runs")
}
