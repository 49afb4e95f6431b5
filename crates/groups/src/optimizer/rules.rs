//! Rules of the optimizer: pure functions of the work of a group.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use super::{StageChange, StageStatistics};

/// The bounds of the rules.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OptimizerRules {
    /// Records are combined before an exchange if the consumer reads this number of records for
    /// each one that it emits.
    pub combine_above: f64,
    /// They are no longer combined if the producers read fewer records for each one that they emit.
    pub combine_below: f64,
    /// A stage gets more ranges above this utilization.
    pub busy_above: f64,
    /// A stage gets fewer ranges below this utilization.
    pub idle_below: f64,
    /// The utilization that other numbers of ranges aim at.
    pub target: f64,
    /// The least number of ranges of a stage.
    pub min_ranges: u32,
    /// The greatest number of ranges of a stage.
    pub max_ranges: u32,
    /// A range is split above this skew, if it is busy.
    pub split_above: f64,
    /// The greatest number of parts of a range.
    pub max_parts: u32,
    /// The number of groups between two decisions about a stage. The first shows the effect.
    pub pause_groups: u64,
}

impl Default for OptimizerRules {
    fn default() -> Self {
        OptimizerRules {
            combine_above: 4.0,
            combine_below: 1.5,
            busy_above: 0.8,
            idle_below: 0.2,
            target: 0.6,
            min_ranges: 1,
            max_ranges: 256,
            split_above: 3.0,
            max_parts: 8,
            pause_groups: 3,
        }
    }
}

impl OptimizerRules {
    /// Checks the bounds.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if they are not in order.
    pub fn check(&self) -> Result<()> {
        let combining = 1.0 <= self.combine_below && self.combine_below < self.combine_above;
        let load = 0.0 <= self.idle_below
            && self.idle_below < self.target
            && self.target < self.busy_above;
        let ranges = 1 <= self.min_ranges && self.min_ranges <= self.max_ranges;
        let splits = self.split_above > 1.0 && self.max_parts >= 2;
        if combining && load && ranges && splits {
            return Ok(());
        }
        Err(
            Error::new(ErrorCode::InvalidConfig, "invalid rules of the optimizer")
                .because(format!("{self:?}"))
                .hint("give bounds in ascending order: below < above, idle < target < busy"),
        )
    }
}

/// Returns the number of records that a stage reads for each one that it emits; `None` if it reads
/// none.
pub fn reduction(stage: &StageStatistics) -> Option<f64> {
    let work = stage.work();
    (work.records_in > 0).then(|| work.records_in as f64 / work.records_out.max(1) as f64)
}

/// Combines records before an exchange if the consumer reduces them by at least `least`.
pub fn combine(consumer: &StageStatistics, least: f64) -> Option<StageChange> {
    reduction(consumer)
        .is_some_and(|reduction| reduction >= least)
        .then_some(StageChange::Combine(true))
}

/// Ends the combination of records that hardly reduces them.
pub fn separate(producer: &StageStatistics, rules: &OptimizerRules) -> Option<StageChange> {
    reduction(producer)
        .is_some_and(|reduction| reduction < rules.combine_below)
        .then_some(StageChange::Combine(false))
}

/// Returns another number of ranges for a stage that is too busy or idle. Skewed stages are left to
/// [`split`], since more ranges would not divide a hot one.
pub fn resize(
    stage: &StageStatistics,
    duration: Duration,
    rules: &OptimizerRules,
) -> Option<StageChange> {
    let utilization = stage.utilization(duration);
    let is_busy = utilization > rules.busy_above && stage.skew() < rules.split_above;
    if !is_busy && utilization >= rules.idle_below {
        return None;
    }
    let ranges = u32::try_from(stage.ranges.len()).unwrap_or(u32::MAX);
    // The conversion saturates.
    let wanted = (f64::from(ranges) * utilization / rules.target).ceil() as u32;
    let wanted = wanted.clamp(rules.min_ranges, rules.max_ranges);
    let has_direction = (wanted > ranges) == is_busy && wanted != ranges;
    has_direction.then_some(StageChange::Ranges(wanted))
}

/// Splits the range of a stage that reads far more records than the others, and is busy.
pub fn split(
    stage: &StageStatistics,
    duration: Duration,
    rules: &OptimizerRules,
) -> Option<StageChange> {
    let (hottest, skew) = (stage.hottest()?, stage.skew());
    let busy = hottest.work.busy().as_secs_f64();
    if skew < rules.split_above || busy <= rules.busy_above * duration.as_secs_f64() {
        return None;
    }
    // The conversion saturates.
    let parts = skew.ceil() as u32;
    Some(StageChange::Split {
        range: hottest.range,
        parts: parts.clamp(2, rules.max_parts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::RangeStatistics;
    use crate::{StageId, TaskFigures};
    use ardea_coordination::packing::ContainerId;

    const SECOND: Duration = Duration::from_secs(1);

    /// A stage whose ranges have read, emitted and worked so much: records, records, milliseconds.
    fn stage(ranges: &[(u64, u64, u64)]) -> StageStatistics {
        let ranges = (0..).zip(ranges);
        let ranges = ranges.map(
            |(range, (records_in, records_out, millis))| RangeStatistics {
                range,
                worker: ContainerId(1),
                tasks: 10,
                work: TaskFigures {
                    records_in: *records_in,
                    records_out: *records_out,
                    bytes_out: records_out * 8,
                    busy_nanos: millis * 1_000_000,
                },
            },
        );
        StageStatistics {
            stage: StageId(1),
            ranges: ranges.collect(),
        }
    }

    #[test]
    fn records_are_combined_if_a_consumer_reduces_them() {
        let rules = OptimizerRules::default();
        let few_keys = stage(&[(1_000, 10, 50), (1_000, 10, 50)]);
        let on = Some(StageChange::Combine(true));
        assert_eq!(combine(&few_keys, rules.combine_above), on);
        assert_eq!(combine(&few_keys, 200.0), None);
        let many_keys = stage(&[(1_000, 900, 50), (1_000, 900, 50)]);
        assert_eq!(combine(&many_keys, rules.combine_above), None);
        let off = Some(StageChange::Combine(false));
        assert_eq!(separate(&many_keys, &rules), off);
        assert_eq!(separate(&few_keys, &rules), None);
        let idle = stage(&[(0, 0, 0)]);
        assert_eq!(combine(&idle, 1.0), None);
        assert_eq!(separate(&idle, &rules), None);
    }

    #[test]
    fn the_number_of_ranges_follows_the_load() {
        let rules = OptimizerRules::default();
        let resized = |millis| resize(&stage(&[(10, 10, millis); 4]), SECOND, &rules);
        assert_eq!(resized(900), Some(StageChange::Ranges(6)));
        assert_eq!(resized(500), None);
        assert_eq!(resized(100), Some(StageChange::Ranges(1)));
        assert_eq!(resize(&stage(&[(0, 0, 0)]), SECOND, &rules), None);
        let most = OptimizerRules {
            max_ranges: 4,
            ..rules
        };
        assert_eq!(resize(&stage(&[(10, 10, 900); 4]), SECOND, &most), None);
    }

    #[test]
    fn a_hot_range_is_split_and_not_the_stage_resized() {
        let rules = OptimizerRules::default();
        let mut ranges = [(10, 10, 800); 8];
        ranges[5] = (700, 700, 990);
        let skewed = stage(&ranges);
        let change = StageChange::Split { range: 5, parts: 8 };
        assert_eq!(split(&skewed, SECOND, &rules), Some(change));
        assert_eq!(resize(&skewed, SECOND, &rules), None);
        ranges[5].2 = 300;
        assert_eq!(split(&stage(&ranges), SECOND, &rules), None, "it is idle");
        let even = stage(&[(10, 10, 990); 8]);
        assert_eq!(split(&even, SECOND, &rules), None);
        assert_eq!(split(&stage(&[]), SECOND, &rules), None);
    }

    #[test]
    fn rules_without_order_are_refused() {
        type Set = fn(&mut OptimizerRules);
        let wrong: [Set; 5] = [
            |rules| rules.combine_below = 5.0,
            |rules| rules.target = 0.9,
            |rules| rules.min_ranges = 0,
            |rules| rules.split_above = f64::NAN,
            |rules| rules.max_parts = 1,
        ];
        for set in wrong {
            let mut rules = OptimizerRules::default();
            assert!(rules.check().is_ok());
            set(&mut rules);
            let error = rules.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        }
    }
}
