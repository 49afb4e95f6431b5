//! Functions in processes of their own.
//!
//! The process of an instance runs the job's script up to `p.run()`. Then it serves the function of
//! its step by the instance protocol. The calls are those of functions in the job's process.

use ardea_columns::{ArrowFormat, write_stream};
use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_instance::protocol::{GuestFailure, GuestHello, GuestOptions, ProtocolRange, UserMetric};
use ardea_instance::{GuestError, GuestInstance, GuestResults, InstanceCommand, serve};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;

use crate::failure::{RaisedException, Traceback, raise};
use crate::function::{BatchFunction, FunctionResult};
use crate::keyed_process::KeyedGuest;
use crate::plan::{
    ErrorPolicy, FunctionForm, FunctionPlan, Plan, ProcessOptions, ProcessPlan, StepKind,
};
use crate::python_function::{ArrowFunction, PythonFunction, RowsFunction};
use crate::user_metrics::FunctionMetrics;

/// The environment variable with the index of the function that a process serves.
const FUNCTION_VARIABLE: &str = "ARDEA_PYTHON_FUNCTION";

/// Returns the command of the processes of a step that calls the function with this index.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if the plan does not name its script.
pub(crate) fn command_of(
    function: usize,
    on_error: ErrorPolicy,
    options: &ProcessOptions,
    words: &[String],
) -> Result<InstanceCommand> {
    let Some((interpreter, script)) = words.split_first() else {
        let what = "functions in processes need the script of the job";
        return Err(Error::new(ErrorCode::InvalidJob, what)
            .hint("write the job to a file, and call p.run() in it"));
    };
    let mut command = InstanceCommand::new(interpreter)
        .args(script)
        .env(FUNCTION_VARIABLE, function.to_string())
        .on_error(on_error.into());
    if let Some(timeout) = options.answer_timeout {
        command = command.answer_timeout(timeout.into());
    }
    if let Some(bytes) = options.memory_bytes {
        command = command.memory_bytes(bytes);
    }
    if let Some(deaths) = options.deaths_per_record {
        command = command.deaths_per_record(deaths);
    }
    Ok(command)
}

/// Serves the function `index` of a plan to the host that started this process. Returns when the
/// host stops it.
#[pyfunction]
pub(crate) fn serve_function(
    py: Python<'_>,
    plan: &str,
    objects: Vec<Py<PyAny>>,
    index: usize,
) -> PyResult<()> {
    let step = Plan::parse(plan).and_then(|plan| {
        let mut steps = plan.steps.into_iter();
        let found = steps.find_map(|step| match step.kind {
            StepKind::Function(plan) if plan.function == index => Some(ServedPlan::Function(plan)),
            StepKind::Process(plan) if plan.function == index => Some(ServedPlan::Keyed(plan)),
            _ => None,
        });
        let found = found.zip(objects.into_iter().nth(index));
        found.ok_or_else(|| {
            let what = format!("the job has no function {index} in this process");
            Error::new(ErrorCode::InvalidJob, what)
                .hint("the script must describe the same job in each process")
        })
    });
    let (plan, callable) = step.map_err(|error| raise(py, &error, None))?;
    let function = PythonFunction {
        callable: callable.into(),
        raised: RaisedException::new(true),
    };
    // The failure is with the host.
    match plan {
        ServedPlan::Function(plan) => {
            let mut guest = FunctionGuest {
                plan,
                function,
                made: None,
                metrics: FunctionMetrics::new(),
            };
            py.detach(|| serve(&mut guest)).ok();
        }
        ServedPlan::Keyed(plan) => {
            let mut guest = KeyedGuest::new(py, plan, &function)?;
            py.detach(|| serve(&mut guest)).ok();
        }
    }
    Ok(())
}

/// The step whose function a process serves.
enum ServedPlan {
    Function(FunctionPlan),
    Keyed(ProcessPlan),
}

/// Returns the failure of the function `name` for the host.
pub(crate) fn guest_failure(name: &str, failure: Traceback) -> GuestError {
    let row = failure.row.and_then(|row| u32::try_from(row).ok());
    let mut message = format!("the function {name:?} raised {}", failure.text);
    if row.is_some() {
        message.push_str(&format!("; the record is {}", failure.record));
    }
    GuestError::Failed(GuestFailure {
        message,
        row,
        ..GuestFailure::default()
    })
}

/// The function of a step, and its form for the columns of the input.
struct FunctionGuest {
    plan: FunctionPlan,
    function: PythonFunction,
    made: Option<(SchemaRef, Box<dyn BatchFunction>)>,
    metrics: FunctionMetrics,
}

impl FunctionGuest {
    /// Returns the function for batches with these columns.
    fn function_for(&mut self, schema: &SchemaRef) -> Result<&mut dyn BatchFunction> {
        let is_made = self.made.as_ref().is_some_and(|(known, _)| known == schema);
        if !is_made {
            let (function, output) = (self.function.clone(), self.plan.output.clone());
            let made: Box<dyn BatchFunction> = match self.plan.form {
                FunctionForm::Rows => Box::new(RowsFunction::new(function, schema, output)?),
                FunctionForm::Batch => {
                    let name = self.plan.name.clone();
                    Box::new(ArrowFunction::new(function, name, schema, &output))
                }
            };
            self.made = Some((schema.clone(), made));
        }
        match &mut self.made {
            Some((_, function)) => Ok(&mut **function),
            None => Err(Error::new(ErrorCode::Internal, "the function is not made")),
        }
    }
}

impl GuestInstance for FunctionGuest {
    fn hello(&self) -> GuestHello {
        GuestHello {
            protocol: ProtocolRange::OWN,
            language: "python".to_string(),
            formats: vec!["arrow".to_string()],
            state: false,
            watermarks: false,
            rings: true,
            roles: vec!["step".into()],
            options: GuestOptions::default(),
        }
    }

    fn take_metrics(&mut self, is_last: bool) -> Vec<UserMetric> {
        self.metrics.take(is_last)
    }

    fn process(
        &mut self,
        batch: &[u8],
        results: &mut GuestResults<'_>,
    ) -> std::result::Result<(), GuestError> {
        let (records, times) = ArrowFormat::batch_of(batch)?.into_parts();
        let name = self.plan.name.clone();
        let function = self.function_for(records.schema_ref());
        let called = function.map_err(|error| GuestError::failed(error.to_string()))?;
        let called = called.call(&records);
        let result = called.map_err(|failure| guest_failure(&name, failure))?;
        emit(&name, &times, result, results)
    }
}

/// Emits the results of a batch whose records have these times.
fn emit(
    name: &str,
    times: &[Timestamp],
    result: FunctionResult,
    results: &mut GuestResults<'_>,
) -> std::result::Result<(), GuestError> {
    for (row, reason) in &result.failures {
        results.fail(*row, reason)?;
    }
    let count = result.records.num_rows();
    if count == 0 {
        return Ok(());
    }
    let rows = match result.rows {
        Some(rows) => rows,
        None if count == times.len() => (0..count as u32).collect(),
        None if times.iter().all(|time| *time == Timestamp::MIN) => vec![0; count],
        None => {
            return Err(GuestError::failed(format!(
                "the function {name:?} returned {count} records for {}, whose event times are then unknown; assign timestamps after this step, or return as many records",
                times.len()
            )));
        }
    };
    for row in rows {
        let time = times.get(row as usize).copied().unwrap_or(Timestamp::MIN);
        results.writer().emit_row(row, time);
    }
    let columns = write_stream(&result.records);
    let columns = columns.map_err(|error| GuestError::failed(error.to_string()))?;
    results.writer().columns(columns);
    Ok(())
}
