//! Aggregates bound to a stream, with the steps of their two stages.

use std::sync::Arc;

use ardea_core::{ProcessorSupplier, Result};
use ardea_operators::{Partial, WindowSpec};
use arrow_schema::{Schema, SchemaRef};

use super::{failing, supplier};
use crate::key::{GroupKey, KeyColumns};
use crate::window::{AccumulatorRow, AggregateExpr, BoundAggregate, ColumnSliceP, WindowColumnsP};

/// A partial result between the stages of an aggregate.
pub(super) type PartialRow = Partial<GroupKey, AccumulatorRow>;

/// Bound aggregates, and the processors before and after their second stage.
pub(super) struct BoundAggregates {
    pub(super) first: Arc<dyn ProcessorSupplier>,
    pub(super) results: Arc<dyn ProcessorSupplier>,
    pub(super) aggregates: Vec<BoundAggregate>,
    pub(super) deducts: bool,
}

impl BoundAggregates {
    /// Returns the aggregates and the schema of their results. If they are not bound, the
    /// processors fail.
    pub(super) fn or_failing(bound: Result<(Self, SchemaRef)>) -> (Self, Result<SchemaRef>) {
        match bound {
            Ok((bound, schema)) => (bound, Ok(schema)),
            Err(error) => {
                let bound = BoundAggregates {
                    first: failing(&error),
                    results: failing(&error),
                    aggregates: Vec::new(),
                    deducts: true,
                };
                (bound, Err(error))
            }
        }
    }
}

/// Binds aggregates by key, in windows or over all records.
pub(super) fn bind(
    key: KeyColumns,
    schema: &Schema,
    windows: Option<WindowSpec>,
    aggregates: &[AggregateExpr],
) -> Result<(BoundAggregates, SchemaRef)> {
    let bound = aggregates.iter().map(|it| it.bind(schema));
    let aggregates = bound.collect::<Result<Vec<_>>>()?;
    let results = match windows {
        Some(_) => WindowColumnsP::new,
        None => WindowColumnsP::without_bounds,
    };
    let schema = Arc::clone(results(key.clone(), aggregates.clone())?.schema());
    let deducts = aggregates.iter().all(BoundAggregate::deducts);
    let parts = (key, aggregates.clone());
    let of_results = parts.clone();
    let first = move || {
        let (key, aggregates) = parts.clone();
        Ok(match windows {
            Some(windows) => ColumnSliceP::new(windows, key, aggregates),
            None => ColumnSliceP::of_all(key, aggregates),
        })
    };
    let bound = BoundAggregates {
        first: supplier(first),
        results: supplier(move || results(of_results.0.clone(), of_results.1.clone())),
        aggregates,
        deducts,
    };
    Ok((bound, schema))
}
