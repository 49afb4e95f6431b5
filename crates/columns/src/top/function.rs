//! The first stage of a selection.

use ardea_core::Result;
use arrow_schema::Schema;

use super::top_key::TopKeyColumns;
use super::{TopLimit, TopRecords, TopSelection};
use crate::expr::BoundExpr;
use crate::record::RecordLayout;
use crate::window::{BatchPart, GroupFunction};

/// Selects records of each group.
#[derive(Clone)]
pub(crate) struct TopFunction {
    by: Vec<BoundExpr>,
    limit: TopLimit,
    layout: RecordLayout,
}

impl TopFunction {
    /// Binds a selection to a schema.
    ///
    /// # Errors
    /// An expression does not fit the schema or has no order, or values of a column's type cannot
    /// be encoded.
    pub(crate) fn bind(top: &TopRecords, schema: &Schema) -> Result<Self> {
        Ok(TopFunction {
            by: top.bind(schema)?,
            limit: top.limit(),
            layout: RecordLayout::new(schema, 0..schema.fields().len())?,
        })
    }

    /// Returns the layout of selected records.
    pub(crate) fn layout(&self) -> &RecordLayout {
        &self.layout
    }
}

impl GroupFunction for TopFunction {
    type Values = Vec<TopSelection>;
    type Acc = TopSelection;

    fn arguments(&self) -> Vec<BoundExpr> {
        self.by.clone()
    }

    fn add(&self, values: &mut Self::Values, slots: usize, part: &BatchPart<'_>) -> Result<()> {
        values.resize_with(slots, TopSelection::default);
        let keys = TopKeyColumns::new(part.arguments);
        let mut encoder = self.layout.encoder(part.records)?;
        for (group, row) in part.groups.iter().zip(part.rows.clone()) {
            values[*group as usize].add(self.limit, &keys, &mut encoder, row);
        }
        Ok(())
    }

    fn take(&self, values: &mut Self::Values, group: usize) -> TopSelection {
        std::mem::take(&mut values[group])
    }
}
