//! Notices of ended micro-batches: to the consumers of this worker's producers, and from other
//! workers.

use ardea_core::MicroBatch;

use super::{BatchTask, LocalAction, LocalScheduler};
use crate::message::BatchNotice;
use crate::placement::RangeId;
use crate::stage_graph::{StageExchange, StageId};
use ardea_coordination::packing::ContainerId;

/// The producers, micro-batches and consumer of a notice.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) producer: StageId,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) from: MicroBatch,
    pub(super) through: MicroBatch,
}

impl LocalScheduler {
    /// Notifies the consumers of a task that has just ended.
    ///
    /// A shuffle gets one notice for each pair of workers and micro-batch, after the last range of
    /// this worker. Consumers that wait for single producers are notified at once.
    pub(super) fn notify_consumers(&mut self, task: BatchTask, actions: &mut Vec<LocalAction>) {
        let Some(stage) = self.stages.get(task.at.stage.index()) else {
            return;
        };
        let (producer, range) = (stage.id, task.at.range);
        let notified = stage.notified;
        let ended = stage.ended().unwrap_or(notified);
        let single = Span {
            producer,
            first: range,
            count: 1,
            from: task.batch,
            through: task.batch,
        };
        for edge in 0..stage.consumers.len() {
            match self.stages[producer.index()].consumers[edge].exchange {
                StageExchange::Shuffle if task.batch > notified => {
                    for batch in notified.0 + 1..=ended.0 {
                        self.notify_of_all(producer, edge, MicroBatch(batch), actions);
                    }
                }
                // A range that catches up reports its micro-batches by itself.
                StageExchange::Shuffle | StageExchange::Broadcast => {
                    self.notify_workers(edge, single, actions);
                }
                exchange @ (StageExchange::Forward | StageExchange::Tree { .. }) => {
                    let stage = self.stages[producer.index()].consumers[edge].stage;
                    let range = exchange.only_consumer_of(range).unwrap_or(0);
                    if let Some(to) = self.placement.worker(RangeId { stage, range }) {
                        self.notify(to, self.notice(single, stage, None), actions);
                    }
                }
            }
        }
        let stage = &mut self.stages[producer.index()];
        stage.notified = notified.max(ended);
    }

    /// Notifies the consumers of a shuffle that all own producers have ended the micro-batch.
    fn notify_of_all(
        &mut self,
        producer: StageId,
        edge: usize,
        batch: MicroBatch,
        actions: &mut Vec<LocalAction>,
    ) {
        for run in 0..self.stages[producer.index()].runs.len() {
            let (first, count) = self.stages[producer.index()].runs[run];
            let span = Span {
                producer,
                first,
                count,
                from: batch,
                through: batch,
            };
            self.notify_workers(edge, span, actions);
        }
    }

    /// Notifies all workers with ranges of the consuming stage.
    fn notify_workers(&mut self, edge: usize, span: Span, actions: &mut Vec<LocalAction>) {
        let stage = span.producer.index();
        for worker in 0..self.stages[stage].consumers[edge].workers.len() {
            let edge = &self.stages[stage].consumers[edge];
            let (to, consumer) = (edge.workers[worker], edge.stage);
            self.notify(to, self.notice(span, consumer, None), actions);
        }
    }

    pub(super) fn notice(&self, span: Span, consumer: StageId, only: Option<u32>) -> BatchNotice {
        BatchNotice {
            generation: self.generation.unwrap_or_default(),
            version: self.version,
            producer: span.producer,
            first: span.first,
            count: span.count,
            from: span.from,
            through: span.through,
            consumer,
            only,
        }
    }

    fn notify(&mut self, to: ContainerId, notice: BatchNotice, actions: &mut Vec<LocalAction>) {
        if to == self.me {
            self.loopback.push(notice);
        }
        actions.push(LocalAction::Notify(to, notice));
    }

    /// Processes the notices of this worker to itself.
    pub(super) fn deliver_loopback(&mut self, actions: &mut Vec<LocalAction>) {
        let mut notices = std::mem::take(&mut self.loopback);
        for notice in notices.drain(..) {
            self.record(&notice, actions);
        }
        self.loopback = notices;
    }

    /// Processes a notice, or retains it if it refers to a later placement or attempt.
    pub(super) fn receive(&mut self, notice: BatchNotice, actions: &mut Vec<LocalAction>) {
        let own = (self.generation, self.version);
        if (Some(notice.generation), notice.version) > own {
            self.early.push(notice);
        } else if self.generation == Some(notice.generation) {
            self.record(&notice, actions);
        }
    }

    fn record(&mut self, notice: &BatchNotice, actions: &mut Vec<LocalAction>) {
        let Some(stage) = self.stages.get_mut(notice.consumer.index()) else {
            return;
        };
        let planned = stage.planned;
        let mut has_room = true;
        for own in &mut stage.own {
            if own.is_concerned(notice) {
                let (duplicates, is_kept) = own.record(notice);
                self.figures.duplicates_dropped += duplicates;
                has_room &= is_kept;
                let at = RangeId {
                    stage: notice.consumer,
                    range: own.range,
                };
                super::activate_range(own, at, planned, actions);
            }
        }
        if !has_room {
            let why = format!("notices of stage {} were lost", notice.producer.0);
            self.cannot_recover(why, actions);
        }
    }
}
