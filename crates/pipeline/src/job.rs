//! A pipeline as the job of a cluster: a graph that stays the same while numbers of instances change.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Dag, Error, ErrorCode, Parallelism, Result, Routing};
use ardea_engine::{Job, JobConfig, JobHandle, Node, Parallelisms, Program, as_many};

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

    fn graph(&self, threads: NonZeroU32) -> Result<Dag> {
        self.to_dag(threads)
    }

    fn start(&self, node: &Node, config: JobConfig) -> Result<JobHandle> {
        self.submit(node, config)
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
    let groups = as_many(dag)?;
    let group_of = |at: usize| {
        groups
            .iter()
            .position(|group| group.iter().any(|id| id.index() == at))
    };
    let groups: Vec<Option<usize>> = (0..dag.vertices().len()).map(group_of).collect();
    let mut numbers: BTreeMap<Option<usize>, (NonZeroU32, &str)> = BTreeMap::new();
    for (vertex, &group) in dag.vertices().iter().zip(&groups) {
        let Some(&number) = wanted.get(&**vertex.name()) else {
            continue;
        };
        let number = NonZeroU32::new(number).ok_or_else(|| {
            let what = format!("{:?} is to have no instance", vertex.name());
            Error::new(ErrorCode::InvalidJob, what).hint("give it at least one")
        })?;
        match numbers.insert(group, (number, vertex.name())) {
            Some((other, name)) if other != number => {
                let what = format!(
                    "{name:?} is to have {other} instances and {:?}, which has as many, {number}",
                    vertex.name()
                );
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("give both the same number, or put rebalance() between them"));
            }
            _ => {}
        }
    }
    let mut numbered = Dag::new();
    for (vertex, group) in dag.vertices().iter().zip(&groups) {
        let number = match (numbers.get(group), vertex.wanted_parallelism()) {
            (Some(&(number, _)), _) => number,
            (None, Parallelism::Exactly(number)) => number,
            // Zero has been refused when the graph was validated.
            (None, Parallelism::Auto | Parallelism::Zero) => NonZeroU32::MIN,
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
