//! The pipeline of a plan.

mod batch_rows;
mod file_sink;
mod join;
mod source;
mod step;
mod tee;

use std::collections::HashMap;
use std::sync::Arc;

use ardea_columns::Columns;
use ardea_core::{Bounded, Error, ErrorCode, Result};
use ardea_pipeline::{Collected, Pipeline, Timed};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;

use crate::failure::RaisedException;
use crate::plan::{Output, Plan, PlanStep};
use crate::python_function::PythonFunction;

/// A stream of a plan. Boundedness and event time are checked when a plan is compiled, and not by
/// types.
pub(crate) type Table = Columns<Bounded, Timed>;

/// A compiled plan.
pub(crate) struct CompiledPlan {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// The results of the steps that collect, in their order.
    pub collected: Vec<Collected<RecordBatch>>,
    /// The latest exception of a function.
    pub raised: RaisedException,
}

/// The event times of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventTime {
    /// None.
    Absent,
    /// Those of the source, which the job does not use.
    OfSource,
    /// Those that windows use.
    Assigned,
}

/// A stream with the facts that types express in Rust.
pub(crate) struct SourceTable {
    pub table: Table,
    pub time: EventTime,
    /// True if the stream ends by itself.
    pub is_bounded: bool,
}

/// The stream of one reader of an output.
pub(crate) struct Branch {
    pub table: Table,
    pub schema: SchemaRef,
    time: EventTime,
    is_bounded: bool,
}

/// A compiler of plans.
struct Lowering<'a> {
    py: Python<'a>,
    objects: Vec<Arc<Py<PyAny>>>,
    compiled: CompiledPlan,
    /// The command line of the process of a function.
    words: Vec<String>,
    /// The number of steps that read each output.
    readers: HashMap<Output, usize>,
    /// A stream for each reader of an output.
    branches: HashMap<Output, Vec<Branch>>,
}

/// Compiles a plan with its functions and collections. Exceptions of functions go to `raised`.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] with the place in the user's code if a step does not fit its input.
pub(crate) fn compile(
    py: Python<'_>,
    plan: Plan,
    objects: Vec<Py<PyAny>>,
    raised: RaisedException,
) -> Result<CompiledPlan> {
    let mut readers = HashMap::new();
    for output in plan.steps.iter().flat_map(|step| &step.inputs) {
        *readers.entry(*output).or_default() += 1;
    }
    let mut lowering = Lowering {
        py,
        objects: objects.into_iter().map(Arc::new).collect(),
        compiled: CompiledPlan {
            pipeline: Pipeline::new(plan.name),
            collected: Vec::new(),
            raised,
        },
        words: plan.words,
        readers,
        branches: HashMap::new(),
    };
    for (index, step) in plan.steps.into_iter().enumerate() {
        let PlanStep {
            inputs,
            place,
            kind,
        } = step;
        let inputs = lowering.inputs(&inputs)?;
        let lowered = lowering.step(index, inputs, kind);
        lowered.map_err(|error| at_place(error, &place))?;
    }
    Ok(lowering.compiled)
}

/// Adds the place in the user's code to the hint of an error.
fn at_place(error: Error, place: &str) -> Error {
    let hint = error
        .hint_text()
        .map_or(String::new(), |hint| format!("{hint}; "));
    error.hint(format!("{hint}the step is at {place}"))
}

impl Lowering<'_> {
    /// Takes the streams that a step reads.
    fn inputs(&mut self, outputs: &[Output]) -> Result<Vec<Branch>> {
        let mut take = |output: &Output| self.branches.get_mut(output)?.pop();
        let inputs = outputs.iter().map(&mut take).collect::<Option<Vec<_>>>();
        inputs.ok_or_else(|| {
            let what = "the plan of the job reads a step that does not exist";
            Error::new(ErrorCode::InvalidJob, what).hint("install one version of the package ardea")
        })
    }

    /// Adds an output of a step, with a stream for each of its readers.
    fn add(&mut self, output: Output, added: SourceTable) -> Result<()> {
        let SourceTable {
            table,
            time,
            is_bounded,
        } = added;
        let schema = Arc::clone(table.schema()?);
        let readers = self.readers.get(&output).copied().unwrap_or_default();
        let tables = tee::tee(table, readers.max(1));
        let branches = tables.into_iter().map(|table| Branch {
            table,
            schema: Arc::clone(&schema),
            time,
            is_bounded,
        });
        self.branches.insert(output, branches.collect());
        Ok(())
    }

    /// Returns a function or collection of the plan.
    fn object(&self, index: usize) -> Result<Arc<Py<PyAny>>> {
        self.objects.get(index).map(Arc::clone).ok_or_else(|| {
            let what = format!("the plan of the job has no object {index}");
            Error::new(ErrorCode::InvalidJob, what).hint("install one version of the package ardea")
        })
    }

    fn function(&self, index: usize) -> Result<PythonFunction> {
        Ok(PythonFunction {
            callable: self.object(index)?,
            raised: self.compiled.raised.clone(),
        })
    }
}
