//! For how long inputs that were ahead at the ends of epochs were held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_engine::InstanceReport;

/// For how long the instances of a process have held inputs, from one look to the next.
#[derive(Debug, Default)]
pub struct Alignment {
    /// By vertex and instance, since it began.
    seen: BTreeMap<(Arc<str>, u32), Duration>,
}

impl Alignment {
    /// By vertex, how long the slowest of these instances has held inputs since this was asked last.
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
