//! Group scheduling of micro-batches, as pure state machines.
//!
//! An epoch is a micro-batch. A *task* is the work of one partition range of a stage in one epoch.
//! The leader plans the epochs of a *group* together: one message to each worker, which names the
//! group and refers to the placement of the group before. Workers hold the tasks of the whole group
//! inactive. A worker activates a task when the last producer has ended the epoch; the leader takes
//! no part in it (Venkataraman et al., "Drizzle: Fast and Adaptable Stream Processing at Scale",
//! SOSP 2017).
//!
//! In reading order:
//!
//! * [`StageGraph`], [`StageExchange`]: the stages of an epoch, and the producers for which a range
//!   waits;
//! * [`RangePlacement`]: the places of partition ranges;
//! * [`ToGroupWorker`], [`FromGroupWorker`], [`EpochNotice`]: the messages;
//! * [`LocalScheduler`]: the worker's side;
//! * [`GroupScheduler`]: the leader's side; [`GroupTuner`]: the size of groups.
//!
//! # Invariants
//!
//! * A range runs its epochs in order, each once, on one worker. After the loss of that worker, its
//!   ranges run the epochs since the last committed checkpoint again elsewhere. No other range runs
//!   an epoch again.
//! * The placement changes while no epoch is in flight, or because a worker was lost.
//! * A notice arrives behind the data of its epochs. A consumer counts a producer and epoch once.
//! * This crate has no threads, sockets, clocks or random numbers.
//! * Messages between leader and workers may be lost, duplicated and reordered. Notices of one
//!   worker to another keep their order; if one is lost, so is its sender or receiver.
#![forbid(unsafe_code)]

mod local;
mod message;
mod placement;
mod scheduler;
mod stage_graph;
mod tuner;

pub use local::{BatchTask, LocalAction, LocalEvent, LocalScheduler};
pub use message::{
    EpochNotice, FromGroupWorker, GroupFigures, GroupId, GroupStart, MovedState, PlannedGroup,
    RangeMove, ToGroupWorker,
};
pub use placement::{PlacementVersion, RangeId, RangePlacement};
pub use scheduler::{
    BatchMode, GroupRollback, GroupScheduler, GroupSchedulerConfig, GroupSizing, GroupSummary,
    SchedulerAction, SchedulerEvent,
};
pub use stage_graph::{BatchStage, StageExchange, StageGraph, StageId, StageInput};
pub use tuner::{GroupTuner, MAX_GROUP_SIZE, TunerConfig, TunerStep};
