//! Lines of text, and timestamps and dates given as text.

use arrow_array::types::Date32Type;
use arrow_cast::parse::{Parser, string_to_timestamp_nanos};
use arrow_schema::TimeUnit;

use super::builder::Columns;
use super::{Reason, invalid_utf8};

/// Returns the timestamp of a text of RFC 3339, such as `2015-07-15T00:00:00Z`. A text without a
/// time zone is in UTC, and one without a time is midnight.
pub(super) fn parse_timestamp(text: &[u8], unit: TimeUnit) -> Result<i64, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| Reason::from("invalid UTF-8"))?;
    let nanos = string_to_timestamp_nanos(text)
        .map_err(|_| Reason::from(format!("{text:?} is no timestamp of RFC 3339")))?;
    let per_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    Ok(nanos.div_euclid(per_unit))
}

/// Returns the days since the Unix epoch of a date such as `2015-07-15`.
pub(super) fn parse_date(text: &[u8]) -> Result<i64, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| Reason::from("invalid UTF-8"))?;
    let days = Date32Type::parse(text);
    days.map(i64::from)
        .ok_or_else(|| Reason::from(format!("{text:?} is no date like 2015-07-15")))
}

/// Reads a line into the current row, which has one column.
pub(super) fn read_line(line: &[u8], columns: &mut Columns) -> Result<bool, Reason> {
    if let Err(error) = std::str::from_utf8(line) {
        return Err(invalid_utf8(error.valid_up_to()));
    }
    columns.next_value(0)?.push_text(line)?;
    Ok(true)
}
