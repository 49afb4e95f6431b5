//! Keyed streams of records in columns, assigned to windows.

use std::sync::Arc;

use ardea_core::{Boundedness, Error, ErrorCode, Result};
use ardea_operators::{SessionSpec, WindowResult};
use ardea_pipeline::{HasEventTime, Stream, Timed, Window};
use arrow_schema::SchemaRef;

use super::bound_aggregates::{BoundAggregates, PartialRow, bind};
use super::{Columns, KeyedColumns, split, supplier};
use crate::key::{GroupKey, KeyColumns};
use crate::window::{
    AccumulatorCombine, AccumulatorRow, AggregateExpr, ColumnSessionP, WindowColumnsP,
};

/// A keyed stream of records in columns, assigned to windows.
#[must_use = "a windowed stream does nothing until it is aggregated"]
pub struct WindowedColumns<B, E> {
    keyed: KeyedColumns<B, E>,
    window: Window,
}

impl<B: Boundedness, E: HasEventTime> WindowedColumns<B, E> {
    pub(super) fn new(keyed: KeyedColumns<B, E>, window: Window) -> Self {
        WindowedColumns { keyed, window }
    }

    /// Returns the keyed stream and the windows.
    pub(super) fn into_parts(self) -> (KeyedColumns<B, E>, Window) {
        (self.keyed, self.window)
    }

    /// Emits one record per key and window when the watermark reaches the window's end: the bounds
    /// of the window, the key, and the aggregates. Late records are
    /// counted.
    pub fn aggregate(
        self,
        name: impl Into<String>,
        aggregates: impl IntoIterator<Item = AggregateExpr>,
    ) -> Columns<B, Timed> {
        self.aggregate_and_late(name, aggregates).0
    }

    /// Works like [`aggregate`](Self::aggregate), and returns the late records as a second stream.
    pub fn aggregate_and_late(
        self,
        name: impl Into<String>,
        aggregates: impl IntoIterator<Item = AggregateExpr>,
    ) -> (Columns<B, Timed>, Columns<B, Timed>) {
        let (name, aggregates) = (name.into(), aggregates.into_iter().collect());
        match self.window.session_spec() {
            Ok(Some(spec)) => self.sessions(name, spec, aggregates),
            _ => self.slices(name, &aggregates),
        }
    }

    /// Aggregates over windows of fixed bounds, in two stages.
    ///
    /// ```text
    /// input ──forward──▶ partial ──keyed──▶ name ──forward──▶ results
    ///                       └────▶ late records
    /// ```
    fn slices(
        self,
        name: String,
        aggregates: &[AggregateExpr],
    ) -> (Columns<B, Timed>, Columns<B, Timed>) {
        let Columns { stream, schema, .. } = self.keyed.columns;
        let input = schema.clone();
        let window = self.window;
        let bound = schema.and_then(|schema| {
            let spec = window.spec()?.ok_or_else(no_bounds)?;
            bind(self.keyed.key?, &schema, Some(spec), aggregates)
        });
        let (bound, schema) = BoundAggregates::or_failing(bound);
        let partials = stream.extend_with::<PartialRow>("partial", bound.first);
        let late = partials.second_output().with_source_time();
        let by_key = partials
            .key_by(|partial| partial.key.clone())
            .window(window);
        let results = match bound.deducts {
            true => by_key.aggregate(name, AccumulatorCombine::<true>::new(&bound.aggregates)),
            false => by_key.aggregate(name, AccumulatorCombine::<false>::new(&bound.aggregates)),
        };
        let stream = results.extend_with("results", bound.results);
        let late = Columns {
            stream: late,
            schema: input,
            filters: None,
        };
        let results = Columns {
            stream,
            schema,
            filters: None,
        };
        (results, late)
    }

    /// Aggregates over sessions, in one stage.
    ///
    /// ```text
    /// input ──keyed──▶ name ──forward──▶ results
    ///                    └────▶ late records
    /// ```
    fn sessions(
        self,
        name: String,
        spec: SessionSpec,
        aggregates: Vec<AggregateExpr>,
    ) -> (Columns<B, Timed>, Columns<B, Timed>) {
        let input = self.keyed.columns.schema.clone();
        let bind = |key: &KeyColumns, schema: &SchemaRef| {
            let bound = aggregates.iter().map(|it| it.bind(schema));
            let aggregates = bound.collect::<Result<Vec<_>>>()?;
            let parts = (key.clone(), aggregates);
            let of_results = parts.clone();
            let results = move || WindowColumnsP::new(of_results.0.clone(), of_results.1.clone());
            let schema = Arc::clone(results()?.schema());
            let sessions = move || Ok(ColumnSessionP::new(spec, parts.0.clone(), parts.1.clone()));
            Ok(((schema, supplier(results)), supplier(sessions)))
        };
        let (results, bound) = self.keyed.exchange(name, bind);
        let results: Stream<SessionResult, B, E> = results;
        let (schema, make) = split(bound);
        let late = Columns {
            stream: results.second_output().with_source_time(),
            schema: input,
            filters: None,
        };
        let stream = results.extend_with("results", make).with_source_time();
        let results = Columns {
            stream,
            schema,
            filters: None,
        };
        (results, late)
    }
}

/// The result of a session.
type SessionResult = WindowResult<GroupKey, AccumulatorRow>;

#[cold]
fn no_bounds() -> Error {
    Error::new(ErrorCode::Internal, "windows have no bounds")
}
