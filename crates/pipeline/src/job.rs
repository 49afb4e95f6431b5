//! A pipeline as the job of a cluster: a graph that stays the same while numbers of instances change.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Dag, Error, ErrorCode, Parallelism, Result, Routing};
use ardea_engine::{Job, Parallelisms, Program};

use crate::pipeline::Pipeline;
use crate::step::{self, For, Step};

/// The graph of a pipeline on a cluster.
///
/// It does not depend on how many instances there are, so that these can change while the job runs: every keyed aggregate has two
/// stages. Vertices that are joined by forward edges, such as a step on single records and what comes before it, are a *chain*: they
/// have equally many instances, and the number of any of them is that of all. A chain has as many as `parallelism` says of one of
/// its vertices, else as the program says; [`Parallelism::Auto`], of which nobody says anything, is one.
impl Job for Pipeline {
    fn name(&self) -> &str {
        Pipeline::name(self)
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let steps = self.steps();
        refuse_what_is_for_the_author(&steps)?;
        let dag = step::lower(&steps, For::Cluster)?;
        Ok(Program {
            may_lose_instances: false,
            dag: with_numbers(&dag, parallelism)?,
            side_channels: Vec::new(),
        })
    }
}

/// Nothing is given to who can't be there.
fn refuse_what_is_for_the_author(steps: &[Step]) -> Result<()> {
    let Some(step) = steps.iter().find(|step| step.is_for_author) else {
        return Ok(());
    };
    Err(Error::new(
        ErrorCode::InvalidJob,
        format!(
            "the step {:?} collects results in the memory of one process, where nobody finds them on a cluster",
            step.name.text
        ),
    )
    .hint("end that stream with write_to(sink) instead of collect()"))
}

/// The graph with a number of instances for each vertex.
fn with_numbers(dag: &Dag, wanted: &Parallelisms) -> Result<Dag> {
    check_names(dag, wanted)?;
    let chains = chains(dag);
    let mut numbers: BTreeMap<usize, (NonZeroU32, &str)> = BTreeMap::new();
    for (vertex, &chain) in dag.vertices().iter().zip(&chains) {
        let Some(&number) = wanted.get(&**vertex.name()) else {
            continue;
        };
        let number = NonZeroU32::new(number).ok_or_else(|| {
            let what = format!("{:?} is to have no instance", vertex.name());
            Error::new(ErrorCode::InvalidJob, what).hint("give it at least one")
        })?;
        match numbers.insert(chain, (number, vertex.name())) {
            Some((other, name)) if other != number => {
                let what = format!(
                    "{name:?} is to have {other} instances and {:?}, which runs where it does, {number}",
                    vertex.name()
                );
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("give both the same number, or put rebalance() between them"));
            }
            _ => {}
        }
    }
    let mut numbered = Dag::new();
    for (vertex, chain) in dag.vertices().iter().zip(&chains) {
        let number = match (numbers.get(chain), vertex.wanted_parallelism()) {
            (Some(&(number, _)), _) => number,
            (None, Parallelism::Exactly(number)) => number,
            (None, Parallelism::Auto) => NonZeroU32::MIN,
        };
        numbered.vertex(vertex.clone().parallelism(Parallelism::Exactly(number)));
    }
    for edge in dag.edges() {
        numbered.edge(edge.clone());
    }
    check_single(&numbered)?;
    numbered.validate()?;
    Ok(numbered)
}

fn check_names(dag: &Dag, wanted: &Parallelisms) -> Result<()> {
    let mut names: Vec<&str> = dag.vertices().iter().map(|v| &**v.name()).collect();
    let Some(unknown) = wanted.keys().find(|name| !names.contains(&name.as_str())) else {
        return Ok(());
    };
    names.sort_unstable();
    Err(Error::new(
        ErrorCode::InvalidJob,
        format!("the job has no step {unknown:?} whose instances could be counted"),
    )
    .hint(format!("its steps are {}", names.join(", "))))
}

/// For each vertex, by what its chain is known: the first of its vertices.
fn chains(dag: &Dag) -> Vec<usize> {
    let mut chains: Vec<usize> = (0..dag.vertices().len()).collect();
    for edge in dag.edges() {
        if matches!(edge.wanted_routing(), Routing::Forward) {
            let ends = [edge.source().0, edge.target().0].map(|vertex| chains[vertex.index()]);
            let (first, second) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            for chain in &mut chains {
                if *chain == second {
                    *chain = first;
                }
            }
        }
    }
    chains
}

/// What gets all records can't share them with others.
fn check_single(dag: &Dag) -> Result<()> {
    for edge in dag.edges() {
        let vertex = dag.get(edge.target().0);
        let is_single = vertex.wanted_parallelism() == Parallelism::ONE;
        if matches!(edge.wanted_routing(), Routing::AllToOne) && !is_single {
            let what = format!(
                "the step {:?} cannot have several instances: it needs all records in one place",
                vertex.name()
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("put rebalance() behind it, for steps that shall have more"));
        }
    }
    Ok(())
}
