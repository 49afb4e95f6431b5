//! Group scheduling of micro-batches, as pure state machines.
//!
//! A *task* is the work of one partition range of a stage in one micro-batch. The leader plans the
//! micro-batches of a *group* together: one message to each worker, which names the group and
//! refers to the placement of the group before. Workers hold the tasks of the whole group inactive.
//! A worker activates a task when the last producer has ended the micro-batch; the leader takes no
//! part in it (Venkataraman et al., "Drizzle: Fast and Adaptable Stream Processing at Scale", SOSP
//! 2017).
//!
//! In reading order:
//!
//! * [`StageGraph`], [`StageExchange`]: the stages of a micro-batch, and the producers for which a
//!   range waits;
//! * [`RangePlacement`]: the places of partition ranges;
//! * [`ToGroupWorker`], [`FromGroupWorker`], [`BatchNotice`]: the messages;
//! * [`LocalScheduler`]: the worker's side;
//! * [`GroupScheduler`]: the leader's side; [`GroupTuner`]: the size of groups;
//! * [`Optimizer`]: decisions about the plan at the end of groups.
//!
//! # Invariants
//!
//! * A range runs its micro-batches in order, each once, on one worker. After the loss of that
//!   worker, its ranges run the micro-batches since the last committed checkpoint again elsewhere.
//!   No other range runs a micro-batch again.
//! * The placement changes while no micro-batch is in flight, or because a worker was lost.
//! * A notice arrives behind the data of its micro-batches. A consumer counts a producer and
//!   micro-batch once.
//! * This crate has no threads, sockets, clocks or random numbers.
//! * Messages between leader and workers may be lost, duplicated and reordered. Notices of one
//!   worker to another keep their order; if one is lost, so is its sender or receiver.
#![forbid(unsafe_code)]

mod figures;
mod local;
mod message;
mod optimizer;
mod placement;
mod scheduler;
mod stage_graph;

pub use ardea_coordination::control::{GroupTuner, MAX_GROUP_SIZE, TunerConfig, TunerStep};
pub use figures::{GroupFigures, RangeFigures, TaskFigures};
pub use local::{BatchTask, LocalAction, LocalEvent, LocalScheduler};
pub use message::{
    BatchNotice, FromGroupWorker, GroupId, GroupStart, MovedState, PlannedGroup, RangeMove,
    ToGroupWorker,
};
pub use optimizer::{
    DecisionFigures, GroupStatistics, Optimizer, OptimizerRules, PlanDecision, RangeStatistics,
    RuleOptimizer, StageChange, StageStatistics, rules,
};
pub use placement::{PlacementVersion, RangeId, RangePlacement};
pub use scheduler::{
    BatchMode, GroupRollback, GroupScheduler, GroupSchedulerConfig, GroupSizing, GroupSummary,
    SchedulerAction, SchedulerEvent,
};
pub use stage_graph::{BatchStage, StageExchange, StageGraph, StageId, StageInput};
