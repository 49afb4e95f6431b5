//! Computation of columns.

use std::sync::Arc;

use ardea_core::{
    Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Result,
};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Fields, Schema, SchemaRef};

use super::expr_list::ExprList;
use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::error::arrow_error;
use crate::expr::BoundExpr;

/// Replaces the columns of records by the values of expressions. Event times stay.
///
/// A record for which an expression has no value is handled by the error policy; the default is
/// dead letters.
pub struct ProjectP {
    columns: ExprList,
    schema: SchemaRef,
}

impl ProjectP {
    /// Creates a step that computes these columns.
    ///
    /// # Errors
    /// Those of [`schema_of`](Self::schema_of).
    pub fn new(columns: Vec<BoundExpr>) -> Result<Self> {
        Ok(ProjectP {
            schema: ProjectP::schema_of(&columns)?,
            columns: ExprList::new(columns),
        })
    }

    /// Returns the schema of the results.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if two columns have one name.
    pub fn schema_of(columns: &[BoundExpr]) -> Result<SchemaRef> {
        let fields: Fields = columns.iter().map(|it| Arc::clone(it.field())).collect();
        for (index, field) in fields.iter().enumerate() {
            if fields[..index]
                .iter()
                .any(|other| other.name() == field.name())
            {
                let what = format!("two columns have the name {:?}", field.name());
                return Err(
                    Error::new(ErrorCode::InvalidJob, what).hint("name one of them by `alias`")
                );
            }
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.columns = self.columns.on_error(policy);
        self
    }
}

impl Processor for ProjectP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.columns.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let (batch, values) = self.columns.evaluate(batch, input, position)?;
        let (_, times) = batch.into_parts();
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let schema = Arc::clone(&self.schema);
        let records = RecordBatch::try_new_with_options(schema, values, &options)
            .map_err(|error| arrow_error("computed columns do not form a batch", error))?;
        emit(outbox, Ordinal::FIRST, ColumnBatch::new(records, times)?)
    }
}
