//! Records in columns as messages for sinks.

use std::sync::Arc;

use ardea_columns::{ColumnBatch, Expr, write_json_lines};
use ardea_core::{
    BadRecords, Bounded, Chunk, Error, ErrorCode, Inbox, Instance, InstanceContext, OnError,
    Ordinal, Outbox, Processor, ProcessorSupplier, Result, Rows,
};
use ardea_pipeline::{Stream, Timed};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use serde::{Deserialize, Serialize};

use crate::lowering::Branch;

/// A record as a message.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct SinkMessage {
    /// The value, if the sink has one.
    pub value: Option<Vec<u8>>,
    /// The values of the sink's expressions, as texts or bytes.
    pub cells: Vec<Option<Vec<u8>>>,
}

/// The parts of a message that a sink needs.
pub(super) struct MessageParts {
    /// The value.
    pub value: MessageValue,
    /// The expressions of the cells.
    pub cells: Vec<Expr>,
    /// The number of cells, from the first one, that must not be null.
    pub required_cells: usize,
    /// The treatment of records that are no message.
    pub policy: OnError,
}

/// The value of a message.
pub(super) enum MessageValue {
    /// None.
    Absent,
    /// All columns as a JSON object.
    Json,
    /// The text or bytes of an expression.
    Column(Expr),
}

impl MessageValue {
    /// Returns the value of an expression; all columns by default.
    pub(super) fn of(value: Option<Expr>) -> Self {
        value.map_or(MessageValue::Json, MessageValue::Column)
    }
}

/// The source of the bytes of a value in a batch.
#[derive(Clone, Copy)]
enum ValueForm {
    Absent,
    /// The first columns, as many as these, as JSON.
    Json(usize),
    /// This column.
    Column(usize),
}

/// Converts a stream to messages. With `has_lines`, the value is the only column.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if an expression does not fit the columns.
pub(super) fn messages(
    input: Branch,
    parts: MessageParts,
    has_lines: bool,
) -> Result<Stream<SinkMessage, Bounded, Timed>> {
    if has_lines && (!parts.cells.is_empty() || !matches!(parts.value, MessageValue::Json)) {
        let what = "the records are objects, and the options of this sink are expressions";
        return Err(Error::new(ErrorCode::InvalidJob, what).hint(
            "give the types to the step that makes them: map(f, schema={…}) or columns({…})",
        ));
    }
    let names = input
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone());
    let mut columns: Vec<Expr> = names.map(Expr::Column).collect();
    let form = match parts.value {
        MessageValue::Absent => ValueForm::Absent,
        MessageValue::Json if has_lines => ValueForm::Column(0),
        MessageValue::Json => ValueForm::Json(columns.len()),
        MessageValue::Column(value) => {
            columns.push(value.alias("__value__"));
            ValueForm::Column(columns.len() - 1)
        }
    };
    let first_cell = columns.len();
    let cells = parts.cells.into_iter().enumerate();
    columns.extend(cells.map(|(index, cell)| cell.alias(format!("__cell_{index}__"))));
    let selected = input.table.select(columns);
    selected.schema()?;
    let (required, policy) = (parts.required_cells, parts.policy);
    let make: Arc<dyn ProcessorSupplier> =
        Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(MessagesP {
                form,
                first_cell,
                required,
                bad: BadRecords::new(policy),
            }))
        });
    Ok(selected.into_stream().extend_with("messages", make))
}

/// Converts batches to messages.
struct MessagesP {
    form: ValueForm,
    first_cell: usize,
    required: usize,
    bad: BadRecords,
}

impl MessagesP {
    /// Returns the values of a batch; `None` for a record that has none. Reports such records.
    fn values(&self, records: &RecordBatch, position: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let count = records.num_rows();
        match self.form {
            ValueForm::Absent => Ok(vec![None; count]),
            ValueForm::Column(index) => texts_of(records.column(index)),
            ValueForm::Json(columns) => {
                let written: Vec<usize> = (0..columns).collect();
                let object = records.project(&written).map_err(internal)?;
                let (mut lines, mut refused) = (Vec::new(), Vec::new());
                write_json_lines(&object, &mut lines, |row, why| refused.push((row, why)))?;
                let mut bad = refused.iter().map(|(row, _)| *row).peekable();
                let mut lines = lines.split(|byte| *byte == b'\n');
                let values = (0..count).map(|row| match bad.next_if_eq(&row) {
                    Some(_) => None,
                    None => lines.next().map(<[u8]>::to_vec),
                });
                let values = values.collect();
                for (row, reason) in refused {
                    self.report(records, position, row, reason)?;
                }
                Ok(values)
            }
        }
    }

    fn report(&self, records: &RecordBatch, position: u64, row: usize, why: String) -> Result<()> {
        let origin = || format!("record {}", position + row as u64);
        let raw = || format!("{:?}", records.slice(row, 1).columns()).into_bytes();
        self.bad.report(origin, raw, why)
    }
}

impl Processor for MessagesP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let (records, times) = inbox.batch::<ColumnBatch>()?.take().into_parts();
        let values = self.values(&records, position)?;
        let cells = records.columns()[self.first_cell..].iter().map(texts_of);
        let mut cells = cells.collect::<Result<Vec<_>>>()?;
        let mut rows = Rows::with_capacity(records.num_rows());
        for (row, (value, time)) in values.into_iter().zip(times).enumerate() {
            if matches!(self.form, ValueForm::Json(_)) && value.is_none() {
                continue;
            }
            let cells: Vec<_> = cells.iter_mut().map(|cell| cell[row].take()).collect();
            if let Some(missing) = cells[..self.required].iter().position(Option::is_none) {
                let why = format!("argument {} of the sink is null", missing + 1);
                self.report(&records, position, row, why)?;
                continue;
            }
            rows.push(SinkMessage { value, cells }, time);
        }
        if !rows.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(rows))?;
        }
        Ok(())
    }
}

/// Returns the values of a column as texts, or as their bytes.
fn texts_of(values: &ArrayRef) -> Result<Vec<Option<Vec<u8>>>> {
    let to = match values.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        _ => DataType::Utf8,
    };
    let values = cast(values, &to).map_err(internal)?;
    Ok(match to {
        DataType::Binary => {
            let values = values.as_binary::<i32>().iter();
            values.map(|value| value.map(<[u8]>::to_vec)).collect()
        }
        _ => {
            let values = values.as_string::<i32>().iter();
            values
                .map(|value| value.map(|text| text.as_bytes().to_vec()))
                .collect()
        }
    })
}

fn internal(error: ArrowError) -> Error {
    Error::new(ErrorCode::Internal, "a column has no text").because(error)
}
