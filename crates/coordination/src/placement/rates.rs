//! Traffic rates of a job's edges, and the traffic graph of its instances.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::packing::{COLOCATION_ATTRIBUTE, InstanceId, JobDemand, VertexName};
use crate::placement::{PlacementError, TrafficGraph, TrafficRate};

/// The name of the vertex attribute with the vertex's incoming edges, as a JSON list of
/// [`InputEdge`].
pub const GRAPH_INPUTS_ATTRIBUTE: &str = "inputs";

/// The assumed rate of each source instance, in records a second. Only proportions matter.
const ASSUMED_SOURCE_RATE: f64 = 1e6;

/// An incoming edge of a vertex, as stored in the vertex's attributes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InputEdge {
    /// The name of the producing vertex.
    pub from: String,
    /// The output of the producing vertex.
    pub output: usize,
    /// The input of the consuming vertex.
    pub input: usize,
    /// The distribution of records to the consuming instances.
    pub routing: String,
    /// The latency budget in microseconds; `None` if the edge has that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// The declared rate in records a second; `None` if it is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_second: Option<u64>,
}

impl InputEdge {
    /// Reads the incoming edges of a vertex from its attributes. Edges that cannot be read are left
    /// out.
    pub fn of(attributes: &BTreeMap<String, String>) -> Vec<InputEdge> {
        let edges = attributes.get(GRAPH_INPUTS_ATTRIBUTE);
        let edges = edges.and_then(|edges| serde_json::from_str(edges).ok());
        edges.unwrap_or_default()
    }

    /// Writes the incoming edges of a vertex into its attributes.
    pub fn write(edges: &[InputEdge], attributes: &mut BTreeMap<String, String>) {
        // Serialization of strings and integers cannot fail.
        if let Ok(edges) = serde_json::to_string(edges) {
            attributes.insert(GRAPH_INPUTS_ATTRIBUTE.into(), edges);
        }
    }
}

/// The distribution of an edge's records over pairs of instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeRouting {
    /// From each instance to the one with its index.
    Paired,
    /// From each instance to all others, in equal parts.
    Spread,
    /// From each instance to all others, each with all records.
    Copied,
    /// From each instance to the first one.
    Gathered,
}

impl EdgeRouting {
    /// Returns the distribution for the [name](ardea_core::Routing::name) of a routing. Unknown
    /// names are taken for [`Spread`](Self::Spread).
    pub fn of(name: &str) -> Self {
        match name {
            // With a consumer in the producer's process, all records stay there.
            "forward" | "local-or-round-robin" => EdgeRouting::Paired,
            "broadcast" => EdgeRouting::Copied,
            "all-to-one" => EdgeRouting::Gathered,
            _ => EdgeRouting::Spread,
        }
    }

    /// Returns the consumers of a producer with the part of the edge's rate on each, if `rate` is
    /// the rate of all producers.
    fn parts(
        self,
        (producer, producers): (u32, u32),
        consumers: u32,
        rate: f64,
    ) -> impl Iterator<Item = (u32, f64)> {
        let of_one = rate / f64::from(producers.max(1));
        let (range, part) = match self {
            EdgeRouting::Paired => {
                let partner = producer % consumers.max(1);
                (partner..partner + 1, of_one)
            }
            EdgeRouting::Spread => (0..consumers, of_one / f64::from(consumers.max(1))),
            EdgeRouting::Copied => (0..consumers, of_one),
            EdgeRouting::Gathered => (0..1, of_one),
        };
        range.map(move |consumer| (consumer, part))
    }

    /// Returns the records that the consumers of an edge receive a second.
    fn received(self, consumers: u32, rate: f64) -> f64 {
        match self {
            EdgeRouting::Copied => rate * f64::from(consumers),
            _ => rate,
        }
    }
}

/// The measured rates of an edge, each from an instance of its producer to one of its consumer.
type PairRates = Vec<(u32, u32, TrafficRate)>;

/// The rates of a job: measured between instances, declared by edge, or assumed.
///
/// An edge of which any pair of instances was measured has exactly its measured rates. Other edges
/// have the rates in the demand's attributes, or carry all records that their producer receives.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrafficRates {
    measured: BTreeMap<(VertexName, VertexName), PairRates>,
}

impl TrafficRates {
    /// Creates rates without measurements.
    pub fn assumed() -> Self {
        TrafficRates::default()
    }

    /// Adds a measured rate between two instances, in records or bytes a second.
    ///
    /// # Errors
    /// [`PlacementError::Rate`] if the rate is no amount.
    pub fn measure(
        &mut self,
        from: &InstanceId,
        to: &InstanceId,
        per_second: f64,
    ) -> Result<(), PlacementError> {
        let rate = TrafficRate::new(per_second)?;
        let edge = (from.vertex.clone(), to.vertex.clone());
        let pairs = self.measured.entry(edge).or_default();
        pairs.push((from.index, to.index, rate));
        Ok(())
    }

    /// Writes declared rates into the attributes of a demand. `text` has the form
    /// `FROM>TO=RATE,…` with records a second.
    ///
    /// # Errors
    /// [`PlacementError::Declaration`] for another form or an unknown edge;
    /// [`PlacementError::Rate`] if a rate is no amount.
    pub fn declare(text: &str, demand: &mut JobDemand) -> Result<(), PlacementError> {
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let refuse = |why: &str| PlacementError::Declaration {
                text: part.into(),
                why: why.into(),
            };
            let (edge, rate) = part.rsplit_once('=').ok_or_else(|| refuse("no rate"))?;
            let (from, to) = edge
                .split_once('>')
                .ok_or_else(|| refuse("no > between two steps"))?;
            let rate: f64 = rate.trim().parse().map_err(|_| refuse("no number"))?;
            let rate = TrafficRate::new(rate)?.per_second();
            let (from, to) = (from.trim(), to.trim());
            let mut vertices = demand.vertices.iter_mut();
            let vertex = vertices
                .find(|vertex| vertex.name.as_str() == to)
                .ok_or_else(|| refuse("the job has no such step"))?;
            let mut edges = InputEdge::of(&vertex.attributes);
            let mut of_pair = edges.iter_mut().filter(|edge| edge.from == from).peekable();
            if of_pair.peek().is_none() {
                return Err(refuse("the job has no such edge"));
            }
            of_pair.for_each(|edge| edge.records_per_second = Some(rate));
            InputEdge::write(&edges, &mut vertex.attributes);
        }
        Ok(())
    }

    /// Returns the traffic graph of a job's instances. Tasks are numbered by vertex in the order of
    /// the demand, then by index. Loads are the cpu of instances.
    ///
    /// # Errors
    /// [`PlacementError::Rate`] if a rate is too large.
    pub fn graph(&self, demand: &JobDemand) -> Result<TrafficGraph, PlacementError> {
        let mut firsts: HashMap<&str, (u32, usize)> = HashMap::new();
        let mut next = 0;
        for vertex in &demand.vertices {
            firsts.insert(vertex.name.as_str(), (vertex.parallelism, next));
            next += vertex.parallelism as usize;
        }
        let mut edges = Vec::new();
        for (vertex, inputs) in demand.vertices.iter().zip(resolved_edges(demand)) {
            let to = firsts[vertex.name.as_str()].1;
            for (edge, rate) in inputs {
                let Some((producers, from)) = firsts.get(edge.from.as_str()).copied() else {
                    continue;
                };
                let key = (VertexName::from(&*edge.from), vertex.name.clone());
                if self.measured.contains_key(&key) {
                    continue;
                }
                let routing = EdgeRouting::of(&edge.routing);
                for producer in 0..producers {
                    let parts = routing.parts((producer, producers), vertex.parallelism, rate);
                    for (consumer, part) in parts {
                        let pair = (from + producer as usize, to + consumer as usize);
                        edges.push((pair.0, pair.1, TrafficRate::new(part)?));
                    }
                }
            }
        }
        for ((from, to), pairs) in &self.measured {
            let known = [from, to].map(|name| firsts.get(name.as_str()).copied());
            let [Some((producers, from)), Some((consumers, to))] = known else {
                continue;
            };
            // Instances that were removed since the measurement have no traffic any more.
            let pairs = pairs
                .iter()
                .filter(|(a, b, _)| *a < producers && *b < consumers);
            edges.extend(pairs.map(|(a, b, rate)| (from + *a as usize, to + *b as usize, *rate)));
        }
        TrafficGraph::new(loads_of(demand), edges)
    }
}

/// Returns the incoming edges of each vertex with their rates in records a second. A vertex passes
/// on the records that it receives; a source has the assumed rate.
fn resolved_edges(demand: &JobDemand) -> Vec<Vec<(InputEdge, f64)>> {
    let mut passed: HashMap<&str, f64> = HashMap::new();
    let counts = demand.vertices.iter();
    let counts: HashMap<&str, u32> = counts
        .map(|vertex| (vertex.name.as_str(), vertex.parallelism))
        .collect();
    let mut resolved = Vec::with_capacity(demand.vertices.len());
    for vertex in &demand.vertices {
        let mut inputs = Vec::new();
        for edge in InputEdge::of(&vertex.attributes) {
            let producers = counts.get(edge.from.as_str()).copied().unwrap_or(0);
            let assumed = passed.get(edge.from.as_str()).copied();
            let assumed = assumed.unwrap_or(ASSUMED_SOURCE_RATE * f64::from(producers));
            let rate = edge.records_per_second.map_or(assumed, |rate| rate as f64);
            let received = EdgeRouting::of(&edge.routing).received(vertex.parallelism, rate);
            *passed.entry(vertex.name.as_str()).or_insert(0.0) += received;
            inputs.push((edge, rate));
        }
        resolved.push(inputs);
    }
    resolved
}

/// Returns the incoming edges of each vertex, with assumed rates written as declared ones.
pub(crate) fn edges_with_rates(demand: &JobDemand) -> Vec<Vec<InputEdge>> {
    let with_rate = |(edge, rate): (InputEdge, f64)| InputEdge {
        records_per_second: Some(rate as u64),
        ..edge
    };
    let edges = resolved_edges(demand).into_iter();
    edges
        .map(|inputs| inputs.into_iter().map(with_rate).collect())
        .collect()
}

/// Returns the load of each instance: its cpu, or one if all instances require the same.
fn loads_of(demand: &JobDemand) -> Vec<u64> {
    let first = demand.vertices.first().map(|vertex| vertex.resources.cpu);
    let is_equal = demand
        .vertices
        .iter()
        .all(|vertex| Some(vertex.resources.cpu) == first);
    let loads = demand.vertices.iter().flat_map(|vertex| {
        let load = if is_equal {
            1
        } else {
            vertex.resources.cpu.0.max(1)
        };
        std::iter::repeat_n(load, vertex.parallelism as usize)
    });
    loads.collect()
}

/// Returns the colocation group of each instance in the order of [`TrafficRates::graph`], and the
/// number of groups. Instances of a group with equal index must share a container.
pub(crate) fn colocated_tasks(demand: &JobDemand) -> (Vec<usize>, usize) {
    let mut groups: HashMap<(&str, u32), usize> = HashMap::new();
    let mut of_tasks = Vec::new();
    for vertex in &demand.vertices {
        let group = vertex.attributes.get(COLOCATION_ATTRIBUTE);
        let name = group.map_or(vertex.name.as_str(), String::as_str);
        for index in 0..vertex.parallelism {
            let next = groups.len();
            of_tasks.push(*groups.entry((name, index)).or_insert(next));
        }
    }
    (of_tasks, groups.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::MilliCores;
    use crate::placement::test_demands::vertex;

    fn words() -> JobDemand {
        JobDemand::new("words")
            .vertex(vertex("lines", 2, &[]))
            .vertex(vertex("words", 2, &[("lines", "forward")]))
            .vertex(vertex("counts", 4, &[("words", "keyed")]))
            .vertex(vertex("total", 1, &[("counts", "all-to-one")]))
    }

    #[test]
    fn assumed_rates_follow_the_routing_of_each_edge() {
        let graph = TrafficRates::assumed().graph(&words()).unwrap();
        assert_eq!(graph.loads(), [1; 9]);
        assert_eq!(graph.traffic(0, 2), 1_000_000);
        assert_eq!(graph.traffic(0, 3), 0);
        assert_eq!(graph.traffic(2, 4), 250_000);
        assert_eq!(graph.traffic(7, 8), 500_000);
        let copied = JobDemand::new("copies")
            .vertex(vertex("a", 2, &[]))
            .vertex(vertex("b", 3, &[("a", "broadcast")]))
            .vertex(vertex("c", 1, &[("b", "round-robin")]));
        let graph = TrafficRates::assumed().graph(&copied).unwrap();
        assert_eq!(graph.traffic(0, 4), 1_000_000);
        assert_eq!(graph.traffic(2, 5), 2_000_000);
    }

    #[test]
    fn declared_rates_replace_assumed_ones_from_their_edge_on() {
        let mut demand = words();
        TrafficRates::declare("words > counts = 800, lines>words=10", &mut demand).unwrap();
        let graph = TrafficRates::assumed().graph(&demand).unwrap();
        assert_eq!(graph.traffic(0, 2), 5);
        assert_eq!(graph.traffic(2, 4), 100);
        assert_eq!(graph.traffic(4, 8), 200);
    }

    #[test]
    fn declarations_of_another_form_are_refused_with_the_reason() {
        for (wrong, why) in [
            ("lines>words", "no rate"),
            ("lines=5", "no > between"),
            ("lines>words=many", "no number"),
            ("lines>none=5", "no such step"),
            ("lines>counts=5", "no such edge"),
        ] {
            let refused = TrafficRates::declare(wrong, &mut words()).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        for wrong in ["lines>words=NaN", "lines>words=-1", "lines>words=inf"] {
            let refused = TrafficRates::declare(wrong, &mut words());
            assert!(matches!(refused, Err(PlacementError::Rate(_))), "{wrong}");
        }
    }

    #[test]
    fn an_edge_with_measurements_has_exactly_these() {
        let mut rates = TrafficRates::assumed();
        let [words_0, words_1] = [0, 1].map(|index| InstanceId::new("words", index));
        let counts = |index| InstanceId::new("counts", index);
        rates.measure(&words_0, &counts(3), 7.0).unwrap();
        rates.measure(&words_1, &counts(9), 7.0).unwrap();
        assert!(rates.measure(&words_1, &counts(1), f64::NAN).is_err());
        let graph = rates.graph(&words()).unwrap();
        assert_eq!(graph.traffic(2, 7), 7);
        assert_eq!(graph.traffic(2, 4), 0);
        assert_eq!(graph.traffic(0, 2), 1_000_000, "this edge is assumed");
    }

    #[test]
    fn loads_are_cpu_unless_all_are_equal() {
        let mut demand = words();
        demand.vertices[2].resources.cpu = MilliCores(500);
        let graph = TrafficRates::assumed().graph(&demand).unwrap();
        assert_eq!(graph.loads()[1..5], [1, 1, 1, 500]);
    }

    #[test]
    fn instances_of_a_colocation_group_with_equal_index_are_one_task() {
        let mut demand = words();
        for vertex in &mut demand.vertices[..2] {
            let name = COLOCATION_ATTRIBUTE.to_string();
            vertex.attributes.insert(name, "lines".into());
        }
        assert_eq!(
            colocated_tasks(&demand),
            (vec![0, 1, 0, 1, 2, 3, 4, 5, 6], 7)
        );
    }
}
