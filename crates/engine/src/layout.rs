//! What one process of a job runs, and where everything else is.

use std::collections::BTreeSet;

use ardea_core::VertexId;

use crate::Placement;

/// One instance of a vertex.
pub type InstanceAt = (VertexId, u32);

/// What a process runs of a job, and where the other instances are: all that it has to know to join them.
///
/// While a job's placement changes there are two: the one by which records are routed, and the next one. From the latter a process
/// knows whom it will hear from, so that nobody takes the end of those that there are for the end of all. Once records are routed by
/// the next one, others may still hold some that were routed by the last one, or that come from instances which are about to end: a
/// process that is started meanwhile has to receive from them as well, or they would hold them for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub(crate) run: BTreeSet<InstanceAt>,
    pub(crate) routes: Placement,
    pub(crate) next: Placement,
    /// Records may be under way that were routed by it.
    pub(crate) last: Placement,
    /// Whether there is one placement, and all that runs here is in it.
    pub(crate) is_steady: bool,
}

impl Layout {
    /// Runs these instances, and routes by `routes`.
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

    /// Says by which placement records will be routed next.
    pub fn towards(mut self, next: Placement) -> Self {
        self.is_steady &= self.routes == next;
        self.next = next;
        self
    }

    /// Says by which placement records were routed that may still be under way.
    pub fn after(mut self, last: Placement) -> Self {
        self.last = last;
        self
    }

    /// All placements that what comes from other processes may have been routed by.
    pub(crate) fn origins(&self) -> [&Placement; 3] {
        [&self.routes, &self.next, &self.last]
    }

    /// Both placements by which records are routed, or will be.
    pub(crate) fn placements(&self) -> [&Placement; 2] {
        [&self.routes, &self.next]
    }
}

/// Runs all that is here.
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
