//! What of a job's graph its watchers need: the vertices in the order of the records, and which are the ends.

use std::sync::Arc;

use ardea_core::{Dag, Result, Timestamp};
use ardea_engine::InstanceReport;

/// The vertices of a job.
pub struct Shape {
    /// Producers before consumers.
    pub vertices: Vec<VertexShape>,
}

/// One vertex, as its place in the graph makes it.
pub struct VertexShape {
    /// Its name.
    pub name: Arc<str>,
    /// Whether records start here.
    pub is_source: bool,
    /// Whether records end here.
    pub is_sink: bool,
}

/// Sums over a whole job at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Records that the sources have emitted.
    pub records_in: u64,
    /// Records that the sinks have taken.
    pub records_out: u64,
    /// Records that came too late.
    pub late: u64,
    /// The watermark of the sink that is furthest behind.
    pub watermark: Timestamp,
}

impl Shape {
    /// The shape of `dag`.
    pub fn of(dag: &Dag) -> Result<Self> {
        let vertices = dag.topological_order()?.into_iter().map(|id| VertexShape {
            name: Arc::clone(dag.get(id).name()),
            is_source: dag.inputs(id).is_empty(),
            is_sink: dag.outputs(id).is_empty(),
        });
        Ok(Shape {
            vertices: vertices.collect(),
        })
    }

    /// The names of the vertices that `which` chooses.
    pub fn names(&self, which: impl Fn(&VertexShape) -> bool) -> Vec<&str> {
        self.vertices
            .iter()
            .filter(|vertex| which(vertex))
            .map(|vertex| &*vertex.name)
            .collect()
    }

    /// Sums the counters of all instances.
    pub fn totals(&self, reports: &[InstanceReport]) -> Totals {
        let mut totals = Totals {
            records_in: 0,
            records_out: 0,
            late: 0,
            watermark: Timestamp::MAX,
        };
        for report in reports {
            let Some(vertex) = self
                .vertices
                .iter()
                .find(|vertex| vertex.name == report.vertex)
            else {
                continue;
            };
            let metrics = &report.metrics;
            totals.late += metrics.late;
            if vertex.is_source {
                totals.records_in += metrics.records_out;
            }
            if vertex.is_sink {
                totals.records_out += metrics.records_in;
                totals.watermark = totals.watermark.min(metrics.watermark);
            }
        }
        totals
    }
}
