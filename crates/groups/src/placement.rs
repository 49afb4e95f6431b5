//! The places of partition ranges, and their changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::stage_graph::{MAX_RANGES, StageGraph, StageId};
use ardea_coordination::packing::ContainerId;

/// The version of a [`RangePlacement`]. Each change of places increases it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PlacementVersion(pub u64);

impl PlacementVersion {
    pub(super) fn next(self) -> Self {
        PlacementVersion(self.0.saturating_add(1))
    }
}

/// A partition range of a stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RangeId {
    /// The stage.
    pub stage: StageId,
    /// The number of the range in its stage, from zero.
    pub range: u32,
}

/// The worker of each partition range. Adjacent ranges of one worker are encoded together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(
    into = "Vec<Vec<(ContainerId, u32)>>",
    try_from = "Vec<Vec<(ContainerId, u32)>>"
)]
pub struct RangePlacement(Vec<Vec<ContainerId>>);

impl RangePlacement {
    /// Spreads the ranges of each stage evenly over the workers; each worker has adjacent ranges.
    /// Returns `None` without a worker.
    pub fn spread(graph: &StageGraph, workers: &[ContainerId]) -> Option<Self> {
        if workers.is_empty() {
            return None;
        }
        let place = |range: u32, ranges: u32| {
            let position = u64::from(range) * workers.len() as u64 / u64::from(ranges);
            workers[usize::try_from(position).unwrap_or(0)]
        };
        let stages = graph.stages().iter().map(|stage| {
            let ranges = 0..stage.ranges;
            ranges.map(|range| place(range, stage.ranges)).collect()
        });
        Some(RangePlacement(stages.collect()))
    }

    /// Returns the worker of a range; `None` if there is no such range.
    pub fn worker(&self, at: RangeId) -> Option<ContainerId> {
        let stage = self.0.get(at.stage.index())?;
        stage.get(usize::try_from(at.range).ok()?).copied()
    }

    /// Returns the workers of a stage's ranges.
    pub fn stage(&self, stage: StageId) -> &[ContainerId] {
        self.0.get(stage.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns the ranges of a worker.
    pub fn ranges_of(&self, worker: ContainerId) -> Vec<RangeId> {
        let placed = self.all().filter(|(_, place)| *place == worker);
        placed.map(|(range, _)| range).collect()
    }

    /// Returns true if the worker has ranges.
    pub(super) fn has_worker(&self, worker: ContainerId) -> bool {
        self.0.iter().any(|stage| stage.contains(&worker))
    }

    /// Changes the place of a range; a range that does not exist is ignored.
    pub(super) fn set(&mut self, at: RangeId, worker: ContainerId) {
        let stage = self.0.get_mut(at.stage.index());
        if let Some(place) = stage.and_then(|stage| stage.get_mut(at.range as usize)) {
            *place = worker;
        }
    }

    /// Returns true if this placement has exactly the ranges of the graph.
    pub(super) fn fits(&self, graph: &StageGraph) -> bool {
        let lengths = self.0.iter().map(Vec::len);
        lengths.eq(graph.stages().iter().map(|stage| stage.ranges as usize))
    }

    fn all(&self) -> impl Iterator<Item = (RangeId, ContainerId)> {
        (0..).map(StageId).zip(&self.0).flat_map(|(stage, places)| {
            let ranges = (0..).zip(places);
            ranges.map(move |(range, place)| (RangeId { stage, range }, *place))
        })
    }

    /// Deals `lost` ranges out over the workers with the fewest ranges, of the stage first. All go
    /// to one worker unless `is_parallel`. Returns nothing if `survivors` is empty.
    pub(super) fn deal_out(
        &self,
        lost: &[RangeId],
        survivors: &[ContainerId],
        is_parallel: bool,
    ) -> Vec<(RangeId, ContainerId)> {
        let mut loads = Loads::new(self, survivors);
        let mut dealt = Vec::with_capacity(lost.len());
        let mut only = None;
        for at in lost {
            let least = only.or_else(|| loads.least(at.stage));
            let Some(to) = least else { break };
            if !is_parallel {
                only = Some(to);
            }
            loads.add(at.stage, to);
            dealt.push((*at, to));
        }
        dealt
    }

    /// Returns the fewest changes after which only `workers` have ranges, and the numbers of ranges
    /// of a stage differ by one at most.
    pub(super) fn balance(&self, workers: &[ContainerId]) -> Vec<(RangeId, ContainerId)> {
        let mut loads = Loads::new(self, workers);
        let mut moves = Vec::new();
        if workers.is_empty() {
            return moves;
        }
        for (stage, places) in (0..).map(StageId).zip(&self.0) {
            let counted = (0..).zip(places);
            let away = counted.filter(|(_, place)| !loads.total.contains_key(place));
            let away: Vec<u32> = away.map(|(range, _)| range).collect();
            for range in away {
                let Some(to) = loads.least(stage) else { break };
                loads.add(stage, to);
                moves.push((RangeId { stage, range }, to));
            }
            // The last ranges of the workers with the most go to those with the fewest.
            let mut rest: BTreeMap<ContainerId, Vec<u32>> = BTreeMap::new();
            for (range, place) in (0..).zip(places) {
                rest.entry(*place).or_default().push(range);
            }
            while let (Some(most), Some(least)) = (loads.most(stage), loads.least(stage)) {
                if loads.of(stage, most) <= loads.of(stage, least) + 1 {
                    break;
                }
                let Some(range) = rest.get_mut(&most).and_then(Vec::pop) else {
                    break;
                };
                loads.remove(stage, most);
                loads.add(stage, least);
                moves.push((RangeId { stage, range }, least));
            }
        }
        moves
    }
}

/// The numbers of ranges of some workers.
struct Loads {
    total: BTreeMap<ContainerId, u32>,
    of_stage: BTreeMap<(StageId, ContainerId), u32>,
}

impl Loads {
    fn new(placement: &RangePlacement, workers: &[ContainerId]) -> Self {
        let mut loads = Loads {
            total: workers.iter().map(|worker| (*worker, 0)).collect(),
            of_stage: BTreeMap::new(),
        };
        for (at, worker) in placement.all() {
            if loads.total.contains_key(&worker) {
                loads.add(at.stage, worker);
            }
        }
        loads
    }

    fn of(&self, stage: StageId, worker: ContainerId) -> u32 {
        self.of_stage.get(&(stage, worker)).copied().unwrap_or(0)
    }

    fn least(&self, stage: StageId) -> Option<ContainerId> {
        let rank = |(worker, total): &(&ContainerId, &u32)| (self.of(stage, **worker), **total);
        self.total
            .iter()
            .min_by_key(rank)
            .map(|(worker, _)| *worker)
    }

    fn most(&self, stage: StageId) -> Option<ContainerId> {
        let rank = |(worker, total): &(&ContainerId, &u32)| (self.of(stage, **worker), **total);
        self.total
            .iter()
            .max_by_key(rank)
            .map(|(worker, _)| *worker)
    }

    fn add(&mut self, stage: StageId, worker: ContainerId) {
        *self.of_stage.entry((stage, worker)).or_default() += 1;
        *self.total.entry(worker).or_default() += 1;
    }

    fn remove(&mut self, stage: StageId, worker: ContainerId) {
        if let Some(count) = self.of_stage.get_mut(&(stage, worker)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = self.total.get_mut(&worker) {
            *count = count.saturating_sub(1);
        }
    }
}

impl From<RangePlacement> for Vec<Vec<(ContainerId, u32)>> {
    fn from(placement: RangePlacement) -> Self {
        let runs = |places: Vec<ContainerId>| {
            let runs = places.chunk_by(|a, b| a == b);
            runs.map(|run| (run[0], u32::try_from(run.len()).unwrap_or(u32::MAX)))
                .collect()
        };
        placement.0.into_iter().map(runs).collect()
    }
}

impl TryFrom<Vec<Vec<(ContainerId, u32)>>> for RangePlacement {
    type Error = &'static str;

    fn try_from(stages: Vec<Vec<(ContainerId, u32)>>) -> Result<Self, Self::Error> {
        let counts = stages.iter().flatten().map(|(_, count)| u64::from(*count));
        if counts.sum::<u64>() > u64::from(MAX_RANGES) {
            return Err("a placement has too many partition ranges");
        }
        let repeat = |(worker, count): (ContainerId, u32)| {
            std::iter::repeat_n(worker, usize::try_from(count).unwrap_or(0))
        };
        let places = |runs: Vec<_>| runs.into_iter().flat_map(repeat).collect();
        Ok(RangePlacement(stages.into_iter().map(places).collect()))
    }
}
