//! Measurement of barrier alignment times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_engine::InstanceReport;

/// Measurement of the time that the instances of a process block inputs for barrier alignment.
#[derive(Debug, Default)]
pub struct Alignment {
    /// The total times at the last call of [`since_last`](Self::since_last), by vertex and
    /// instance.
    seen: BTreeMap<(Arc<str>, u32), Duration>,
}

impl Alignment {
    /// Returns, for each vertex, the time that its slowest instance blocked inputs since the last
    /// call.
    pub fn since_last(&mut self, reports: Vec<InstanceReport>) -> BTreeMap<String, Duration> {
        let mut slowest: BTreeMap<String, Duration> = BTreeMap::new();
        for report in reports {
            let key = (Arc::clone(&report.vertex), report.instance);
            let now = report.metrics.aligned_for;
            let before = self.seen.insert(key, now).unwrap_or_default();
            let held = slowest.entry(report.vertex.to_string()).or_default();
            *held = now.saturating_sub(before).max(*held);
        }
        slowest
    }
}
