//! The measured rate of an edge, stored for the next submission of its job.

use serde::{Deserialize, Serialize};

use crate::packing::JobDemand;
use crate::placement::InputEdge;

/// The measured rate of the edges from one vertex to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EdgeRate {
    /// The name of the producing vertex.
    pub from: String,
    /// The name of the consuming vertex.
    pub to: String,
    /// The rate of all edges from one to the other, in records a second.
    pub records_per_second: u64,
}

impl EdgeRate {
    /// Writes the rates into the attributes of a demand, except for edges with a declared rate.
    /// Rates of edges that the demand lacks have no effect.
    pub fn write_missing(rates: &[EdgeRate], demand: &mut JobDemand) {
        for vertex in &mut demand.vertices {
            let mut edges = InputEdge::of(&vertex.attributes);
            for rate in rates.iter().filter(|rate| vertex.name.as_str() == rate.to) {
                let of_pair = edges.iter_mut().filter(|edge| edge.from == rate.from);
                let mut of_pair: Vec<&mut InputEdge> = of_pair.collect();
                let part = rate.records_per_second / of_pair.len().max(1) as u64;
                for edge in &mut of_pair {
                    edge.records_per_second.get_or_insert(part);
                }
            }
            if !edges.is_empty() {
                InputEdge::write(&edges, &mut vertex.attributes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::test_demands::vertex;

    fn rate(from: &str, to: &str, records_per_second: u64) -> EdgeRate {
        EdgeRate {
            from: from.into(),
            to: to.into(),
            records_per_second,
        }
    }

    fn rates_of(demand: &JobDemand, at: usize) -> Vec<Option<u64>> {
        let edges = InputEdge::of(&demand.vertices[at].attributes).into_iter();
        edges.map(|edge| edge.records_per_second).collect()
    }

    #[test]
    fn edges_without_a_declared_rate_get_the_measured_one() {
        let twice = [("words", "keyed"), ("words", "keyed"), ("lines", "keyed")];
        let mut demand = JobDemand::new("words")
            .vertex(vertex("lines", 2, &[]))
            .vertex(vertex("words", 2, &[("lines", "forward")]))
            .vertex(vertex("counts", 4, &twice));
        crate::placement::TrafficRates::declare("lines>words=7", &mut demand).unwrap();
        let rates = [
            rate("lines", "words", 100),
            rate("words", "counts", 90),
            rate("words", "gone", 5),
        ];
        EdgeRate::write_missing(&rates, &mut demand);
        assert_eq!(rates_of(&demand, 0), []);
        assert_eq!(rates_of(&demand, 1), [Some(7)], "it is declared");
        assert_eq!(rates_of(&demand, 2), [Some(45), Some(45), None]);
    }
}
