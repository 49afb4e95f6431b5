//! Selection of records by a condition.

use ardea_core::{Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Result};
use arrow_array::cast::AsArray;

use super::expr_list::ExprList;
use crate::batch::{emit, take_if_free};
use crate::expr::BoundExpr;

/// Emits the records for which a condition is true. Null counts as false.
///
/// A record for which the condition has no value is handled by the error policy; the default is
/// dead letters.
pub struct ColumnFilterP {
    condition: ExprList,
}

impl ColumnFilterP {
    /// Creates a filter by a [condition](crate::Expr::bind_condition).
    pub fn new(condition: BoundExpr) -> Self {
        ColumnFilterP {
            condition: ExprList::new(vec![condition]),
        }
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.condition = self.condition.on_error(policy);
        self
    }
}

impl Processor for ColumnFilterP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.condition.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let (batch, values) = self.condition.evaluate(batch, input, position)?;
        let keep = values[0].as_boolean();
        match keep.true_count() == batch.len() {
            true => emit(outbox, Ordinal::FIRST, batch),
            false => emit(outbox, Ordinal::FIRST, batch.filter(keep)?),
        }
    }
}
