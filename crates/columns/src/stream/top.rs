//! Selections of the records with the greatest values.

use std::sync::Arc;

use ardea_core::{Boundedness, Ends, Error, ErrorCode, ProcessorSupplier, Result, Timestamp};
use ardea_operators::{Firing, Partial, WindowResult, WindowSpec};
use ardea_pipeline::{HasEventTime, Timed, Window};
use arrow_schema::SchemaRef;

use super::{Columns, KeyedColumns, WindowedColumns, failing, supplier};
use crate::key::GroupKey;
use crate::top::{TopColumnsP, TopCombine, TopFunction, TopRecords, TopSelection};
use crate::window::ColumnSliceP;

/// A selection of the first stage.
type TopPartial = Partial<GroupKey, TopSelection>;

impl<B: Ends, E> KeyedColumns<B, E> {
    /// Emits the selected records of each key at the end of a bounded stream.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ardea_columns::{IntoColumns, top_n};
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    /// use arrow_schema::{DataType, Field, Schema};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Clone, Serialize, Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    /// struct Bid { auction: u64, price: u64 }
    ///
    /// let fields = ["auction", "price"].map(|name| Field::new(name, DataType::UInt64, false));
    /// let bid = |auction, price| Bid { auction, price };
    /// let p = Pipeline::new("highest bids");
    /// let highest = p
    ///     .read_from(items(vec![bid(1, 20), bid(2, 5), bid(1, 30), bid(1, 15)]))
    ///     .into_columns(Arc::new(Schema::new(fields.to_vec())))
    ///     .key_by(["auction"])
    ///     .top("highest", top_n(2, ["price"]))
    ///     .rows::<Bid>()
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(highest.take_sorted(), [bid(1, 20), bid(1, 30), bid(2, 5)]);
    /// ```
    pub fn top(self, name: impl Into<String>, top: TopRecords) -> Columns<B, E> {
        let bound = BoundTop::bind(&self, &top, Ok(None));
        let by_key = self
            .columns
            .stream
            .extend_with::<TopPartial>("partial", bound.first)
            .key_by(|partial| partial.key.clone());
        let whole = |(key, value)| WindowResult {
            start: Timestamp::MIN,
            end: Timestamp::MAX,
            key,
            value,
            firing: Firing::OnTime,
        };
        let results = by_key.aggregate(name, bound.combine).map(whole);
        Columns {
            stream: results.extend_with("results", bound.results),
            schema: bound.schema,
            filters: None,
        }
    }
}

impl<B: Boundedness, E: HasEventTime> WindowedColumns<B, E> {
    /// Emits the selected records of each key and window when the watermark reaches the window's
    /// end: the bounds of the window, and the columns of the record. Session windows have no
    /// selection. Late records are counted.
    pub fn top(self, name: impl Into<String>, top: TopRecords) -> Columns<B, Timed> {
        let (keyed, window) = self.into_parts();
        let bound = BoundTop::bind(&keyed, &top, bounds_of(window).map(Some));
        let results = keyed
            .columns
            .stream
            .extend_with::<TopPartial>("partial", bound.first)
            .key_by(|partial| partial.key.clone())
            .window(window)
            .aggregate(name, bound.combine);
        Columns {
            stream: results.extend_with("results", bound.results),
            schema: bound.schema,
            filters: None,
        }
    }
}

/// Returns the bounds of windows.
fn bounds_of(window: Window) -> Result<WindowSpec> {
    window.spec()?.ok_or_else(|| {
        let what = "session windows over columns have no selection of records";
        Error::new(ErrorCode::InvalidJob, what).hint("use tumbling or sliding windows")
    })
}

/// A bound selection, with the processors before and after its second stage.
struct BoundTop {
    first: Arc<dyn ProcessorSupplier>,
    combine: TopCombine,
    results: Arc<dyn ProcessorSupplier>,
    schema: Result<SchemaRef>,
}

impl BoundTop {
    /// Binds a selection. If that fails, so do the processors.
    fn bind<B, E>(
        keyed: &KeyedColumns<B, E>,
        top: &TopRecords,
        windows: Result<Option<WindowSpec>>,
    ) -> Self {
        let combine = TopCombine::new(top.limit());
        let bound = windows.and_then(|windows| {
            let (schema, key) = keyed.bound()?;
            let function = TopFunction::bind(top, schema)?;
            let (layout, has_bounds) = (function.layout().clone(), windows.is_some());
            let results = move || TopColumnsP::new(layout.clone(), has_bounds);
            let schema = Arc::clone(results()?.schema());
            let key = key.clone();
            let first = move || Ok(ColumnSliceP::with(windows, key.clone(), function.clone()));
            Ok((supplier(first), supplier(results), schema))
        });
        match bound {
            Ok((first, results, schema)) => BoundTop {
                first,
                combine,
                results,
                schema: Ok(schema),
            },
            Err(error) => BoundTop {
                first: failing(&error),
                combine,
                results: failing(&error),
                schema: Err(error),
            },
        }
    }
}
