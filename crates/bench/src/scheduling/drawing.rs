//! A chart of tuned group sizes.

use super::tuning::Trace;
use crate::chart::{Axis, Chart, Scale, Series};

/// Returns the chart of the size of groups by their number, with a line for each trace. The group
/// whose coordination takes longer is circled.
pub(super) fn chart(traces: &[Trace]) -> Chart {
    let series = traces.iter().map(|trace| Series {
        name: trace.name(),
        points: (1..)
            .zip(&trace.steps)
            .map(|(group, step)| (f64::from(group), f64::from(step.size)))
            .collect(),
        circled: trace.stalled,
    });
    Chart {
        title: "Sizes of tuned groups".into(),
        x: Axis::new("group", Scale::Linear),
        y: Axis::new("size", Scale::Log(2.0)),
        names: Vec::new(),
        marks: Vec::new(),
        series: series.collect(),
    }
}
