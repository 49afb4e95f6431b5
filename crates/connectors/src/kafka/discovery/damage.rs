//! Search for the end of an unreadable batch.

use std::ops::Range;

use ardea_core::Result;

use super::locate::go_on_at;
use super::{Damaged, DiscoveryError, DiscoveryResult, Reached, Search};
use crate::kafka::topics::PartitionId;

/// Number of offsets probed one by one before the step grows. With larger steps, intact records
/// between two damaged batches can be skipped.
const ONE_BY_ONE: i64 = 64;

impl Search {
    /// Resumes a partition after an unreadable batch.
    pub(super) fn go_on_behind(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
        reason: &str,
        news: &mut DiscoveryResult,
    ) -> Result<(), DiscoveryError> {
        let next = reached.next;
        let log = self.log_of(id)?;
        let end = log.1;
        let probe = self.probe()?;
        // The client skips a batch with a wrong checksum by itself, but not one that it cannot
        // decompress.
        let behind = match probe.next_behind(id, next) {
            Ok(Some(behind)) => Ok(behind),
            Ok(None) => first_readable(next..end, |offset| probe.is_readable(id, offset)),
            Err(error) => Err(error),
        };
        let behind = behind?;
        news.found.push(go_on_at(id, behind, reached, log));
        if behind == next {
            // The batch is readable now.
            return Ok(());
        }
        self.teller().outage.log_line(format_args!(
            "a batch of {id} cannot be read ({reason}); the offsets {next} to {} are skipped",
            behind - 1
        ));
        news.damaged.push(Damaged {
            id: id.clone(),
            offsets: next..behind,
            reason: reason.to_string(),
        });
        Ok(())
    }
}

/// Returns the first readable offset after the start of the range, or the range's end if there is
/// none.
fn first_readable<E>(
    range: Range<i64>,
    mut is_readable: impl FnMut(i64) -> Result<bool, E>,
) -> Result<i64, E> {
    let Range { start, end } = range;
    let (mut bad, mut step) = (start, 1);
    let mut good = loop {
        let offset = bad.saturating_add(step);
        if offset >= end {
            break end.max(start + 1);
        }
        if is_readable(offset)? {
            break offset;
        }
        bad = offset;
        if bad - start >= ONE_BY_ONE {
            step *= 2;
        }
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        match is_readable(middle)? {
            true => good = middle,
            false => bad = middle,
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(range: Range<i64>, damaged: &[(i64, i64)]) -> i64 {
        let is_damaged = |offset| {
            damaged
                .iter()
                .any(|(from, to)| (*from..*to).contains(&offset))
        };
        first_readable(range, |offset| Ok::<_, ()>(!is_damaged(offset))).unwrap()
    }

    #[test]
    fn the_end_of_a_batch_of_any_length_is_found() {
        for end in [6, 7, 20, 69, 70, 71, 500, 12_345] {
            assert_eq!(found(5..20_000, &[(5, end)]), end);
        }
        assert_eq!(found(5..9, &[(5, 9)]), 9, "nothing comes behind it");
    }

    #[test]
    fn what_lies_between_two_damaged_batches_is_read() {
        assert_eq!(found(5..100, &[(5, 8), (9, 30)]), 8);
        assert_eq!(found(8..100, &[(8, 9), (9, 30)]), 30);
    }
}
