//! Records of formats with typed fields, such as Avro.

use ardea_connectors::format::{FieldRecord, FieldValue, SubsecondUnit};
use arrow_schema::{DataType, TimeUnit};

use super::Reason;
use super::builder::{ColumnBuilder, Columns};
use super::field_tree::{FieldTree, Target};

/// Reads a record into the current row.
pub(super) fn read(
    record: &dyn FieldRecord,
    wanted: &FieldTree,
    columns: &mut Columns,
) -> Result<(), Reason> {
    let mut next = 0;
    let read = record.each_field(&mut |name, value| {
        let read = match (wanted.find(name.as_bytes(), &mut next), value) {
            (None, _) => return Ok(()),
            (Some(Target::Column(index)), value) => {
                columns.next_value(*index).and_then(|it| push(it, value))
            }
            (Some(Target::Object(inner)), FieldValue::Record(record)) => {
                read(record, inner, columns)
            }
            // The columns within it are missing.
            (Some(Target::Object(_)), FieldValue::Null) => return Ok(()),
            (Some(Target::Object(_)), _) => {
                Err(format!("field {name:?}: expected a record").into())
            }
        };
        read.map_err(|reason| reason.into_string())
    });
    read.map_err(Reason::from)
}

/// Appends a value to a column.
fn push(column: &mut ColumnBuilder, value: FieldValue<'_>) -> Result<(), Reason> {
    match value {
        FieldValue::Null => column.push_null(),
        FieldValue::Bool(value) => column.push_bool(value),
        FieldValue::Integer(value) => column.push_integer(value < 0, value.unsigned_abs()),
        FieldValue::Unsigned(value) => column.push_integer(false, value),
        FieldValue::Float(value) => column.push_number(value),
        FieldValue::Text(text) => column.push_text(text.as_bytes()),
        FieldValue::Date(days) => column.push_integer(days < 0, days.unsigned_abs().into()),
        FieldValue::Timestamp(at, unit) => {
            let at = match column.data_type() {
                DataType::Timestamp(to, _) => converted(at, unit, *to)
                    .ok_or_else(|| Reason::from("a timestamp is out of range"))?,
                _ => at,
            };
            column.push_integer(at < 0, at.unsigned_abs())
        }
        FieldValue::Record(_) => Err(column.unexpected("a record")),
        FieldValue::Other(kind) => Err(column.unexpected(kind)),
    }
}

/// Returns a timestamp in the unit of a column; `None` if it is out of range.
fn converted(at: i64, from: SubsecondUnit, to: TimeUnit) -> Option<i64> {
    let nanos = match to {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    match from.nanos() >= nanos {
        true => at.checked_mul(from.nanos() / nanos),
        false => Some(at.div_euclid(nanos / from.nanos())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ardea_connectors::format::BatchFields;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use arrow_schema::{Field, Schema};

    use super::*;
    use crate::decode::{ColumnDecoder, FieldPath};

    /// A record with the field `id`, and an object `bid` with a time and a price.
    struct Event(FieldValue<'static>, i64, FieldValue<'static>);

    struct BidOf<'a>(&'a Event);

    impl FieldRecord for Event {
        fn each_field(
            &self,
            take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
        ) -> Result<(), String> {
            take("bid", FieldValue::Record(&BidOf(self)))?;
            take("skipped", FieldValue::Other("a map"))?;
            take("id", self.0)
        }
    }

    impl FieldRecord for BidOf<'_> {
        fn each_field(
            &self,
            take: &mut dyn FnMut(&str, FieldValue<'_>) -> Result<(), String>,
        ) -> Result<(), String> {
            take("at", FieldValue::Timestamp(self.0.1, SubsecondUnit::Milli))?;
            take("price", self.0.2)
        }
    }

    fn decoder() -> ColumnDecoder {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("bid.at", micros, true),
            Field::new("bid.price", DataType::Float64, true),
        ]);
        let paths = ["id", "bid.at", "bid.price"].map(FieldPath::from);
        ColumnDecoder::json_at(Arc::new(schema), &paths).unwrap()
    }

    #[test]
    fn typed_fields_are_read_by_their_paths_and_timestamps_in_the_unit_of_the_column() {
        let mut decoder = decoder();
        let event = |id, at, price| Event(FieldValue::Integer(id), at, price);
        let good = [
            event(1, 7, FieldValue::Float(2.5)),
            event(-2, -7, FieldValue::Null),
            event(3, 0, FieldValue::Unsigned(4)),
        ];
        for event in &good {
            assert_eq!(decoder.decode_fields(event), Ok(()));
        }
        let batch = decoder.finish().unwrap();
        let ids = batch.column(0).as_primitive::<Int64Type>();
        assert_eq!(ids.values(), &[1, -2, 3]);
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.values(), &[7_000, -7_000, 0]);
        assert_eq!(batch.column(2).null_count(), 1);
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_nothing() {
        let mut decoder = decoder();
        let bad = [
            Event(FieldValue::Null, 0, FieldValue::Null),
            Event(FieldValue::Text("1"), 0, FieldValue::Null),
            Event(FieldValue::Unsigned(u64::MAX), 0, FieldValue::Null),
            Event(FieldValue::Integer(1), i64::MAX, FieldValue::Null),
            Event(FieldValue::Integer(1), 0, FieldValue::Other("bytes")),
        ];
        for event in &bad {
            assert!(decoder.decode_fields(event).is_err());
        }
        assert_eq!(decoder.rows(), 0);
        let good = Event(FieldValue::Integer(1), 0, FieldValue::Null);
        assert_eq!(decoder.decode_fields(&good), Ok(()));
        assert_eq!(decoder.finish().unwrap().num_rows(), 1);
    }
}
