//! A pipeline as the job of a cluster: a graph that is independent of the parallelism.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Dag, Error, ErrorCode, Parallelism, Result, Routing};
use ardea_engine::{
    Job, JobConfig, JobHandle, Node, Parallelisms, Program, equal_parallelism_groups,
};

use crate::pipeline::Pipeline;
use crate::step::{self, LoweringTarget, Step};

/// The graph of a pipeline on a cluster.
///
/// It does not depend on the parallelism, so that a running job can be rescaled: every keyed
/// aggregate has two stages. Vertices joined by forward edges, such as a step on single records and
/// its input, form a *chain*. The vertices of a chain have the same parallelism, and setting it for
/// one vertex sets it for all. The settings of the job override the parallelism given in the
/// program. [`Parallelism::Auto`] without a setting means one instance.
impl Job for Pipeline {
    fn name(&self) -> &str {
        Pipeline::name(self)
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let steps = self.steps();
        refuse_collected_results(&steps)?;
        let dag = step::lower(&steps, LoweringTarget::Cluster)?;
        Ok(Program {
            may_lose_instances: false,
            dag: with_parallelism(&dag, parallelism)?,
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

/// Refuses steps that deliver results to the process of the author, which is not part of the
/// cluster.
fn refuse_collected_results(steps: &[Step]) -> Result<()> {
    let Some(step) = steps.iter().find(|step| step.is_local_result) else {
        return Ok(());
    };
    Err(Error::new(
        ErrorCode::InvalidJob,
        format!(
            "the step {:?} collects results in the memory of one process, which a cluster does not support",
            step.name.text
        ),
    )
    .hint("end that stream with write_to(sink) instead of collect()"))
}

/// Returns the graph with a parallelism for each vertex.
fn with_parallelism(dag: &Dag, wanted: &Parallelisms) -> Result<Dag> {
    check_names(dag, wanted)?;
    let groups = equal_parallelism_groups(dag)?;
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
            let what = format!("the parallelism of {:?} is zero", vertex.name());
            Error::new(ErrorCode::InvalidJob, what).hint("set at least one")
        })?;
        match numbers.insert(group, (number, vertex.name())) {
            Some((other, name)) if other != number => {
                let what = format!(
                    "the parallelism of {name:?} is {other}, but that of {:?}, which must be equal, is {number}",
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
            // Zero was refused when the graph was validated.
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
        format!("the job has no step {unknown:?} whose parallelism could be set"),
    )
    .hint(format!("its steps are {}", names.join(", "))))
}

/// Checks that a vertex that must receive all records has a single instance.
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
                .hint("add rebalance() after it for steps with more instances"));
        }
    }
    Ok(())
}
