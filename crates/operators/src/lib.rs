//! Physical operators: the processors that pipelines compile to.
//!
//! Each operator is one file with a struct named `…P` that implements
//! [`Processor`](ardea_core::Processor). Operators are generic over the records and the user
//! functions, so that both compile into one loop. The typed pipeline combines the operators. They
//! also serve as examples for custom processors, from simple to complex:
//!
//! * stateless: [`MapP`], [`FilterP`], [`FlatMapP`], [`SplitP`] and similar ones;
//! * event time: [`StampP`], [`NativeTimeP`], [`ArrivalTimeP`], and their common
//!   [`WatermarkPolicy`];
//! * sinks: [`CollectSinkP`];
//! * keyed: [`StatefulMapP`] with state and timers, [`DistinctP`]; state is serialized by
//!   [`StateCodecs`];
//! * joins: [`HashJoinP`], [`BroadcastInputP`], [`IntervalJoinP`]; sorting: [`SortP`];
//! * windows and groups: [`SlidingWindowP`], [`SessionWindowP`], [`GroupP`], [`RollingP`] over a
//!   [`KeyedFold`].
//!
//! # Invariants
//!
//! * User code is called once per record, and only when there is room for its results in the outbox
//!   or in a bounded [`Backlog`]. Where it maps, filters, keys or folds records, a
//!   [`RecordGuard`](ardea_core::RecordGuard) tracks the current record. [`SortP`] is the
//!   exception: it calls the key function after the records have left the inbox.
//! * No record is dropped silently: late and bad records are counted in the instance's metrics.
//! * No watermark overtakes a record, and watermarks never decrease.
//! * Fixed costs are paid once per chunk. There is no dynamic call, lock, clock access or
//!   allocation per record beyond those of the user's types.
//! * Instances share the user functions as `Arc<F>` and nothing else.
//!
//! # Example
//!
//! Every operator can be driven by hand as the engine does it: fill an inbox, call the processor,
//! and empty the outbox.
//!
//! ```
//! use std::sync::Arc;
//! use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
//! use ardea_operators::FilterP;
//!
//! let mut inbox = Inbox::default();
//! inbox.fill(Chunk::new((1..=10u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>()));
//! let mut outbox = Outbox::new(1, 1024);
//!
//! let mut even = FilterP::new(Arc::new(|n: &u32| n % 2 == 0));
//! even.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
//! assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [2, 4, 6, 8, 10]);
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod collect_sink;
pub mod join;
pub mod keyed;
pub mod stateless;
pub mod time;
pub mod window;

mod co_fold;
mod group;
mod keyed_fold;
mod rolling;

mod backlog;
mod forward;
mod instance_state;
mod key_order;
mod record_errors;

#[cfg(test)]
mod test_driver;

pub use ardea_state::{KeyIndex, KeyTable, StateCodecs, TimerKind};
pub use backlog::{Backlog, Output};
pub use co_fold::{FoldThree, FoldTwo};
pub use collect_sink::CollectSinkP;
pub use group::{GroupCombineP, GroupP};
pub use join::{
    BroadcastInputP, BroadcastLogic, BuildTable, HashJoinLogic, HashJoinP, IntervalJoinLogic,
    IntervalJoinP, JoinInterval, SortP, enrich, inner_hash_join, inner_interval_join,
    outer_hash_join, outer_interval_join,
};
pub use keyed::{
    DistinctP, KeyedContext, KeyedLogic, StatefulMapP, flat_map_stateful, map_stateful,
};
pub use keyed_fold::{Feed, FeedVisitor, FoldOne, FoldPartials, KeyedFold, Partial};
pub use record_errors::{RecordErrors, raw_of};
pub use rolling::RollingP;
pub use stateless::{
    Either, FilterMapP, FilterP, FlatMapP, InspectP, LimitP, MapP, MapTimedP, MergeP,
    PartitionMapP, SampleP, SplitP, TeeMapP, TeeP, TryMapP,
};
pub use time::{
    ArrivalTimeP, EventTime, NativeTimeP, ReplayP, StampP, WatermarkEmitter, WatermarkPolicy,
    require_times,
};
pub use window::{
    CalendarUnit, Decision, EarlyFiring, EmitChanges, EmitResults, Firing, NoEarly, SessionOutput,
    SessionSpec, SessionWindowP, Slice, SliceCombineP, SlidingWindowP, Trigger, Weekday,
    WindowChange, WindowResult, WindowSpec, ZoneName,
};
