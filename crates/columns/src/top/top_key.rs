//! The values by which records are ordered.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::window::ColumnExtreme;

/// The values by which a record is ordered; `None` is null.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TopKey(Box<[Option<ColumnExtreme>]>);

impl TopKey {
    pub(super) fn compare(&self, other: &TopKey) -> Ordering {
        let mut pairs = self.0.iter().zip(&other.0);
        let first = pairs.find_map(|(a, b)| match compare(a, b) {
            Ordering::Equal => None,
            unequal => Some(unequal),
        });
        first.unwrap_or(Ordering::Equal)
    }
}

fn compare(a: &Option<ColumnExtreme>, b: &Option<ColumnExtreme>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.compare(b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The values by which the records of a batch are ordered.
pub(super) struct TopKeyColumns<'a>(Vec<TopKeyColumn<'a>>);

/// The values of one expression.
enum TopKeyColumn<'a> {
    Integers(&'a Int64Array),
    Unsigned(&'a UInt64Array),
    Floats(&'a Float64Array),
    Texts(&'a StringArray),
    /// Values without an order, which [`TopRecords`](super::TopRecords) refuses.
    Others,
}

impl<'a> TopKeyColumns<'a> {
    pub(super) fn new(columns: &'a [ArrayRef]) -> Self {
        let columns = columns.iter().map(|values| match values.data_type() {
            DataType::Int64 => TopKeyColumn::Integers(values.as_primitive::<Int64Type>()),
            DataType::UInt64 => TopKeyColumn::Unsigned(values.as_primitive::<UInt64Type>()),
            DataType::Float64 => TopKeyColumn::Floats(values.as_primitive::<Float64Type>()),
            DataType::Utf8 => TopKeyColumn::Texts(values.as_string::<i32>()),
            _ => TopKeyColumn::Others,
        });
        TopKeyColumns(columns.collect())
    }

    /// Returns the values of a record.
    pub(super) fn key(&self, row: usize) -> TopKey {
        TopKey(self.0.iter().map(|column| column.value(row)).collect())
    }

    /// Compares the values of a record with others. Does not copy them, where the first ones
    /// differ.
    #[inline]
    pub(super) fn compare(&self, row: usize, other: &TopKey) -> Ordering {
        for (column, other) in self.0.iter().zip(&other.0) {
            let ordering = column.compare(row, other);
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }
}

impl TopKeyColumn<'_> {
    fn value(&self, row: usize) -> Option<ColumnExtreme> {
        match self {
            TopKeyColumn::Integers(values) => {
                let value = values.is_valid(row).then(|| values.value(row));
                value.map(|value| ColumnExtreme::Integer(value.into()))
            }
            TopKeyColumn::Unsigned(values) => {
                let value = values.is_valid(row).then(|| values.value(row));
                value.map(|value| ColumnExtreme::Integer(value.into()))
            }
            TopKeyColumn::Floats(values) => {
                let value = values.is_valid(row).then(|| values.value(row));
                value.map(ColumnExtreme::Float)
            }
            TopKeyColumn::Texts(values) => {
                let value = values.is_valid(row).then(|| values.value(row));
                value.map(|value| ColumnExtreme::Text(value.into()))
            }
            TopKeyColumn::Others => None,
        }
    }

    #[inline]
    fn compare(&self, row: usize, other: &Option<ColumnExtreme>) -> Ordering {
        match (self, other) {
            (TopKeyColumn::Texts(values), Some(ColumnExtreme::Text(other)))
                if values.is_valid(row) =>
            {
                values.value(row).cmp(other)
            }
            _ => compare(&self.value(row), other),
        }
    }
}
