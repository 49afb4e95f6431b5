//! The physical operators: every processor that pipelines compile to.
//!
//! Each operator is one file: a struct named `…P` that implements [`Processor`](ardea_core::Processor), generic over the
//! records and the user's functions, so that the compiler makes one loop of both. The typed pipeline puts them together;
//! whoever writes a processor by hand can read them as examples, from simple to involved:
//!
//! * stateless: [`MapP`], [`FilterP`], [`FlatMapP`], [`SplitP`] and their kin;
//! * time: [`StampP`], [`NativeTimeP`], [`ArrivalTimeP`], and the [`WatermarkPolicy`] they share;
//! * at the end: [`CollectSinkP`];
//! * keyed: [`StatefulMapP`] with state and timers, [`DistinctP`]; what they remember survives them as [`KeptAs`] writes it;
//! * joins: [`HashJoinP`], [`BroadcastInputP`], [`IntervalJoinP`]; order: [`SortP`];
//! * windows and groups: [`SlidingWindowP`], [`SessionWindowP`], [`GroupP`], [`RollingP`] over a [`KeyedFold`].
//!
//! # Invariants
//!
//! * User code is called once a record, and only when its output has a place: in the output itself or in a bounded [`Backlog`].
//!   Where it maps, filters, keys or folds records, a [`RecordGuard`](ardea_core::RecordGuard) follows the record at hand;
//!   not in [`SortP`], which asks for keys when the records have left the inbox.
//! * Nothing is dropped in silence: late and bad records are counted in the instance's metrics.
//! * No watermark overtakes a record, and none runs backwards.
//! * Costs are paid once a chunk; no dynamic call, lock, clock or allocation a record beyond what the user's types need.
//! * Instances share the user's functions as `Arc<F>` and nothing else.
//!
//! # Example
//!
//! Every operator can be driven by hand, as the engine does it: an inbox is filled, the processor called, the outbox emptied.
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
mod keyed_table;
mod rolling;

mod backlog;
mod of_instance;
mod passing;
mod record_errors;

#[cfg(test)]
mod drive;

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
    DistinctP, KeptAs, KeyedContext, KeyedLogic, StatefulMapP, TimerKind, flat_map_stateful,
    map_stateful,
};
pub use keyed_fold::{Feed, FeedVisitor, FoldOne, FoldPartials, KeyedFold, Partial};
pub use keyed_table::{KeyIndex, KeyTable};
pub use record_errors::raw_of;
pub use rolling::RollingP;
pub use stateless::{
    Either, FilterMapP, FilterP, FlatMapP, InspectP, LimitP, MapP, MapTimedP, MergeP,
    PartitionMapP, SampleP, SplitP, TeeMapP, TeeP, TryMapP,
};
pub use time::{ArrivalTimeP, EventTime, NativeTimeP, ReplayP, StampP, WatermarkPolicy};
pub use window::{
    CalendarUnit, Decision, EarlyFiring, EmitChanges, EmitResults, Firing, NoEarly, SessionOutput,
    SessionSpec, SessionWindowP, SliceCombineP, SlidingWindowP, Trigger, Weekday, WindowChange,
    WindowResult, WindowSpec, ZoneName,
};
