//! The instances that one process of a job runs, and the location of all others.

use std::collections::BTreeSet;

use ardea_core::VertexId;

use crate::Placement;

/// One instance of a vertex.
pub type InstanceAt = (VertexId, u32);

/// The instances that a process runs, and the location of the others: everything that the process
/// needs to connect them.
///
/// While a job's placement changes a layout has two placements: the one by which records are
/// routed, and the next one. From the next placement a process knows which producers to expect, so
/// that the end of the present producers is not taken for the end of the stream. After the switch,
/// processes may still hold records routed by the previous placement, or records of instances that
/// are about to end. A process started meanwhile must receive from them as well, or they would hold
/// these records forever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub(crate) run: BTreeSet<InstanceAt>,
    pub(crate) routes: Placement,
    pub(crate) next: Placement,
    /// The previous placement; records routed by it may still be in flight.
    pub(crate) last: Placement,
    /// True if there is one placement and all instances that run here are in it.
    pub(crate) is_steady: bool,
}

impl Layout {
    /// Creates a layout that runs the instances `run` and routes records by `routes`.
    pub fn new(run: impl IntoIterator<Item = InstanceAt>, routes: Placement) -> Self {
        let run: BTreeSet<InstanceAt> = run.into_iter().collect();
        let placed =
            |(vertex, index): &InstanceAt| routes.site(*vertex, *index) == Some(routes.here());
        Layout {
            is_steady: run.iter().all(placed),
            run,
            next: routes.clone(),
            last: routes.clone(),
            routes,
        }
    }

    /// Sets the next placement.
    pub fn towards(mut self, next: Placement) -> Self {
        self.is_steady &= self.routes == next;
        self.next = next;
        self
    }

    /// Sets the previous placement, by which records in flight may have been routed.
    pub fn after(mut self, last: Placement) -> Self {
        self.last = last;
        self
    }

    /// Returns all placements by which records from other processes may have been routed.
    pub(crate) fn origins(&self) -> [&Placement; 3] {
        [&self.routes, &self.next, &self.last]
    }

    /// Returns the placements by which records are routed, or will be.
    pub(crate) fn placements(&self) -> [&Placement; 2] {
        [&self.routes, &self.next]
    }
}

/// Runs all instances that the placement assigns to this process.
impl From<Placement> for Layout {
    fn from(placement: Placement) -> Self {
        let here = placement.here();
        let vertices = placement.vertex_ids();
        let run: Vec<InstanceAt> = vertices
            .flat_map(|vertex| placement.at(vertex, here).map(move |index| (vertex, index)))
            .collect();
        Layout::new(run, placement)
    }
}
