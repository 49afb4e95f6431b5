//! The measured traffic between the instances of a job.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The measured traffic between the instances of a job. Steps that share a tasklet are left out,
/// since they always run together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TrafficView {
    /// Name of the job.
    pub job: String,
    /// Time of the measurement, in milliseconds since 1970.
    pub at_ms: u64,
    /// Length of the measurement, in milliseconds.
    pub window_ms: u64,
    /// Traffic by edge, over all instances.
    pub edges: Vec<EdgeTraffic>,
    /// The busiest pairs of instances, by descending traffic.
    pub pairs: Vec<PairTraffic>,
    /// Records a second between pairs that are not listed.
    pub other_records_per_s: f64,
    /// Share of the listed traffic that stays in its container, from 0 to 1; missing without
    /// traffic.
    pub inside_containers: Option<f64>,
    /// Share of the listed traffic that stays on its host, from 0 to 1; missing without traffic.
    pub inside_hosts: Option<f64>,
    /// Processor time of each instance.
    pub instances: Vec<InstanceCpu>,
    /// The placement that is better for this traffic, if `placement.mode` has found one.
    #[serde(default)]
    pub proposal: Option<ProposalView>,
}

/// The traffic of an edge.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EdgeTraffic {
    /// Name of the producing vertex.
    pub from: String,
    /// Name of the consuming vertex.
    pub to: String,
    /// Records a second.
    pub records_per_s: f64,
    /// Bytes a second between containers; traffic inside a container is not encoded.
    pub sent_bytes_per_s: f64,
}

/// The traffic of a pair of instances.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairTraffic {
    /// The sending instance, such as `words#0`.
    pub from: String,
    /// The receiving instance.
    pub to: String,
    /// Records a second.
    pub records_per_s: f64,
    /// Bytes a second, estimated from the size of the edge's records between containers; missing
    /// for an edge inside one container.
    pub bytes_per_s: Option<f64>,
    /// Container of the sending instance.
    pub from_container: Option<u32>,
    /// Container of the receiving instance.
    pub to_container: Option<u32>,
    /// True if both instances are on one host, as far as the hosts are known.
    pub is_on_one_host: bool,
}

/// The processor time of an instance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InstanceCpu {
    /// The instance, such as `words#0`.
    pub instance: String,
    /// Processors used.
    pub cpu_cores: f64,
}

/// A better placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProposalView {
    /// Records a second between hosts at present.
    pub between_hosts_before: u64,
    /// Records a second between hosts with the better placement.
    pub between_hosts_after: u64,
    /// Number of instances that would move.
    pub moves: usize,
}

impl TrafficView {
    /// Returns the measured rates in the form of the setting `placement.rates`, for another
    /// submission of the job.
    pub fn rates(&self) -> String {
        let rates = self.edges.iter().map(|edge| {
            let rate = edge.records_per_s.round();
            format!("{}>{}={rate}", edge.from, edge.to)
        });
        rates.collect::<Vec<_>>().join(",")
    }
}

/// Writes edges, pairs, shares and the proposal as text.
impl fmt::Display for TrafficView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        for edge in &self.edges {
            let EdgeTraffic {
                from,
                to,
                records_per_s,
                sent_bytes_per_s,
            } = edge;
            write!(f, "{from} → {to}  {records_per_s:.0} records/s")?;
            writeln!(f, ", {sent_bytes_per_s:.0} B/s between containers")?;
        }
        for pair in &self.pairs {
            let crossing = match (pair.from_container, pair.to_container) {
                (Some(from), Some(to)) if from == to => format!("in container {from}"),
                (Some(from), Some(to)) => format!("container {from} → {to}"),
                _ => "containers not known".to_string(),
            };
            let (from, to) = (&pair.from, &pair.to);
            writeln!(
                f,
                "  {from} → {to}  {:.0} records/s  {crossing}",
                pair.records_per_s
            )?;
        }
        if self.other_records_per_s > 0.0 {
            writeln!(
                f,
                "  other pairs  {:.0} records/s",
                self.other_records_per_s
            )?;
        }
        if let (Some(containers), Some(hosts)) = (self.inside_containers, self.inside_hosts) {
            let (containers, hosts) = (percent(containers), percent(hosts));
            writeln!(f, "inside containers {containers}, inside hosts {hosts}")?;
        }
        if !self.edges.is_empty() {
            writeln!(
                f,
                "for another submission: --set placement.rates={}",
                self.rates()
            )?;
        }
        if let Some(proposal) = &self.proposal {
            writeln!(
                f,
                "better placement: {} instead of {} records/s between hosts, by {} moves",
                proposal.between_hosts_after, proposal.between_hosts_before, proposal.moves
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_text_with_the_rates_for_another_submission() {
        let view = TrafficView {
            edges: vec![EdgeTraffic {
                from: "lines".into(),
                to: "words".into(),
                records_per_s: 20_000.4,
                sent_bytes_per_s: 90_000.0,
            }],
            pairs: vec![PairTraffic {
                from: "lines#0".into(),
                to: "words#1".into(),
                records_per_s: 15_000.0,
                bytes_per_s: Some(60_000.0),
                from_container: Some(1),
                to_container: Some(2),
                is_on_one_host: true,
            }],
            other_records_per_s: 5_000.0,
            inside_containers: Some(0.25),
            inside_hosts: Some(1.0),
            proposal: Some(ProposalView {
                between_hosts_before: 9,
                between_hosts_after: 1,
                moves: 2,
            }),
            ..TrafficView::default()
        };
        let expected = "lines → words  20000 records/s, 90000 B/s between containers\n  \
             lines#0 → words#1  15000 records/s  container 1 → 2\n  \
             other pairs  5000 records/s\n\
             inside containers 25.0%, inside hosts 100.0%\n\
             for another submission: --set placement.rates=lines>words=20000\n\
             better placement: 1 instead of 9 records/s between hosts, by 2 moves\n";
        assert_eq!(view.to_string(), expected);
    }
}
