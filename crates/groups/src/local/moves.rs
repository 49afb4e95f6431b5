//! Messages of the leader: starting points, moves of ranges, groups.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::MicroBatch;

use super::notices::Span;
use super::ranges::{FormerRange, LocalRange, LocalStage, RangeState};
use super::{LocalAction, LocalScheduler};
use crate::figures::GroupFigures;
use crate::message::{GroupStart, MovedState, PlannedGroup, RangeMove, ToGroupWorker};
use crate::placement::RangeId;
use crate::stage_graph::{StageExchange, StageId};

impl LocalScheduler {
    pub(super) fn on_message(
        &mut self,
        now: Duration,
        message: &ToGroupWorker,
        actions: &mut Vec<LocalAction>,
    ) {
        if message.master < self.master || Some(message.generation) < self.generation {
            return;
        }
        self.master = message.master;
        let mut is_news = false;
        if Some(message.generation) > self.generation {
            let start = message.start.as_ref();
            let Some(start) = start.filter(|start| start.placement.fits(&start.graph)) else {
                return self.report(now, true, actions);
            };
            self.start(message, start);
            is_news = true;
        }
        if message.since > self.version {
            return self.report(now, true, actions);
        }
        if message.version > self.version {
            self.apply_moves(message, actions);
            is_news = true;
        }
        self.trim(message.committed, actions);
        self.ended_everywhere = self.ended_everywhere.max(message.ended);
        while (self.groups.front()).is_some_and(|group| group.id <= self.ended_everywhere) {
            self.groups.pop_front();
        }
        let mut is_missing = false;
        let mut is_repeated = false;
        for group in &message.groups {
            if group.id == self.planned.next() {
                self.plan(group, actions);
            } else {
                is_missing |= group.id > self.planned;
                is_repeated |= group.id <= self.planned;
            }
        }
        let early = std::mem::take(&mut self.early);
        for notice in early {
            self.receive(notice, actions);
        }
        self.activate_all(actions);
        let ended = self.ended;
        self.end_groups(now, actions);
        // The end of a group has been reported with everything else.
        if self.ended == ended && (is_news || is_missing || is_repeated) {
            self.report(now, is_missing, actions);
        }
    }

    /// Begins an attempt.
    fn start(&mut self, message: &ToGroupWorker, start: &GroupStart) {
        let stage = |id: StageId| {
            let mut stage = LocalStage::new(&start.graph, id, start.after);
            for (range, place) in (0..).zip(start.placement.stage(id)) {
                if *place == self.me {
                    let at = RangeId { stage: id, range };
                    let mut own = LocalRange::new(&stage.inputs, at, start.after, start.version);
                    own.state = RangeState::Idle;
                    stage.own.push(own);
                }
            }
            stage.refresh(&start.placement);
            stage
        };
        self.stages = start.graph.numbered().map(|(id, _)| stage(id)).collect();
        self.generation = Some(message.generation);
        self.placement = Arc::clone(&start.placement);
        self.version = start.version;
        self.groups.clear();
        self.planned = start.group;
        self.ended = start.group;
        self.ended_everywhere = start.group;
        self.kept_after = message.committed;
        self.former.clear();
        self.figures = GroupFigures::default();
        self.reports_ranges = start.reports_ranges;
        self.starved_since = None;
        self.failure = None;
    }

    fn plan(&mut self, group: &PlannedGroup, actions: &mut Vec<LocalAction>) {
        for stage in &mut self.stages {
            if group.has_stage(stage.id) {
                stage.planned = stage.planned.max(group.last());
            }
        }
        if let Some(change) = &group.change {
            actions.push(LocalAction::Change(group.first, change.clone()));
        }
        self.planned = group.id;
        self.groups.push_back(group.clone());
    }

    fn trim(&mut self, committed: MicroBatch, actions: &mut Vec<LocalAction>) {
        if committed > self.kept_after {
            self.kept_after = committed;
            self.former.retain(|former| former.through > committed);
            actions.push(LocalAction::Trim(committed));
        }
    }

    fn apply_moves(&mut self, message: &ToGroupWorker, actions: &mut Vec<LocalAction>) {
        let own = self.version;
        let new = message.moves.iter().filter(|moved| moved.version > own);
        for moved in new.clone() {
            self.apply_move(moved, actions);
        }
        self.version = message.version;
        for stage in &mut self.stages {
            stage.refresh(&self.placement);
        }
        for moved in new {
            let is_restored = moved.state == MovedState::Restored;
            if is_restored && self.placement.worker(moved.at) == Some(moved.to) {
                self.resend(moved, actions);
            }
        }
    }

    fn apply_move(&mut self, moved: &RangeMove, actions: &mut Vec<LocalAction>) {
        let at = moved.at;
        if self.placement.worker(at).is_none() {
            return;
        }
        Arc::make_mut(&mut self.placement).set(at, moved.to);
        let held = self.own_mut(at).map(|own| own.state);
        let is_held = held.is_some_and(|state| state != RangeState::Arriving);
        let began = self.own_mut(at).map_or(moved.after, |own| own.began);
        if moved.to == self.me {
            // A restored range whose state has arrived from the lost worker is kept.
            if !is_held {
                self.adopt(moved, actions);
            }
            return;
        }
        let Some(stage) = self.stages.get_mut(at.stage.index()) else {
            return;
        };
        stage.own.retain(|own| own.range != at.range);
        let has_consumers = !stage.consumers.is_empty();
        match moved.state {
            MovedState::HandedOver(_) if is_held => {
                if has_consumers {
                    let through = moved.after;
                    self.former.push(FormerRange { at, began, through });
                }
                actions.push(LocalAction::HandOver(at, moved.to));
            }
            _ if held.is_some() => actions.push(LocalAction::Discard(at)),
            _ => {}
        }
    }

    fn adopt(&mut self, moved: &RangeMove, actions: &mut Vec<LocalAction>) {
        let (at, after) = (moved.at, moved.after);
        let Some(stage) = self.stages.get_mut(at.stage.index()) else {
            return;
        };
        let mut range = LocalRange::new(&stage.inputs, at, after, moved.version);
        if moved.state == MovedState::Restored {
            range.rerun_through = stage.planned;
        }
        stage.add(range);
        // Groups that had ended here end again when the range has ended them.
        self.ended = self.ended.min(self.ended_everywhere);
        actions.push(match moved.state {
            MovedState::HandedOver(from) => LocalAction::Receive(at, from),
            MovedState::Restored => LocalAction::Restore(at, after),
        });
    }

    /// Sends kept outputs to a range that is restored elsewhere or here.
    fn resend(&mut self, moved: &RangeMove, actions: &mut Vec<LocalAction>) {
        let RangeId { stage, range } = moved.at;
        let Some(inputs) = self
            .stages
            .get(stage.index())
            .map(|stage| stage.inputs.clone())
        else {
            return;
        };
        for input in inputs {
            let (first, count) = input.producers_of(range);
            let needed = first..first.saturating_add(count);
            let from = input.input.from;
            let is_shuffle = input.input.exchange == StageExchange::Shuffle;
            for kept in self.kept_outputs(from, is_shuffle) {
                let after = kept.began.max(moved.after);
                if !needed.contains(&kept.at.range) || kept.through <= after {
                    continue;
                }
                if self.kept_after > after {
                    let why = format!(
                        "outputs of stage {} from micro-batch {} on are needed, and kept from micro-batch {} on",
                        from.0,
                        after.0 + 1,
                        self.kept_after.0 + 1
                    );
                    return self.cannot_recover(why, actions);
                }
                let span = Span {
                    producer: from,
                    first: kept.at.range,
                    count: 1,
                    from: after.next(),
                    through: kept.through,
                };
                let notice = self.notice(span, stage, Some(range));
                self.figures.blocks_reused += kept.through.0 - after.0;
                actions.push(LocalAction::Resend(moved.to, notice));
                if moved.to == self.me {
                    self.loopback.push(notice);
                }
            }
        }
        self.deliver_loopback(actions);
    }

    /// Returns the producers of a stage whose outputs are kept here, and the micro-batches of which
    /// consumers have been notified.
    fn kept_outputs(&self, stage: StageId, is_shuffle: bool) -> Vec<FormerRange> {
        let Some(local) = self.stages.get(stage.index()) else {
            return Vec::new();
        };
        let own = local.own.iter().map(|own| FormerRange {
            at: RangeId {
                stage,
                range: own.range,
            },
            began: own.began,
            through: match is_shuffle {
                true => own.ended().min(local.notified),
                false => own.ended(),
            },
        });
        let former = self.former.iter().filter(|former| former.at.stage == stage);
        own.chain(former.copied()).collect()
    }
}
