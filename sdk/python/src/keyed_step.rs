//! The step that calls a function with state and timers for each key.

mod actions;
mod kept;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_codec::state_codec_of;
use ardea_columns::{ColumnBatch, GroupKey, KeyColumns};
use ardea_core::{
    BadRecords, Checkpointed, Chunk, Epoch, Error, ErrorCode, Inbox, InstanceContext, OnError,
    Ordinal, Outbox, OutboxRuntime, Processor, Progress, Result, Rows, Timestamp, Watermark,
};
use ardea_operators::{KeyedContext, KeyedLogic, StatefulMapP};
use ardea_state::{StateCodecs, TimerKind};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;

use crate::python_function::PythonFunction;
use crate::row_reader::{OBJECT_COLUMN, RowReader};
use crate::row_writer::RowWriter;
use crate::user_metrics::EmbeddedMetrics;
use actions::{Action, apply};
use kept::{KeptState, KeptStates};

/// The maximum number of records of the results between two batches.
const CHUNK_RECORDS: usize = 1024;

/// The description of a step that calls a function with state and timers for each key.
pub(crate) struct KeyedStep {
    /// The name of the step.
    pub name: String,
    /// The function: `ardea.keyed.KeyedFunction`.
    pub function: PythonFunction,
    /// The columns of the input.
    pub input: SchemaRef,
    /// The columns of the results.
    pub output: SchemaRef,
    /// The time after which an unused key is removed.
    pub ttl: Option<Duration>,
    /// The policy for records on which the function fails.
    pub policy: OnError,
}

/// A record with its key.
struct KeyedRow {
    key: GroupKey,
    record: Py<PyAny>,
    /// The position of the record on the input.
    position: u64,
}

/// A record that a function has emitted.
struct EmittedRow(Py<PyAny>);

type OnRecord = Box<
    dyn Fn(&mut KeptState, &GroupKey, KeyedRow, Timestamp, &mut KeyedContext<'_, '_, EmittedRow>)
        + Send
        + Sync,
>;
type OnTimer = Box<
    dyn Fn(&mut KeptState, &GroupKey, Timestamp, &mut KeyedContext<'_, '_, EmittedRow>)
        + Send
        + Sync,
>;

/// The operator of rows that holds the state.
type RowsP = StatefulMapP<
    KeyedRow,
    GroupKey,
    KeptState,
    EmittedRow,
    fn(&KeyedRow) -> GroupKey,
    fn() -> KeptState,
    OnRecord,
    OnTimer,
>;

impl KeyedStep {
    /// Checks that the columns have types of Python.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if a column has none.
    pub(crate) fn check(&self) -> Result<()> {
        RowReader::new(&self.input)?;
        RowReader::new(&self.output)?;
        Ok(())
    }

    /// Returns the processor of an instance.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub(crate) fn processor(&self, key: &KeyColumns) -> Result<KeyedFunctionP> {
        let failures = Failures(Arc::default());
        let logic = KeyedLogic {
            key: (|row| row.key.clone()) as fn(&KeyedRow) -> GroupKey,
            create: KeptState::default as fn() -> KeptState,
            on_record: self.on_record(failures.clone()),
            on_timer: self.on_timer(failures.clone()),
        };
        let mut rows = StatefulMapP::new(Arc::new(logic));
        if let Some(ttl) = self.ttl {
            rows = rows.ttl(ttl);
        }
        if let Some(keys) = state_codec_of::<GroupKey>() {
            rows = rows.with_codecs(StateCodecs::new(keys, Arc::new(KeptStates)));
        }
        Ok(KeyedFunctionP {
            name: self.name.clone(),
            rows,
            key: key.clone(),
            reader: RowReader::new(&self.input)?,
            output: Arc::clone(&self.output),
            waiting: Inbox::default(),
            failures,
            bad: BadRecords::new(self.policy),
            metrics: EmbeddedMetrics::default(),
        })
    }

    fn on_record(&self, failures: Failures) -> OnRecord {
        let function = self.function.clone();
        let name = self.name.clone();
        Box::new(move |state, _, row, time, context| {
            if failures.has_error() {
                return;
            }
            let micros = time.as_micros();
            let called = function.with(|function| {
                let py = function.py();
                let arguments = (state.object(py)?, row.record.bind(py), micros);
                let returned = function.call_method1("on_record", arguments)?;
                state.update(&returned)?;
                finish(&returned, context)
            });
            match called {
                Ok(None) => {}
                Ok(Some(reason)) => failures.add(row, reason),
                Err(failure) => failures.set_error(failure.into_error(&name, row.position)),
            }
        })
    }

    fn on_timer(&self, failures: Failures) -> OnTimer {
        let function = self.function.clone();
        let name = self.name.clone();
        Box::new(move |state, _, time, context| {
            if failures.has_error() {
                return;
            }
            let is_processing = context.fired() == Some(TimerKind::Processing);
            let called = function.with(|function| {
                let arguments = (
                    state.object(function.py())?,
                    time.as_micros(),
                    is_processing,
                );
                let returned = function.call_method1("on_timer", arguments)?;
                state.update(&returned)?;
                finish(&returned, context)
            });
            let error = match called {
                Ok(None) => return,
                Ok(Some(reason)) => {
                    let what = format!("a timer of the function {name:?} failed: {reason}");
                    Error::new(ErrorCode::UserError, what)
                }
                Err(mut failure) => {
                    failure.row = None;
                    failure.into_error(&name, 0)
                }
            };
            failures.set_error(error);
        })
    }
}

/// Carries out the actions that a function has returned, and returns the reason of its failure, if
/// it has failed.
fn finish(
    returned: &Bound<'_, PyAny>,
    context: &mut KeyedContext<'_, '_, EmittedRow>,
) -> PyResult<Option<String>> {
    let actions: Vec<Action> = returned.get_item(1)?.extract()?;
    for action in actions {
        apply(action, context);
    }
    returned.get_item(2)?.extract()
}

/// The failures of a function during a call of the operator.
#[derive(Clone)]
struct Failures(Arc<Mutex<FailureList>>);

#[derive(Default)]
struct FailureList {
    /// The records on which the function has failed, with the reasons.
    records: Vec<(KeyedRow, String)>,
    /// The error that ends the job.
    error: Option<Error>,
}

impl Failures {
    fn list(&self) -> std::sync::MutexGuard<'_, FailureList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_error(&self) -> bool {
        self.list().error.is_some()
    }

    fn add(&self, row: KeyedRow, reason: String) {
        self.list().records.push((row, reason));
    }

    fn set_error(&self, error: Error) {
        self.list().error.get_or_insert(error);
    }
}

/// Calls a function with the records and timers of each key.
///
/// The state is that of [`StatefulMapP`], which gets the records of each batch as rows.
pub(crate) struct KeyedFunctionP {
    name: String,
    rows: RowsP,
    key: KeyColumns,
    reader: RowReader,
    output: SchemaRef,
    /// Rows that the operator has not taken, because their state is being restored.
    waiting: Inbox,
    failures: Failures,
    bad: BadRecords,
    metrics: EmbeddedMetrics,
}

impl KeyedFunctionP {
    /// Calls the operator, and emits its results as a batch. The output accepts a chunk.
    fn call<R>(
        &mut self,
        outbox: &mut Outbox,
        call: impl FnOnce(&mut RowsP, &mut Inbox, &mut Outbox) -> Result<R>,
    ) -> Result<R> {
        let mut own = Outbox::new(1, CHUNK_RECORDS);
        // Results are written whole, so that the operator never waits for room.
        own.set_budget(usize::MAX);
        let (rows, waiting) = (&mut self.rows, &mut self.waiting);
        // Attached once; the calls of the function within need not wait for the interpreter.
        let result = self.metrics.during(|| call(rows, waiting, &mut own))?;
        self.report()?;
        if let Some(mut chunk) = own.take_chunk(0, Chunk::default) {
            let batch = self.batch(chunk.rows::<EmittedRow>()?)?;
            if !batch.is_empty() {
                outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))?;
            }
        }
        while let Some(marker) = own.take_marker(0) {
            outbox.marker(marker);
        }
        if let Some(deadline) = own.take_wake_at() {
            outbox.wake_at(deadline);
        }
        Ok(result)
    }

    /// Reports the failures of a call.
    fn report(&mut self) -> Result<()> {
        let FailureList { records, error } = std::mem::take(&mut *self.failures.list());
        for (row, reason) in records {
            let origin = || format!("record {} of {:?}", row.position, self.name);
            let raw = || {
                let text = Python::attach(|py| row.record.bind(py).repr().map(|it| it.to_string()));
                text.unwrap_or_default().into_bytes()
            };
            self.bad.report(origin, raw, reason)?;
        }
        match error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns emitted records as a batch. A record that does not fit its columns is reported.
    fn batch(&self, rows: &mut Rows<EmittedRow>) -> Result<ColumnBatch> {
        let has_objects = self.output.field(0).name() == OBJECT_COLUMN;
        let mut refused = Vec::new();
        let (records, times) = Python::attach(|py| -> Result<(RecordBatch, Vec<Timestamp>)> {
            let count = rows.len();
            let failed = |error: PyErr| Error::new(ErrorCode::Internal, error.to_string());
            let mut writer = RowWriter::new(py, &self.output, count).map_err(failed)?;
            let mut times = Vec::with_capacity(count);
            for (row, time) in rows.drain_front(count) {
                let value = row.0.into_bound(py);
                let written = match has_objects {
                    true => writer.append_value(&value),
                    false => writer.append(&value),
                };
                match written {
                    Ok(()) => times.push(time),
                    Err(reason) => refused.push((value.to_string(), reason)),
                }
            }
            Ok((writer.finish()?, times))
        })?;
        for (record, reason) in refused {
            let origin = || format!("an emitted record of {:?}", self.name);
            let reason = format!("the emitted record does not fit: {reason}");
            self.bad.report(origin, || record.into_bytes(), reason)?;
        }
        ColumnBatch::new(records, times)
    }

    /// Calls the operator with the rows that wait. Returns true if none is left.
    fn process_waiting(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.waiting.is_empty() {
            if !outbox.accepts_chunk(Ordinal::FIRST) {
                return Ok(false);
            }
            self.call(outbox, |rows, waiting, own| {
                rows.process(Ordinal::FIRST, waiting, own)
            })?;
        }
        Ok(self.waiting.is_empty())
    }

    /// Calls the operator unless rows wait or there is no room.
    fn call_if_free(
        &mut self,
        outbox: &mut Outbox,
        call: impl FnOnce(&mut RowsP, &mut Outbox) -> Result<Progress>,
    ) -> Result<Progress> {
        if !self.process_waiting(outbox)? || !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        self.call(outbox, |rows, _, own| call(rows, own))
    }
}

impl Processor for KeyedFunctionP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.metrics.attach(context);
        self.rows.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.process_waiting(outbox)? || !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let (records, times) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let keys = self.key.keys(&records)?;
        let read = Python::attach(|py| -> PyResult<Vec<Py<PyAny>>> {
            let rows = self.reader.read(py, &records)?;
            Ok(rows.iter().map(Bound::unbind).collect())
        });
        let read = read.map_err(|error| Error::new(ErrorCode::Internal, error.to_string()))?;
        let rows = (position..).zip(keys).zip(read).zip(times);
        let rows: Rows<KeyedRow> = rows
            .map(|(((position, key), record), time)| {
                let row = KeyedRow {
                    key,
                    record,
                    position,
                };
                (row, time)
            })
            .collect();
        self.waiting.take_empty();
        self.waiting.fill(Chunk::new(rows));
        self.call(outbox, |rows, waiting, own| {
            rows.process(input, waiting, own)
        })
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.call_if_free(outbox, |rows, own| rows.on_watermark(watermark, own))
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.call_if_free(outbox, |rows, own| rows.on_epoch(epoch, own))
    }

    fn on_edge_done(&mut self, ordinal: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.call_if_free(outbox, |rows, own| rows.on_edge_done(ordinal, own))
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.call_if_free(outbox, |rows, own| rows.complete(own))
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        self.call(outbox, |rows, _, own| rows.catch_up(own))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.process_waiting(outbox)? && outbox.accepts_chunk(Ordinal::FIRST) {
            self.call(outbox, |rows, _, own| rows.on_wake(own))?;
        }
        Ok(())
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.rows.unsaved_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.rows.checkpointed()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn std::any::Any + Send>> {
        Box::new(self.rows).hand_over_state()
    }
}
