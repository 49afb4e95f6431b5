//! Evaluation of expressions with errors of single records.

use std::ops::Range;

use ardea_core::{InstanceContext, OnError, Ordinal, Result};
use ardea_operators::RecordErrors;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::ArrowError;

use crate::batch::ColumnBatch;
use crate::error::arrow_error;
use crate::expr::BoundExpr;

/// ExprList over the records of an input. A record for which any of them has no value is handled
/// by the error policy and removed.
pub(crate) struct ExprList {
    expressions: Vec<BoundExpr>,
    errors: RecordErrors<RecordBatch>,
}

impl ExprList {
    pub(crate) fn new(expressions: Vec<BoundExpr>) -> Self {
        ExprList {
            expressions,
            errors: record_errors(OnError::DeadLetter),
        }
    }

    pub(crate) fn on_error(mut self, policy: OnError) -> Self {
        self.errors = record_errors(policy);
        self
    }

    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.errors.attach(context);
    }

    pub(crate) fn errors(&self) -> &RecordErrors<RecordBatch> {
        &self.errors
    }

    fn values(&self, records: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        let expressions = self.expressions.iter();
        expressions
            .map(|expression| expression.evaluate(records))
            .collect()
    }

    /// Evaluates the expressions on a batch whose first record is at `position` of the input.
    /// Returns the records that have all values, and the values.
    pub(crate) fn evaluate(
        &self,
        batch: ColumnBatch,
        input: Ordinal,
        position: u64,
    ) -> Result<(ColumnBatch, Vec<ArrayRef>)> {
        if let Ok(values) = self.values(batch.records()) {
            return Ok((batch, values));
        }
        let mut keep = vec![true; batch.len()];
        self.find_bad(batch.records(), 0..batch.len(), &mut |row, error| {
            keep[row] = false;
            let record = batch.records().slice(row, 1);
            self.errors
                .handle(input, position + row as u64, &record, error)
        })?;
        let batch = batch.filter(&BooleanArray::from(keep))?;
        let values = self
            .values(batch.records())
            .map_err(|error| arrow_error("an expression fails on a whole batch only", error))?;
        Ok((batch, values))
    }

    /// Calls `report` for each record of `rows` that has no values. Bisects the batch.
    fn find_bad(
        &self,
        records: &RecordBatch,
        rows: Range<usize>,
        report: &mut impl FnMut(usize, ArrowError) -> Result<()>,
    ) -> Result<()> {
        let Err(error) = self.values(&records.slice(rows.start, rows.len())) else {
            return Ok(());
        };
        if rows.len() <= 1 {
            return report(rows.start, error);
        }
        let middle = rows.start + rows.len() / 2;
        self.find_bad(records, rows.start..middle, report)?;
        self.find_bad(records, middle..rows.end, report)
    }
}

/// Returns a handler for records in columns. Dead letters have the record as text.
pub fn record_errors(policy: OnError) -> RecordErrors<RecordBatch> {
    RecordErrors::new(policy, |record| text_of(record).into_bytes())
}

/// Returns the columns of a single record as text.
pub(crate) fn text_of(record: &RecordBatch) -> String {
    let options = FormatOptions::new().with_null("null");
    let columns = record.schema_ref().fields().iter().zip(record.columns());
    let columns = columns.map(|(field, values)| {
        let value = ArrayFormatter::try_new(values, &options)
            .and_then(|formatter| formatter.value(0).try_to_string());
        let value = value.unwrap_or_else(|_| "?".to_string());
        format!("{}: {value}", field.name())
    });
    columns.collect::<Vec<_>>().join(", ")
}
