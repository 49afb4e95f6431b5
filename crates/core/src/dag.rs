//! The graph of a job.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Error, ErrorCode};
use crate::{Edge, EdgeId, Ordinal, Parallelism, Result, Routing, Vertex, VertexId};

/// The graph of a job: built once, then validated, never modified.
///
/// ```
/// use ardea_core::{Dag, Edge, Inbox, Ordinal, Outbox, Processor, Result, Vertex, supplier};
///
/// struct Nothing;
/// impl Processor for Nothing {}
///
/// let mut dag = Dag::new();
/// let source = dag.vertex(Vertex::new("source", supplier(|| Nothing)));
/// let sink = dag.vertex(Vertex::new("sink", supplier(|| Nothing)));
/// dag.edge(Edge::between(source, sink));
/// dag.validate().unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Dag {
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
}

impl Dag {
    /// Creates a graph without vertices.
    pub fn new() -> Self {
        Dag::default()
    }

    /// Adds a vertex.
    pub fn vertex(&mut self, vertex: Vertex) -> VertexId {
        self.vertices.push(vertex);
        VertexId(self.vertices.len() as u32 - 1)
    }

    /// Adds an edge.
    pub fn edge(&mut self, edge: Edge) -> EdgeId {
        self.edges.push(edge);
        EdgeId(self.edges.len() as u32 - 1)
    }

    /// Returns all vertices, by id.
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// Returns all edges, by id.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the ids of all edges, in order.
    pub fn edge_ids(&self) -> impl ExactSizeIterator<Item = EdgeId> + use<> {
        (0..self.edges.len() as u32).map(EdgeId)
    }

    /// Returns the vertex with this id.
    ///
    /// # Panics
    /// If the graph has no such vertex, because the id is that of a larger graph.
    pub fn get(&self, id: VertexId) -> &Vertex {
        &self.vertices[id.index()]
    }

    /// Returns the edges that lead into a vertex, by input ordinal.
    pub fn inputs(&self, id: VertexId) -> Vec<EdgeId> {
        self.edges_by_ordinal(|edge| edge.to, id)
    }

    /// Returns the edges that lead out of a vertex, by output ordinal.
    pub fn outputs(&self, id: VertexId) -> Vec<EdgeId> {
        self.edges_by_ordinal(|edge| edge.from, id)
    }

    /// Returns the vertices in topological order.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is a cycle; the error names the vertices on it and
    /// downstream of it.
    pub fn topological_order(&self) -> Result<Vec<VertexId>> {
        let mut waiting: Vec<usize> = vec![0; self.vertices.len()];
        for edge in &self.edges {
            waiting[edge.to.0.index()] += 1;
        }
        let mut order: Vec<VertexId> = (0..self.vertices.len() as u32).map(VertexId).collect();
        order.retain(|id| waiting[id.index()] == 0);
        let mut next = 0;
        while next < order.len() {
            let ready = order[next];
            for edge in self.edges.iter().filter(|edge| edge.from.0 == ready) {
                let target = edge.to.0;
                waiting[target.index()] -= 1;
                if waiting[target.index()] == 0 {
                    order.push(target);
                }
            }
            next += 1;
        }
        if order.len() == self.vertices.len() {
            return Ok(order);
        }
        let cycle: Vec<&str> = self
            .vertices
            .iter()
            .zip(&waiting)
            .filter(|(_, w)| **w > 0)
            .map(|(v, _)| &*v.name)
            .collect();
        Err(invalid(format!(
            "the graph has a cycle through {}",
            cycle.join(", ")
        ))
        .hint("records must flow from sources to sinks; remove the edge that leads back"))
    }

    /// Checks that the graph can run.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no vertex, two vertices have the same name, an ordinal
    /// is used twice or left out, an edge leads to an unknown vertex, there is a cycle, a forward
    /// edge joins different parallelisms, a parallelism is zero, or a vertex feeds both an urgent
    /// input and an input that waits for it.
    pub fn validate(&self) -> Result<()> {
        if self.vertices.is_empty() {
            return Err(invalid("the job has no vertex".into()).hint("add a source and a sink"));
        }
        let mut names = HashSet::new();
        for vertex in &self.vertices {
            if !names.insert(&vertex.name) {
                return Err(invalid(format!("two vertices are named {:?}", vertex.name))
                    .hint("give each step a unique name: its state is stored under it"));
            }
            if vertex.parallelism == Parallelism::Zero {
                return Err(
                    invalid(format!("{:?} has a parallelism of 0", vertex.name)).hint(
                        "use a parallelism of at least 1, or Parallelism::Auto for one instance per thread",
                    ),
                );
            }
        }
        for edge in &self.edges {
            self.validate_edge(edge)?;
        }
        self.validate_ordinals("output", |edge| edge.from)?;
        self.validate_ordinals("input", |edge| edge.to)?;
        self.topological_order()?;
        self.validate_priorities()
    }

    /// Refuses graphs that could deadlock on a full queue.
    ///
    /// While a vertex reads an urgent input it takes nothing from its other inputs. Vertices
    /// upstream of these other inputs are held up until all vertices upstream of the urgent input
    /// have ended. A vertex never ends if, directly or through others, it is held up until it has
    /// itself ended.
    fn validate_priorities(&self) -> Result<()> {
        let mut held_until: BTreeMap<VertexId, BTreeSet<VertexId>> = BTreeMap::new();
        for (urgent, waiting) in self.waiting_pairs() {
            let ends = self.ancestors(urgent.from.0);
            for held in self.ancestors(waiting.from.0) {
                held_until.entry(held).or_default().extend(&ends);
            }
        }
        // Reports the last stuck vertex: the nearest to the joins.
        let stuck = held_until
            .keys()
            .rev()
            .find(|vertex| reaches(&held_until, **vertex, **vertex));
        let Some(stuck) = stuck else { return Ok(()) };
        let joins: BTreeSet<&str> = self
            .waiting_pairs()
            .filter(|(urgent, waiting)| {
                self.ancestors(waiting.from.0).contains(stuck)
                    || self.ancestors(urgent.from.0).contains(stuck)
            })
            .map(|(urgent, _)| &*self.get(urgent.to.0).name)
            .collect();
        let joins = joins.into_iter().collect::<Vec<_>>().join("\", \"");
        let origin = &self.get(*stuck).name;
        Err(invalid(format!(
            "{origin:?} feeds inputs of \"{joins}\" of which one waits for the other's end"
        ))
        .hint("read the source twice, once for each input"))
    }

    /// Returns the vertices upstream of urgent inputs. An urgent input is read to its end before
    /// the other inputs of its vertex, whose results would be wrong without all its records.
    ///
    /// Vertices that lead there only by a [timeless](Edge::timeless) edge are left out, unless that
    /// edge is the urgent input itself. They may be unbounded.
    pub fn feeding_urgent_inputs(&self) -> BTreeSet<VertexId> {
        let mut next: Vec<VertexId> = self
            .waiting_pairs()
            .map(|(urgent, _)| urgent.from.0)
            .collect();
        let mut found = BTreeSet::new();
        while let Some(vertex) = next.pop() {
            if found.insert(vertex) {
                let before = self.edges.iter().filter(|edge| edge.to.0 == vertex);
                next.extend(
                    before
                        .filter(|edge| !edge.is_timeless)
                        .map(|edge| edge.from.0),
                );
            }
        }
        found
    }

    /// Returns all pairs of inputs of one vertex in which the second input is read only after the
    /// first has ended.
    fn waiting_pairs(&self) -> impl Iterator<Item = (&Edge, &Edge)> {
        self.edges.iter().flat_map(|urgent| {
            let others = self.edges.iter().filter(|other| other.to.0 == urgent.to.0);
            others
                .filter(|other| other.priority > urgent.priority)
                .map(move |waiting| (urgent, waiting))
        })
    }

    /// Returns a vertex and all vertices upstream of it.
    fn ancestors(&self, id: VertexId) -> BTreeSet<VertexId> {
        let mut found = BTreeSet::from([id]);
        let mut next = vec![id];
        while let Some(vertex) = next.pop() {
            let before = self
                .edges
                .iter()
                .filter(|edge| edge.to.0 == vertex)
                .map(|edge| edge.from.0);
            next.extend(before.filter(|before| found.insert(*before)));
        }
        found
    }

    fn validate_edge(&self, edge: &Edge) -> Result<()> {
        let (Some(from), Some(to)) = (
            self.vertices.get(edge.from.0.index()),
            self.vertices.get(edge.to.0.index()),
        ) else {
            return Err(invalid(
                "an edge leads from or to a vertex of another graph".into(),
            ));
        };
        let same = from.parallelism == to.parallelism;
        if matches!(edge.routing, Routing::Forward) && !same {
            return Err(invalid(format!(
                "the forward edge from {:?} to {:?} joins {} and {} instances",
                from.name,
                to.name,
                describe(from.parallelism),
                describe(to.parallelism)
            ))
            .hint("use another routing, or give both vertices the same parallelism"));
        }
        if let Some(budget) = edge.latency.filter(|it| *it > Edge::MAX_LATENCY) {
            return Err(invalid(format!(
                "the edge from {:?} to {:?} has a latency budget of {budget:?}, more than {:?}",
                from.name,
                to.name,
                Edge::MAX_LATENCY
            ))
            .hint("set a shorter budget; 0 passes each record on at once"));
        }
        Ok(())
    }

    fn validate_ordinals(
        &self,
        side: &str,
        end: impl Fn(&Edge) -> (VertexId, Ordinal),
    ) -> Result<()> {
        let mut used: HashMap<VertexId, Vec<u16>> = HashMap::new();
        for edge in &self.edges {
            let (vertex, ordinal) = end(edge);
            used.entry(vertex).or_default().push(ordinal.0);
        }
        for (vertex, mut ordinals) in used {
            ordinals.sort_unstable();
            if ordinals
                .iter()
                .enumerate()
                .any(|(expected, &ordinal)| expected != ordinal as usize)
            {
                let name = &self.get(vertex).name;
                return Err(
                    invalid(format!("the {side}s of {name:?} are numbered {ordinals:?}")).hint(
                        format!("number the {side} ordinals 0, 1, 2… with one edge each"),
                    ),
                );
            }
        }
        Ok(())
    }

    fn edges_by_ordinal(
        &self,
        end: impl Fn(&Edge) -> (VertexId, Ordinal),
        id: VertexId,
    ) -> Vec<EdgeId> {
        let mut found: Vec<EdgeId> = (0..self.edges.len() as u32)
            .map(EdgeId)
            .filter(|edge| end(&self.edges[edge.index()]).0 == id)
            .collect();
        found.sort_by_key(|edge| end(&self.edges[edge.index()]).1);
        found
    }
}

/// Returns true if a path of at least one step leads from `from` to `to`.
fn reaches(steps: &BTreeMap<VertexId, BTreeSet<VertexId>>, from: VertexId, to: VertexId) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(vertex) = next.pop() {
        for &step in steps.get(&vertex).into_iter().flatten() {
            if step == to {
                return true;
            }
            if seen.insert(step) {
                next.push(step);
            }
        }
    }
    false
}

fn invalid(what: String) -> Error {
    Error::new(ErrorCode::InvalidJob, what)
}

fn describe(parallelism: Parallelism) -> String {
    match parallelism {
        Parallelism::Auto => "one per thread".into(),
        Parallelism::Exactly(count) => count.to_string(),
        Parallelism::Zero => "0".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Processor, supplier};

    struct Nothing;
    impl Processor for Nothing {}

    fn vertex(name: &str) -> Vertex {
        Vertex::new(name, supplier(|| Nothing))
    }

    #[test]
    fn a_cycle_is_refused_with_its_vertices_named() {
        let mut dag = Dag::new();
        let (a, b, c) = (
            dag.vertex(vertex("a")),
            dag.vertex(vertex("b")),
            dag.vertex(vertex("c")),
        );
        dag.edge(Edge::between(a, b));
        dag.edge(Edge::from_ordinals((b, Ordinal(0)), (c, Ordinal(0))));
        dag.edge(Edge::from_ordinals((c, Ordinal(0)), (b, Ordinal(1))));
        let error = dag.validate().unwrap_err().to_string();
        assert!(error.contains("b, c"), "{error}");
    }

    #[test]
    fn an_ordinal_left_out_is_refused() {
        let mut dag = Dag::new();
        let (a, b) = (dag.vertex(vertex("a")), dag.vertex(vertex("b")));
        dag.edge(Edge::from_ordinals((a, Ordinal(1)), (b, Ordinal(0))));
        assert!(
            dag.validate()
                .unwrap_err()
                .to_string()
                .contains("outputs of \"a\"")
        );
    }

    #[test]
    fn two_vertices_of_one_name_are_refused() {
        let mut dag = Dag::new();
        dag.vertex(vertex("a"));
        dag.vertex(vertex("a"));
        assert_eq!(dag.validate().unwrap_err().code(), ErrorCode::InvalidJob);
    }

    #[test]
    fn a_parallelism_of_zero_is_refused_with_the_vertex_named() {
        let mut dag = Dag::new();
        dag.vertex(vertex("parse").parallelism(0));
        let error = dag.validate().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(
            error
                .to_string()
                .contains("\"parse\" has a parallelism of 0"),
            "{error}"
        );
    }

    #[test]
    fn a_source_that_feeds_an_urgent_and_a_waiting_input_is_refused() {
        let mut dag = Dag::new();
        let (a, b) = (dag.vertex(vertex("a")), dag.vertex(vertex("b")));
        dag.edge(Edge::between(a, b));
        dag.edge(
            Edge::from_ordinals((a, Ordinal(1)), (b, Ordinal(1))).priority(crate::Priority::FIRST),
        );
        let error = dag.validate().unwrap_err().to_string();
        assert!(error.contains("waits for the other's end"), "{error}");
    }

    /// Two streams, each the build side of the other's join.
    #[test]
    fn joins_that_wait_for_each_other_are_refused() {
        let mut dag = Dag::new();
        let [a, b] = ["a", "b"].map(|name| dag.vertex(vertex(name)));
        let [first, second] = ["first", "second"].map(|name| dag.vertex(vertex(name)));
        let urgent = |from, to| {
            Edge::from_ordinals((from, Ordinal(1)), (to, Ordinal(1)))
                .priority(crate::Priority::FIRST)
        };
        dag.edge(Edge::between(a, first));
        dag.edge(urgent(b, first));
        dag.edge(Edge::between(b, second));
        dag.edge(urgent(a, second));
        let error = dag.validate().unwrap_err().to_string();
        assert!(error.contains("\"first\", \"second\""), "{error}");
    }

    #[test]
    fn tables_joined_with_tables_are_fine() {
        let mut dag = Dag::new();
        let [stream, table, small] =
            ["stream", "table", "small"].map(|name| dag.vertex(vertex(name)));
        let [enriched, joined] = ["enriched", "joined"].map(|name| dag.vertex(vertex(name)));
        let urgent = |from, to| {
            Edge::from_ordinals((from, Ordinal(0)), (to, Ordinal(1)))
                .priority(crate::Priority::FIRST)
        };
        dag.edge(Edge::between(table, enriched));
        dag.edge(urgent(small, enriched));
        dag.edge(Edge::between(stream, joined));
        dag.edge(urgent(enriched, joined));
        dag.validate().unwrap();
    }

    #[test]
    fn all_that_leads_to_an_urgent_input_is_found_but_not_the_news_beside_it() {
        let mut dag = Dag::new();
        let [stream, table, small, news] =
            ["stream", "table", "small", "news"].map(|name| dag.vertex(vertex(name)));
        let [told, enriched, joined] =
            ["told", "enriched", "joined"].map(|name| dag.vertex(vertex(name)));
        let second = |from, to| Edge::from_ordinals((from, Ordinal(0)), (to, Ordinal(1)));
        dag.edge(Edge::between(table, told));
        dag.edge(second(news, told).timeless());
        dag.edge(Edge::between(told, enriched));
        let urgent = |from, to| second(from, to).timeless().priority(crate::Priority::FIRST);
        dag.edge(urgent(small, enriched));
        dag.edge(Edge::between(stream, joined));
        dag.edge(urgent(enriched, joined));
        dag.validate().unwrap();
        assert_eq!(
            dag.feeding_urgent_inputs(),
            BTreeSet::from([table, small, told, enriched])
        );
    }

    #[test]
    fn a_latency_budget_of_more_than_a_second_is_refused() {
        let budget = |budget| {
            let mut dag = Dag::new();
            let [a, b] = ["a", "b"].map(|name| dag.vertex(vertex(name)));
            dag.edge(Edge::between(a, b).latency(budget));
            dag.validate()
        };
        budget(Edge::MAX_LATENCY).unwrap();
        let error = budget(Edge::MAX_LATENCY * 2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        let told = "from \"a\" to \"b\" has a latency budget of 2s, more than 1s";
        assert!(error.to_string().contains(told), "{error}");
    }

    #[test]
    fn a_forward_edge_needs_equal_parallelism() {
        let mut dag = Dag::new();
        let a = dag.vertex(vertex("a").parallelism(Parallelism::ONE));
        let b = dag.vertex(vertex("b"));
        dag.edge(Edge::between(a, b).routing(Routing::Forward));
        assert!(
            dag.validate()
                .unwrap_err()
                .to_string()
                .contains("forward edge")
        );
    }
}
