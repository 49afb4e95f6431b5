//! Steps that read two streams.

use ardea_core::{Error, ErrorCode, Result};
use ardea_operators::JoinInterval;

use super::step::{require_time, window_of};
use super::{Branch, EventTime, SourceTable};
use crate::plan::{JoinKind, JoinPlan};

/// Joins a stream with another one.
pub(super) fn join(left: Branch, right: Branch, plan: JoinPlan) -> Result<SourceTable> {
    let JoinPlan {
        name,
        keys,
        other_keys,
        by,
        is_outer,
    } = plan;
    let mut is_bounded = left.is_bounded;
    let (mut time, right_time) = (left.time, right.time);
    if !matches!(by, JoinKind::Table) {
        require_time(time)?;
        require_time(right_time)?;
        is_bounded &= right.is_bounded;
        time = EventTime::Assigned;
    }
    let table = match by {
        JoinKind::Table if !right.is_bounded => {
            let what = "the table of a join has no end, and is read to its end first";
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("join by windows or by an interval, or end the source"));
        }
        JoinKind::Table => match is_outer {
            false => left.table.hash_join(name, keys, right.table, other_keys),
            true => left
                .table
                .hash_join_outer(name, keys, right.table, other_keys),
        },
        JoinKind::Window(window) => {
            let windowed = left.table.key_by(keys).window(window_of(&window));
            windowed.join(name, right.table.key_by(other_keys))
        }
        JoinKind::Interval {
            lower_micros,
            upper_micros,
        } => {
            let interval = JoinInterval::from_micros(lower_micros, upper_micros)?;
            let (left, right) = (left.table.key_by(keys), right.table.key_by(other_keys));
            match is_outer {
                false => left.interval_join(name, right, interval),
                true => left.interval_join_outer(name, right, interval),
            }
        }
    };
    Ok(SourceTable {
        table,
        time,
        is_bounded,
    })
}

/// Merges two streams with the same columns.
pub(super) fn merge(first: Branch, second: Branch) -> Result<SourceTable> {
    let is_assigned = |branch: &Branch| branch.time == EventTime::Assigned;
    if is_assigned(&first) != is_assigned(&second) {
        let what = "one of two merged streams has event time, and the other one has not";
        return Err(Error::new(ErrorCode::InvalidJob, what)
            .hint("assign timestamps to both before, or to the merged stream"));
    }
    let time = match first.time == second.time {
        true => first.time,
        false => EventTime::Absent,
    };
    Ok(SourceTable {
        table: first.table.merge(second.table),
        time,
        is_bounded: first.is_bounded && second.is_bounded,
    })
}
