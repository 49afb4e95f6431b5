//! Records in columns as objects of Python.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float64Type, Int64Type, TimestampMicrosecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// The name of the only column of streams whose records are objects of Python, as bytes.
pub(crate) const OBJECT_COLUMN: &str = "__object__";

/// A reader of the rows of a schema as dictionaries. The rows of a stream of objects are the bytes
/// of these objects.
pub(crate) struct RowReader {
    columns: Vec<ReadColumn>,
    has_objects: bool,
}

/// A column, and the type of its values in Python.
struct ReadColumn {
    name: String,
    kind: ValueKind,
}

/// The type of the values of a column in Python.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueKind {
    Bool,
    Int,
    UInt,
    Float,
    Text,
    Bytes,
    /// Times without a zone.
    Time,
    /// Times in UTC.
    ZonedTime,
    Date,
}

impl ValueKind {
    /// Returns the type of the values of a column.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if its values have no type in Python.
    pub(crate) fn of(field: &Field) -> Result<Self> {
        let kind = field.data_type();
        Ok(match kind {
            DataType::Boolean => ValueKind::Bool,
            _ if kind.is_signed_integer() => ValueKind::Int,
            _ if kind.is_unsigned_integer() => ValueKind::UInt,
            _ if kind.is_floating() => ValueKind::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ValueKind::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ValueKind::Bytes,
            DataType::Date32 => ValueKind::Date,
            DataType::Timestamp(unit, zone) if *unit != TimeUnit::Nanosecond => match zone {
                None => ValueKind::Time,
                Some(_) => ValueKind::ZonedTime,
            },
            _ => {
                let name = field.name();
                let what =
                    format!("the column {name:?} has the type {kind}, which functions cannot use");
                return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                    "cast it first, for example to \"timestamp[us]\", or use a batch function",
                ));
            }
        })
    }

    /// Returns the type in which values are read and written.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            ValueKind::Bool => DataType::Boolean,
            ValueKind::Int => DataType::Int64,
            ValueKind::UInt => DataType::UInt64,
            ValueKind::Float => DataType::Float64,
            ValueKind::Text => DataType::Utf8,
            ValueKind::Bytes => DataType::Binary,
            ValueKind::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            ValueKind::ZonedTime => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ValueKind::Date => DataType::Date32,
        }
    }
}

impl RowReader {
    /// Creates a reader of the rows of `schema`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the values of a column have no type in Python.
    pub(crate) fn new(schema: &Schema) -> Result<Self> {
        let fields = schema.fields().iter();
        let columns = fields.map(|field| {
            Ok(ReadColumn {
                name: field.name().clone(),
                kind: ValueKind::of(field)?,
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let has_objects = columns.len() == 1 && columns[0].name == OBJECT_COLUMN;
        Ok(RowReader {
            columns,
            has_objects,
        })
    }

    /// Returns the rows of a batch.
    pub(crate) fn read<'py>(
        &self,
        py: Python<'py>,
        batch: &RecordBatch,
    ) -> PyResult<Bound<'py, PyList>> {
        let columns = self.columns.iter().zip(batch.columns());
        let columns = columns.map(|(column, values)| {
            let values = ColumnValues::new(py, column.kind, values)?;
            Ok((PyString::intern(py, &column.name), values))
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let rows = PyList::empty(py);
        for row in 0..batch.num_rows() {
            match &columns[..] {
                [(_, values)] if self.has_objects => rows.append(values.get(py, row)?)?,
                columns => {
                    let record = PyDict::new(py);
                    for (name, values) in columns {
                        record.set_item(name, values.get(py, row)?)?;
                    }
                    rows.append(record)?;
                }
            }
        }
        Ok(rows)
    }
}

/// The values of a column in a batch.
struct ColumnValues<'py> {
    kind: ValueKind,
    values: ArrayRef,
    /// The function that makes times or dates.
    convert: Option<Bound<'py, PyAny>>,
}

impl<'py> ColumnValues<'py> {
    fn new(py: Python<'py>, kind: ValueKind, values: &ArrayRef) -> PyResult<Self> {
        let to = kind.data_type();
        let values = match values.data_type() == &to {
            true => Arc::clone(values),
            false => cast(values, &to).map_err(|error| PyValueError::new_err(error.to_string()))?,
        };
        let function = match kind {
            ValueKind::Time => Some("datetime_of"),
            ValueKind::ZonedTime => Some("aware_datetime_of"),
            ValueKind::Date => Some("date_of"),
            _ => None,
        };
        let convert = function.map(|name| py.import("ardea.times")?.getattr(name));
        Ok(ColumnValues {
            kind,
            values,
            convert: convert.transpose()?,
        })
    }

    /// Returns the value of a row.
    fn get(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let values = &self.values;
        if values.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        let converted = |value: i64| match &self.convert {
            Some(convert) => convert.call1((value,)),
            None => Ok(PyInt::new(py, value).into_any()),
        };
        Ok(match self.kind {
            ValueKind::Bool => PyBool::new(py, values.as_boolean().value(row))
                .to_owned()
                .into_any(),
            ValueKind::Int => {
                PyInt::new(py, values.as_primitive::<Int64Type>().value(row)).into_any()
            }
            ValueKind::UInt => {
                PyInt::new(py, values.as_primitive::<UInt64Type>().value(row)).into_any()
            }
            ValueKind::Float => {
                PyFloat::new(py, values.as_primitive::<Float64Type>().value(row)).into_any()
            }
            ValueKind::Text => PyString::new(py, values.as_string::<i32>().value(row)).into_any(),
            ValueKind::Bytes => PyBytes::new(py, values.as_binary::<i32>().value(row)).into_any(),
            ValueKind::Time | ValueKind::ZonedTime => {
                let values = values.as_primitive::<TimestampMicrosecondType>();
                converted(values.value(row))?
            }
            ValueKind::Date => {
                let values = values.as_primitive::<Date32Type>();
                converted(values.value(row).into())?
            }
        })
    }
}
