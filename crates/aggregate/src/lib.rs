//! Incremental aggregates.
//!
//! An [`Aggregate`] computes one result from many records without retaining the records: it
//! *creates* an empty accumulator, *accumulates* records into it, *combines* accumulators that were
//! filled separately, and *finishes* one into a result. The engine relies on the law that parts can
//! be combined in any way: a keyed aggregate accumulates on the producing side and combines on the
//! side that owns the key; a sliding window combines the newest slice into a running accumulator
//! and, if [`Aggregate::DEDUCTS`], deducts the oldest.
//!
//! | to compute | use | accumulator | deducts |
//! |---|---|---|---|
//! | the number of records | [`count`] | `u64` | yes |
//! | the total | [`sum`] | `i128`, or an [`ExactSum`] for floats | yes |
//! | the mean | [`average`] | a sum and a count | yes |
//! | the least, the greatest value | [`min`], [`max`] | one value | no |
//! | the record with it | [`min_by_key`], [`max_by_key`], [`min_by`], [`max_by`] | one record | no |
//! | all records with it | [`all_with_min`], [`all_with_max`] | those records | no |
//! | the best n | [`top_n`], [`bottom_n`], [`top_n_by`], [`bottom_n_by`] | up to n records | no |
//! | the number of distinct values | [`distinct_count`] | a set | no |
//! | the approximate number of distinct values | [`distinct_count_approx`] | a HyperLogLog sketch | no |
//! | quantiles with a bounded rank error | [`quantiles`], [`median`] | a t-digest | no |
//! | quantiles with a bounded relative error | [`quantiles_relative`] | a logarithmic histogram | yes |
//! | the records themselves | [`collect_list`], [`collect_set`] | all of them | no |
//! | an aggregate for each of several keys | [`collect_map`] | a map | if the inner one does |
//! | any one record | [`pick_any`] | one record | no |
//! | a fold by a custom operation | [`reduce`] | one value | no |
//! | anything else | [`custom`], or implement [`Aggregate`] | custom | with an inverse |
//!
//! A tuple of aggregates computes several in one pass. [`filtering`], [`mapping`] and [`and_then`]
//! change the input and the result of an aggregate. [`co_aggregate`] aggregates two inputs, as
//! joins and co-groups do.
//!
//! **Invariants.** For every aggregate of this crate, unless its documentation says otherwise: the
//! result does not depend on how the records were split over accumulators or on their order,
//! including floating-point sums; a deducted part leaves no trace. [`laws`] tests this for any
//! aggregate, including custom ones. No record causes a panic, provided that the given closures do
//! not panic. The crate does not depend on windows, keys, time or threads, and of the other crates
//! of Ardea it uses only the error of `ardea_core`.
//!
//! ```
//! use ardea_aggregate::{Aggregate, and_then, average, count, distinct_count, max};
//!
//! struct Flight { carrier: &'static str, delay_min: i64 }
//! let flights = [
//!     Flight { carrier: "UA", delay_min: 2 },
//!     Flight { carrier: "AA", delay_min: -4 },
//!     Flight { carrier: "UA", delay_min: 17 },
//! ];
//!
//! let summary = (count(), average(|f: &Flight| f.delay_min), max(|f: &Flight| f.delay_min));
//! assert_eq!(summary.of_all(&flights), (3, Some(5.0), Some(17)));
//!
//! // The same, in two parts that are combined.
//! let mut left = summary.create();
//! summary.accumulate(&mut left, &flights[0]);
//! let mut right = summary.create();
//! summary.accumulate(&mut right, &flights[1]);
//! summary.accumulate(&mut right, &flights[2]);
//! summary.combine(&mut left, &right);
//! assert_eq!(summary.finish(&left), (3, Some(5.0), Some(17)));
//!
//! let carriers = and_then(distinct_count(|f: &Flight| f.carrier), |n| format!("{n} carriers"));
//! assert_eq!(carriers.of_all(&flights), "2 carriers");
//! ```

#![forbid(unsafe_code)]

mod aggregate;
mod average;
mod co;
mod collect;
mod compose;
mod count;
mod custom;
mod distinct;
mod distinct_approx;
mod error;
mod exact_sum;
mod extremes;
pub mod laws;
mod log_histogram;
mod order;
mod quantiles;
mod reduce;
mod sketch_bytes;
mod sum;
mod top;

pub use aggregate::Aggregate;
pub use average::{Average, average};
pub use co::{CoAggregate2, CoAggregate3, SideBySide, co_aggregate, co_aggregate3};
pub use collect::{
    CollectList, CollectMap, CollectSet, HashedMap, HashedSet, collect_list, collect_map,
    collect_set,
};
pub use compose::{AndThen, Filtering, Mapping, and_then, filtering, mapping};
pub use count::{Count, count};
pub use custom::{Custom, Deduction, DeductionBy, NoDeduction, custom};
pub use distinct::{DistinctCount, distinct_count};
pub use distinct_approx::{DistinctCountApprox, DistinctSketch, distinct_count_approx};
pub use error::InvalidParameter;
pub use exact_sum::ExactSum;
pub use extremes::{
    AllWithExtreme, Extreme, ExtremeValue, all_with_max, all_with_min, max, max_by, max_by_key,
    min, min_by, min_by_key,
};
pub use log_histogram::LogHistogram;
pub use order::{ByComparison, ByKey, NaturalOrder, Ranking, Reversed, TotalF64};
pub use quantiles::{Digest, Quantiles, RelativeQuantiles, median, quantiles, quantiles_relative};
pub use reduce::{PickAny, Reduce, pick_any, reduce};
pub use sum::{Sum, Summand, sum};
pub use top::{Top, bottom_n, bottom_n_by, top_n, top_n_by};
