//! Conversion of a job's measured traffic for the REST interface.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ardea_coordination::placement::PlacementProposal;
use ardea_core::Timestamp;
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Curve, History, Labels, Selector};
use ardea_rest::{EdgeTraffic, InstanceCpu, PairTraffic, ProposalView, TrafficView};

use crate::leader::{JobView, pair_rates};

/// Time window of the rates. It covers several readings of large jobs.
const WINDOW: Duration = Duration::from_secs(30);

/// The maximum number of pairs in a view.
const MOST_PAIRS: usize = 1_000;

/// Returns the measured traffic of a job.
pub(crate) fn traffic(history: &History, view: &JobView, now_ms: u64) -> TrafficView {
    let now = Timestamp::from_micros(i64::try_from(now_ms * 1_000).unwrap_or(i64::MAX));
    let means = |metric: &Metric| -> Vec<(Labels, f64)> {
        let curves = history.recent(&Selector::of(metric.name), WINDOW, now);
        curves
            .into_iter()
            .map(|curve| (curve.labels.clone(), mean(&curve)))
            .collect()
    };
    let places = LocationIndex::of(view);
    let edges = edges(
        &means(&catalogue::VERTEX_PAIR_RECORDS),
        &means(&catalogue::SENT_BYTES),
    );
    let mut pairs: Vec<PairTraffic> = pair_rates(history, WINDOW, now)
        .into_iter()
        .map(|([from, to], rate)| places.pair(from.to_string(), to.to_string(), rate))
        .filter(|pair| pair.records_per_s > 0.0)
        .collect();
    pairs.sort_by(|one, other| other.records_per_s.total_cmp(&one.records_per_s));
    pairs.truncate(MOST_PAIRS);
    estimate_bytes(&mut pairs, &edges);
    let all: f64 = edges.iter().map(|edge| edge.records_per_s).sum();
    let listed: f64 = pairs.iter().map(|pair| pair.records_per_s).sum();
    let share = |is_inside: fn(&PairTraffic) -> bool| {
        let inside = pairs.iter().filter(|pair| is_inside(pair));
        let inside: f64 = inside.map(|pair| pair.records_per_s).sum();
        (listed > 0.0).then(|| inside / listed)
    };
    let instances = means(&catalogue::BUSY_CPU).into_iter();
    let instances = instances.filter_map(|(labels, cpu_cores)| {
        let (vertex, index) = (labels.get("vertex")?, labels.get("instance")?);
        Some(InstanceCpu {
            instance: format!("{vertex}#{index}"),
            cpu_cores,
        })
    });
    TrafficView {
        job: view.job.name.clone(),
        at_ms: now_ms,
        window_ms: WINDOW.as_millis() as u64,
        inside_containers: share(|pair| {
            pair.from_container.is_some() && pair.from_container == pair.to_container
        }),
        inside_hosts: share(|pair| pair.is_on_one_host),
        other_records_per_s: (all - listed).max(0.0),
        instances: instances.collect(),
        proposal: view.proposal.as_ref().map(proposal_view),
        edges,
        pairs,
    }
}

fn proposal_view(proposal: &PlacementProposal) -> ProposalView {
    ProposalView {
        between_hosts_before: proposal.cut_before,
        between_hosts_after: proposal.cut_after,
        moves: proposal.moves,
    }
}

fn mean(curve: &Curve) -> f64 {
    let sum: f64 = curve.points.iter().map(|point| point.value).sum();
    sum / curve.points.len().max(1) as f64
}

/// Returns the traffic by edge, over all containers.
fn edges(records: &[(Labels, f64)], bytes: &[(Labels, f64)]) -> Vec<EdgeTraffic> {
    let mut edges: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    let key = |labels: &Labels| {
        let name = |label: &str| labels.get(label).map(str::to_string);
        Some((name("vertex")?, name("to")?))
    };
    for (labels, rate) in records {
        if let Some(key) = key(labels) {
            edges.entry(key).or_default().0 += rate;
        }
    }
    for (labels, rate) in bytes {
        if let Some(edge) = key(labels).and_then(|key| edges.get_mut(&key)) {
            edge.1 += rate;
        }
    }
    let edges = edges.into_iter();
    let edges = edges.map(
        |((from, to), (records_per_s, sent_bytes_per_s))| EdgeTraffic {
            from,
            to,
            records_per_s,
            sent_bytes_per_s,
        },
    );
    edges.collect()
}

/// Sets the bytes of each pair by the mean size of its edge's records between containers.
fn estimate_bytes(pairs: &mut [PairTraffic], edges: &[EdgeTraffic]) {
    let vertex = |instance: &str| instance.rsplit_once('#').map(|it| it.0.to_string());
    let mut crossing: HashMap<(String, String), f64> = HashMap::new();
    for pair in pairs
        .iter()
        .filter(|pair| pair.from_container != pair.to_container)
    {
        if let (Some(from), Some(to)) = (vertex(&pair.from), vertex(&pair.to)) {
            *crossing.entry((from, to)).or_default() += pair.records_per_s;
        }
    }
    let sizes: HashMap<(String, String), f64> = edges
        .iter()
        .filter_map(|edge| {
            let key = (edge.from.clone(), edge.to.clone());
            let records = crossing.get(&key).filter(|records| **records > 0.0)?;
            Some((key, edge.sent_bytes_per_s / records))
        })
        .collect();
    for pair in pairs {
        let size = vertex(&pair.from).zip(vertex(&pair.to));
        let size = size.and_then(|key| sizes.get(&key));
        pair.bytes_per_s = size.map(|size| size * pair.records_per_s);
    }
}

/// The containers and hosts of a job's instances.
struct LocationIndex<'a> {
    containers: HashMap<&'a str, u32>,
    hosts: HashMap<u32, &'a str>,
}

impl<'a> LocationIndex<'a> {
    fn of(view: &'a JobView) -> Self {
        let mut places = LocationIndex {
            containers: HashMap::new(),
            hosts: HashMap::new(),
        };
        for container in &view.description.containers {
            let id = container.id.0;
            let instances = container.instances.iter();
            places
                .containers
                .extend(instances.map(|instance| (&**instance, id)));
            let host = container.host_name.as_ref().or(container.host.as_ref());
            places.hosts.extend(host.map(|host| (id, &**host)));
        }
        places
    }

    fn pair(&self, from: String, to: String, records_per_s: f64) -> PairTraffic {
        let [from_container, to_container] =
            [&from, &to].map(|instance| self.containers.get(instance.as_str()).copied());
        let host = |container: Option<u32>| self.hosts.get(&container?);
        let has_one_host =
            host(from_container).is_some() && host(from_container) == host(to_container);
        PairTraffic {
            is_on_one_host: has_one_host
                || (from_container.is_some() && from_container == to_container),
            bytes_per_s: None,
            from_container,
            to_container,
            records_per_s,
            from,
            to,
        }
    }
}
