//! Objects of Python as records in columns.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::row_reader::ValueKind;

/// The reason why a value does not fit its column.
type Reason = String;

/// The options of casts to the type of a column: a value that does not fit is an error.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow_cast::display::FormatOptions::new(),
};

/// A writer of rows to the columns of a schema.
///
/// A row is a dictionary, or an object with an attribute for each column. For a schema of one
/// column, [`append_value`](Self::append_value) takes the values themselves.
pub(crate) struct RowWriter<'py> {
    schema: SchemaRef,
    columns: Vec<WrittenColumn<'py>>,
    rows: usize,
}

/// A column under construction.
struct WrittenColumn<'py> {
    name: Bound<'py, PyString>,
    field: Arc<Field>,
    kind: ValueKind,
    cells: Cells,
    /// The function that reads times or dates.
    convert: Option<Bound<'py, PyAny>>,
}

/// The values of a column.
enum Cells {
    Bool(Vec<Option<bool>>),
    Int(Vec<Option<i64>>),
    UInt(Vec<Option<u64>>),
    Float(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl<'py> RowWriter<'py> {
    /// Creates a writer with room for `rows` rows.
    pub(crate) fn new(py: Python<'py>, schema: &SchemaRef, rows: usize) -> PyResult<Self> {
        let mut columns = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let kind =
                ValueKind::of(field).map_err(|error| crate::failure::raise(py, &error, None))?;
            let function = match kind {
                ValueKind::Time | ValueKind::ZonedTime => Some("micros_of"),
                ValueKind::Date => Some("days_of"),
                _ => None,
            };
            let convert = function.map(|name| py.import("ardea.times")?.getattr(name));
            columns.push(WrittenColumn {
                name: PyString::intern(py, field.name()),
                field: Arc::clone(field),
                kind,
                cells: Cells::new(kind, rows),
                convert: convert.transpose()?,
            });
        }
        Ok(RowWriter {
            schema: Arc::clone(schema),
            columns,
            rows: 0,
        })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// The reason why the row does not fit the columns; it is left out.
    pub(crate) fn append(&mut self, row: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let result = self.append_row(row);
        self.complete(result)
    }

    /// Appends a row of a single column by its value.
    ///
    /// # Errors
    /// The reason why the value does not fit the column; it is left out.
    pub(crate) fn append_value(&mut self, value: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let result = match &mut self.columns[..] {
            [column] => column.append(Some(value)),
            columns => Err(format!("a value is given for {} columns", columns.len())),
        };
        self.complete(result)
    }

    fn complete(&mut self, appended: Result<(), Reason>) -> Result<(), Reason> {
        match appended {
            Ok(()) => self.rows += 1,
            Err(_) => self
                .columns
                .iter_mut()
                .for_each(|it| it.cells.truncate(self.rows)),
        }
        appended
    }

    fn append_row(&mut self, row: &Bound<'py, PyAny>) -> Result<(), Reason> {
        let Ok(record) = row.cast::<PyDict>() else {
            if row.is_none() {
                return Err("expected a dictionary, found None".into());
            }
            return self.append_attributes(row);
        };
        let mut found = 0;
        for column in &mut self.columns {
            let value = record.get_item(&column.name);
            let value = value.map_err(|error| error.to_string())?;
            found += usize::from(value.is_some());
            column.append(value.as_ref())?;
        }
        match record.len() == found {
            true => Ok(()),
            false => Err(self.unknown_field(record)),
        }
    }

    fn append_attributes(&mut self, row: &Bound<'py, PyAny>) -> Result<(), Reason> {
        for column in &mut self.columns {
            let value = row.getattr(&column.name).map_err(|_| {
                let class = row.get_type().name();
                let class = class.map_or_else(|_| "?".to_string(), |name| name.to_string());
                format!(
                    "expected a dictionary or an object with the attribute {:?}, found {class}",
                    column.field.name()
                )
            })?;
            column.append(Some(&value))?;
        }
        Ok(())
    }

    #[cold]
    fn unknown_field(&self, record: &Bound<'py, PyDict>) -> Reason {
        let is_known = |key: &str| self.columns.iter().any(|it| it.field.name() == key);
        let keys = record.keys().iter().map(|key| key.to_string());
        let unknown: Vec<_> = keys.filter(|key| !is_known(key)).collect();
        let known: Vec<_> = self
            .columns
            .iter()
            .map(|it| it.field.name().as_str())
            .collect();
        format!(
            "there is no column {}; the columns are {}",
            unknown.join(", "),
            known.join(", ")
        )
    }

    /// Returns the rows as a batch.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if a value is out of range of its column.
    pub(crate) fn finish(self) -> Result<RecordBatch> {
        let failed = |error: arrow_schema::ArrowError| {
            Error::new(ErrorCode::UserError, "values do not fit their columns")
                .because(error)
                .hint("give the columns other types")
        };
        let arrays = self.columns.into_iter().map(WrittenColumn::finish);
        let arrays = arrays.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(self.schema, arrays, &options).map_err(failed)
    }
}

impl<'py> WrittenColumn<'py> {
    /// Appends a value; `None` if the row has none.
    fn append(&mut self, value: Option<&Bound<'py, PyAny>>) -> Result<(), Reason> {
        let Some(value) = value.filter(|value| !value.is_none()) else {
            if !self.field.is_nullable() {
                return Err(format!("the column {:?} has no value", self.field.name()));
            }
            self.cells.push_null();
            return Ok(());
        };
        let value = match &self.convert {
            Some(convert) => &convert
                .call1((value,))
                .map_err(|_| self.unexpected(value))?,
            None => value,
        };
        let is_pushed = match &mut self.cells {
            Cells::Bool(cells) => value.extract().map(|it| cells.push(Some(it))).is_ok(),
            Cells::Int(cells) => {
                let value = value.extract::<i64>().ok();
                let value = value.filter(|it| is_in_range(self.field.data_type(), (*it).into()));
                value.map(|it| cells.push(Some(it))).is_some()
            }
            Cells::UInt(cells) => {
                let value = value.extract::<u64>().ok();
                let value = value.filter(|it| is_in_range(self.field.data_type(), (*it).into()));
                value.map(|it| cells.push(Some(it))).is_some()
            }
            Cells::Float(cells) => value.extract().map(|it| cells.push(Some(it))).is_ok(),
            Cells::Text(cells) => value.extract().map(|it| cells.push(Some(it))).is_ok(),
            Cells::Bytes(cells) => value
                .cast::<PyBytes>()
                .map(|it| cells.push(Some(it.as_bytes().to_vec())))
                .is_ok(),
        };
        match is_pushed {
            true => Ok(()),
            false => Err(self.unexpected(value)),
        }
    }

    #[cold]
    fn unexpected(&self, value: &Bound<'py, PyAny>) -> Reason {
        let (name, kind) = (self.field.name(), self.field.data_type());
        let found = value
            .repr()
            .map_or_else(|_| "?".to_string(), |it| it.to_string());
        let shown: String = found.chars().take(80).collect();
        format!("the column {name:?} has the type {kind}, and the value is {shown}")
    }

    fn finish(self) -> Result<ArrayRef, arrow_schema::ArrowError> {
        let array: ArrayRef = match self.cells {
            Cells::Bool(cells) => Arc::new(BooleanArray::from(cells)),
            Cells::Int(cells) => match self.kind {
                ValueKind::Time => Arc::new(TimestampMicrosecondArray::from(cells)),
                ValueKind::ZonedTime => {
                    Arc::new(TimestampMicrosecondArray::from(cells).with_timezone("UTC"))
                }
                ValueKind::Date => {
                    let days = cells.into_iter().map(|it| it.map(|days| days as i32));
                    Arc::new(days.collect::<Date32Array>())
                }
                _ => Arc::new(Int64Array::from(cells)),
            },
            Cells::UInt(cells) => Arc::new(UInt64Array::from(cells)),
            Cells::Float(cells) => Arc::new(Float64Array::from(cells)),
            Cells::Text(cells) => Arc::new(StringArray::from(cells)),
            Cells::Bytes(cells) => {
                Arc::new(cells.iter().map(Option::as_deref).collect::<BinaryArray>())
            }
        };
        let to: &DataType = self.field.data_type();
        match array.data_type() == to {
            true => Ok(array),
            false => cast_with_options(&array, to, &STRICT),
        }
    }
}

/// Returns true if a column of the type `kind` can have the value.
fn is_in_range(kind: &DataType, value: i128) -> bool {
    match kind {
        DataType::Int8 => i8::try_from(value).is_ok(),
        DataType::Int16 => i16::try_from(value).is_ok(),
        DataType::Int32 | DataType::Date32 => i32::try_from(value).is_ok(),
        DataType::UInt8 => u8::try_from(value).is_ok(),
        DataType::UInt16 => u16::try_from(value).is_ok(),
        DataType::UInt32 => u32::try_from(value).is_ok(),
        _ => true,
    }
}

impl Cells {
    fn new(kind: ValueKind, rows: usize) -> Self {
        match kind {
            ValueKind::Bool => Cells::Bool(Vec::with_capacity(rows)),
            ValueKind::Int | ValueKind::Time | ValueKind::ZonedTime | ValueKind::Date => {
                Cells::Int(Vec::with_capacity(rows))
            }
            ValueKind::UInt => Cells::UInt(Vec::with_capacity(rows)),
            ValueKind::Float => Cells::Float(Vec::with_capacity(rows)),
            ValueKind::Text => Cells::Text(Vec::with_capacity(rows)),
            ValueKind::Bytes => Cells::Bytes(Vec::with_capacity(rows)),
        }
    }

    fn push_null(&mut self) {
        match self {
            Cells::Bool(cells) => cells.push(None),
            Cells::Int(cells) => cells.push(None),
            Cells::UInt(cells) => cells.push(None),
            Cells::Float(cells) => cells.push(None),
            Cells::Text(cells) => cells.push(None),
            Cells::Bytes(cells) => cells.push(None),
        }
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Cells::Bool(cells) => cells.truncate(rows),
            Cells::Int(cells) => cells.truncate(rows),
            Cells::UInt(cells) => cells.truncate(rows),
            Cells::Float(cells) => cells.truncate(rows),
            Cells::Text(cells) => cells.truncate(rows),
            Cells::Bytes(cells) => cells.truncate(rows),
        }
    }
}
