//! Functions in the interpreter of this process.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::PyRecordBatch;
use pyo3_arrow::input::AnyRecordBatch;

use crate::failure::{RaisedException, Traceback};
use crate::function::{BatchFunction, FunctionResult};
use crate::plan::FunctionColumns;
use crate::row_reader::RowReader;
use crate::row_writer::RowWriter;

/// A function of Python, and the place of its exceptions.
#[derive(Clone)]
pub(crate) struct PythonFunction {
    /// The callable object.
    pub callable: Arc<Py<PyAny>>,
    /// The receiver of its exceptions.
    pub raised: RaisedException,
}

impl PythonFunction {
    /// Runs `call` with the interpreter, once for a batch.
    pub(crate) fn with<R>(
        &self,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<R>,
    ) -> Result<R, Traceback> {
        Python::attach(|py| {
            let called = call(self.callable.bind(py));
            called.map_err(|exception| Traceback::of(py, exception, &self.raised))
        })
    }
}

/// Returns the schema of the results of a function.
pub(crate) fn result_schema(input: &SchemaRef, output: &FunctionColumns) -> SchemaRef {
    match output {
        FunctionColumns::Same(()) => Arc::clone(input),
        FunctionColumns::Columns(fields) => fields.schema(),
        FunctionColumns::Append(fields) => {
            let known = input.fields().iter().map(|field| field.as_ref().clone());
            Schema::new(known.chain(fields.fields()).collect::<Vec<_>>()).into()
        }
    }
}

/// A function on the rows of a batch: `ardea.rows.RowFunction`.
pub(crate) struct RowsFunction {
    function: PythonFunction,
    reader: RowReader,
    schema: SchemaRef,
    /// The columns that the function makes; empty if its results are records of the input.
    made: SchemaRef,
    output: FunctionColumns,
}

/// The outcome of `RowFunction`: rows, values and failures.
type RowsOutcome<'py> = (
    Option<Vec<u32>>,
    Option<Bound<'py, PyList>>,
    Option<Vec<(u32, String)>>,
);

impl RowsFunction {
    /// Creates a function on the rows of `input`.
    ///
    /// # Errors
    /// If the values of a column have no type in Python.
    pub(crate) fn new(
        function: PythonFunction,
        input: &SchemaRef,
        output: FunctionColumns,
    ) -> ardea_core::Result<Self> {
        let made = match &output {
            FunctionColumns::Same(()) => Arc::new(Schema::empty()),
            FunctionColumns::Append(fields) | FunctionColumns::Columns(fields) => fields.schema(),
        };
        RowReader::new(&made)?;
        Ok(RowsFunction {
            function,
            reader: RowReader::new(input)?,
            schema: result_schema(input, &output),
            made,
            output,
        })
    }

    /// Writes the values that the function has returned. A value that does not fit is a failure of
    /// its row.
    fn write<'py>(
        &self,
        values: &Bound<'py, PyList>,
        rows: &mut Option<Vec<u32>>,
        failures: &mut Vec<(u32, String)>,
    ) -> PyResult<RecordBatch> {
        let mut writer = RowWriter::new(values.py(), &self.made, values.len())?;
        let is_value = self.made.fields().len() == 1
            && (matches!(self.output, FunctionColumns::Append(_))
                || self.made.field(0).name() == crate::row_reader::OBJECT_COLUMN);
        let mut refused = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let written = match is_value {
                true => writer.append_value(&value),
                false => writer.append(&value),
            };
            if let Err(reason) = written {
                refused.push((index, format!("the result does not fit: {reason}")));
            }
        }
        if !refused.is_empty() {
            let all = rows
                .take()
                .unwrap_or_else(|| (0..values.len() as u32).collect());
            let row_of = |index: usize| all.get(index).copied().unwrap_or_default();
            let mut bad = refused.iter().map(|(index, _)| *index).peekable();
            let kept = all.iter().enumerate();
            let kept = kept.filter(|(index, _)| bad.next_if_eq(index).is_none());
            *rows = Some(kept.map(|(_, row)| *row).collect());
            failures.extend(refused.into_iter().map(|(index, why)| (row_of(index), why)));
        }
        writer
            .finish()
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn call_rows(
        &self,
        function: &Bound<'_, PyAny>,
        batch: &RecordBatch,
    ) -> PyResult<FunctionResult> {
        let py = function.py();
        let outcome = function.call1((self.reader.read(py, batch)?,))?;
        let (mut rows, values, failures): RowsOutcome<'_> = outcome.extract()?;
        let mut failures = failures.unwrap_or_default();
        let made = match (&values, &self.output) {
            (None, _) | (_, FunctionColumns::Same(())) => None,
            (Some(values), _) => Some(self.write(values, &mut rows, &mut failures)?),
        };
        // The rows are in order, so that as many rows are the same rows.
        let taken = |rows: &Option<Vec<u32>>| match rows {
            Some(rows) if rows.len() < batch.num_rows() => {
                take_record_batch(batch, &UInt32Array::from(rows.clone())).map_err(arrow_failure)
            }
            Some(_) | None => Ok(batch.clone()),
        };
        let records = match (made, &self.output) {
            (Some(made), FunctionColumns::Columns(_)) => made,
            (Some(made), _) => {
                let kept = taken(&rows)?;
                let columns = kept.columns().iter().chain(made.columns());
                RecordBatch::try_new(Arc::clone(&self.schema), columns.cloned().collect())
                    .map_err(arrow_failure)?
            }
            (None, _) => taken(&rows)?,
        };
        Ok(FunctionResult {
            records,
            rows,
            failures,
        })
    }
}

impl BatchFunction for RowsFunction {
    fn call(&mut self, batch: &RecordBatch) -> Result<FunctionResult, Traceback> {
        self.function
            .with(|function| self.call_rows(function, batch))
    }
}

/// A function from an Arrow batch to an Arrow batch.
pub(crate) struct ArrowFunction {
    function: PythonFunction,
    name: String,
    schema: SchemaRef,
}

impl ArrowFunction {
    /// Creates the function `name` on batches of `input`.
    pub(crate) fn new(
        function: PythonFunction,
        name: String,
        input: &SchemaRef,
        output: &FunctionColumns,
    ) -> Self {
        ArrowFunction {
            function,
            name,
            schema: result_schema(input, output),
        }
    }

    fn call_batch(
        &self,
        function: &Bound<'_, PyAny>,
        batch: &RecordBatch,
    ) -> PyResult<RecordBatch> {
        let result = function.call1((PyRecordBatch::new(batch.clone()),))?;
        let reader = result.extract::<AnyRecordBatch>()?.into_reader()?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>();
        let result = match &batches.map_err(arrow_failure)?[..] {
            [only] => only.clone(),
            batches => concat_batches(&schema, batches).map_err(arrow_failure)?,
        };
        conform(&result, &self.schema)
            .map_err(|why| PyTypeError::new_err(format!("the result of {:?} {why}", self.name)))
    }
}

impl BatchFunction for ArrowFunction {
    fn call(&mut self, batch: &RecordBatch) -> Result<FunctionResult, Traceback> {
        let called = self
            .function
            .with(|function| self.call_batch(function, batch));
        called.map(|records| FunctionResult {
            records,
            rows: None,
            failures: Vec::new(),
        })
    }
}

fn arrow_failure(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns a batch with the columns of `schema`. Other forms of the same values, such as views of
/// texts and wider integers, are converted.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let found = batch.schema_ref();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let (name, to) = (field.name(), field.data_type());
        let Some(values) = batch.column_by_name(name) else {
            return Err(format!(
                "has no column {name:?}: its columns are {}",
                listed(found)
            ));
        };
        let from = values.data_type();
        columns.push(match from == to {
            true => Arc::clone(values),
            false if is_same_kind(from, to) => cast_with_options(values, to, &strict)
                .map_err(|error| format!("does not fit the column {name:?}: {error}"))?,
            false => {
                return Err(format!(
                    "has a column {name:?} of the type {from}, and the type {to} is expected"
                ));
            }
        });
        if !field.is_nullable() && values.null_count() > 0 {
            return Err(format!("has nulls in the column {name:?}"));
        }
    }
    if found.fields().len() > columns.len() {
        return Err(format!(
            "has the columns {}, and {} are expected: name the new ones with adds={{...}}",
            listed(found),
            listed(schema)
        ));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| format!("does not fit: {error}"))
}

/// Returns true for types whose values are of one kind.
fn is_same_kind(from: &DataType, to: &DataType) -> bool {
    let is_text = |kind: &DataType| {
        matches!(
            kind,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let is_binary = |kind: &DataType| {
        matches!(
            kind,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        )
    };
    match (from, to) {
        (DataType::Null, _) => true,
        (DataType::Dictionary(_, values), to) => **values == *to || is_same_kind(values, to),
        (DataType::Timestamp(_, a), DataType::Timestamp(_, b)) => a.is_some() == b.is_some(),
        _ => {
            (is_text(from) && is_text(to))
                || (is_binary(from) && is_binary(to))
                || (from.is_integer() && to.is_integer())
                || (from.is_floating() && to.is_floating())
                || (from.is_integer() && to.is_floating())
        }
    }
}

fn listed(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
    fields.collect::<Vec<_>>().join(", ")
}
