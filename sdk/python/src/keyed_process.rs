//! Functions with state in processes of their own.

use std::sync::Arc;

use ardea_columns::{ArrowFormat, write_stream};
use ardea_core::{PartitionId, Timestamp};
use ardea_instance::protocol::{
    GuestHello, GuestOptions, ProtocolRange, StatePartEntry, UserMetric,
};
use ardea_instance::{GuestError, GuestInstance, GuestResults, GuestState};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::plan::ProcessPlan;
use crate::process_function::guest_failure;
use crate::python_function::PythonFunction;
use crate::row_reader::{OBJECT_COLUMN, RowReader};
use crate::row_writer::RowWriter;
use crate::user_metrics::FunctionMetrics;

type GuestResult<T> = std::result::Result<T, GuestError>;

/// The results of a batch: values, the row of each, its event time, and failed rows.
type BatchOutcome<'py> = (Bound<'py, PyList>, Vec<u32>, Vec<i64>, Vec<(u32, String)>);

/// Values that a function has emitted, as columns.
struct WrittenValues {
    records: RecordBatch,
    /// The indexes of the values that do not fit, with the reasons.
    refused: Vec<(usize, String)>,
}

/// A function with state. Python keeps the state of its keys, and their timers.
pub(crate) struct KeyedGuest {
    name: String,
    /// `ardea.keyed_instance.KeyedInstance`.
    instance: PythonFunction,
    output: SchemaRef,
    reader: Option<(SchemaRef, RowReader)>,
    metrics: FunctionMetrics,
}

impl KeyedGuest {
    /// Creates an instance of `function`.
    pub(crate) fn new(
        py: Python<'_>,
        plan: ProcessPlan,
        function: &PythonFunction,
    ) -> PyResult<Self> {
        let class = py
            .import("ardea.keyed_instance")?
            .getattr("KeyedInstance")?;
        let instance = class.call1((function.callable.bind(py), plan.ttl_micros))?;
        Ok(KeyedGuest {
            name: plan.name,
            instance: PythonFunction {
                callable: Arc::new(instance.unbind()),
                raised: function.raised.clone(),
            },
            output: plan.fields.schema(),
            reader: None,
            metrics: FunctionMetrics::new(),
        })
    }

    /// Calls a method of the instance.
    fn call<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> GuestResult<R> {
        let called = self.instance.with(call);
        called.map_err(|failure| guest_failure(&self.name, failure))
    }

    /// Prepares the reader of rows with these columns.
    fn prepare(&mut self, schema: &SchemaRef) -> GuestResult<()> {
        if self
            .reader
            .as_ref()
            .is_none_or(|(known, _)| known != schema)
        {
            let reader = RowReader::new(schema);
            let reader = reader.map_err(|error| GuestError::failed(error.to_string()))?;
            self.reader = Some((Arc::clone(schema), reader));
        }
        Ok(())
    }

    /// Returns emitted values as columns.
    fn written(&self, values: &Bound<'_, PyList>) -> PyResult<WrittenValues> {
        let has_objects = self.output.field(0).name() == OBJECT_COLUMN;
        let mut writer = RowWriter::new(values.py(), &self.output, values.len())?;
        let mut refused = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let written = match has_objects {
                true => writer.append_value(&value),
                false => writer.append(&value),
            };
            if let Err(reason) = written {
                refused.push((index, format!("the emitted record does not fit: {reason}")));
            }
        }
        let records = writer.finish();
        let records = records.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(WrittenValues { records, refused })
    }
}

/// Emits records with their rows and event times.
fn emit(
    records: &RecordBatch,
    rows_and_times: impl Iterator<Item = (u32, i64)>,
    results: &mut GuestResults<'_>,
) -> GuestResult<()> {
    for (row, micros) in rows_and_times {
        let time = Timestamp::from_micros(micros);
        results.writer().emit_row(row, time);
    }
    if records.num_rows() > 0 {
        let columns = write_stream(records);
        let columns = columns.map_err(|error| GuestError::failed(error.to_string()))?;
        results.writer().columns(columns);
    }
    Ok(())
}

impl GuestInstance for KeyedGuest {
    fn hello(&self) -> GuestHello {
        GuestHello {
            protocol: ProtocolRange::OWN,
            language: "python".to_string(),
            formats: vec!["arrow".to_string()],
            state: true,
            watermarks: true,
            rings: true,
            roles: vec!["step".into()],
            options: GuestOptions::default(),
        }
    }

    fn take_metrics(&mut self, is_last: bool) -> Vec<UserMetric> {
        self.metrics.take(is_last)
    }

    fn process(&mut self, batch: &[u8], results: &mut GuestResults<'_>) -> GuestResult<()> {
        let (batch, partitions) = ArrowFormat::keyed_batch_of(batch)?;
        let (records, times) = batch.into_parts();
        let micros: Vec<i64> = times.iter().map(|time| time.as_micros()).collect();
        let number = |partition: Option<PartitionId>| partition.map_or(0, PartitionId::index);
        let partitions: Vec<u32> = partitions.into_iter().map(number).collect();
        self.prepare(records.schema_ref())?;
        let (written, rows, times, mut failures) = self.call(|instance| {
            let Some((_, reader)) = &self.reader else {
                return Err(PyRuntimeError::new_err("the columns are unknown"));
            };
            let arguments = (reader.read(instance.py(), &records)?, micros, partitions);
            let outcome = instance.call_method1("process", arguments)?;
            let (values, rows, times, failures): BatchOutcome<'_> = outcome.extract()?;
            Ok((self.written(&values)?, rows, times, failures))
        })?;
        let mut bad = written.refused.iter().peekable();
        let mut kept = Vec::with_capacity(rows.len());
        for (index, (row, time)) in rows.into_iter().zip(times).enumerate() {
            match bad.next_if(|(refused, _)| *refused == index) {
                Some((_, reason)) => failures.push((row, reason.clone())),
                None => kept.push((row, time)),
            }
        }
        emit(&written.records, kept.into_iter(), results)?;
        for (row, reason) in &failures {
            results.fail(*row, reason)?;
        }
        Ok(())
    }

    fn on_watermark(&mut self, time: Timestamp, results: &mut GuestResults<'_>) -> GuestResult<()> {
        loop {
            let (written, times, has_more) = self.call(|instance| {
                let fired = instance.call_method1("fire", (time.as_micros(),))?;
                let (values, times, has_more): (Bound<'_, PyList>, Vec<i64>, bool) =
                    fired.extract()?;
                Ok((self.written(&values)?, times, has_more))
            })?;
            if let Some((_, reason)) = written.refused.first() {
                let what = format!("a timer of the function {:?} failed: {reason}", self.name);
                return Err(GuestError::failed(what));
            }
            if !times.is_empty() {
                emit(
                    &written.records,
                    times.into_iter().map(|it| (0, it)),
                    results,
                )?;
                results.send_part()?;
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> GuestResult<()> {
        self.call(|instance| {
            for entry in instance.call_method0("saved")?.try_iter()? {
                let (number, key, value): (u32, Bound<'_, PyBytes>, Bound<'_, PyBytes>) =
                    entry?.extract()?;
                let put = state.put(StatePartEntry {
                    partition: PartitionId::from_index(number),
                    key: key.as_bytes(),
                    value: value.as_bytes(),
                });
                if put.is_err() {
                    return Ok(put);
                }
            }
            Ok(Ok(()))
        })?
    }

    fn restore(&mut self, entry: StatePartEntry<'_>) -> GuestResult<()> {
        let number = entry.partition.map_or(0, PartitionId::index);
        self.call(|instance| {
            let py = instance.py();
            let (key, value) = (PyBytes::new(py, entry.key), PyBytes::new(py, entry.value));
            instance.call_method1("restore", (number, key, value))?;
            Ok(())
        })
    }
}
