//! Start offsets of partitions, and validation of restored positions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{OnLostPosition, Result, Timestamp};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use super::{
    ANSWER_TIMEOUT, DiscoveredPartition, DiscoveryError, DiscoveryResult, LogMark, Probe, Reached,
    Search,
};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Replaced;
use crate::kafka::lost::{LossReason, LostPosition};
use crate::kafka::positions::Start;
use crate::kafka::topics::PartitionId;

/// Longest wait for the topic id, which the client reports in its log.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Search {
    /// Determines the start offset of a partition.
    pub(super) fn locate(
        &mut self,
        id: &PartitionId,
        is_new: bool,
    ) -> Result<DiscoveredPartition, DiscoveryError> {
        let log = self.log_of(id)?;
        if let Some(reached) = self.mission.resumed.reached.get(id).cloned() {
            let mark = self.mark_of(id, reached.log.last.is_some());
            return match self.lost(id, &reached, &mark, log)? {
                Some(why) => self.instead(id, Some(&reached), (reached.next, why), log),
                None => {
                    let mut found = go_on_at(id, reached.next, &reached, log);
                    found.log = LogMark {
                        last: reached.log.last,
                        ..mark
                    };
                    Ok(found)
                }
            };
        }
        let (start, next) = if is_new {
            (Offset::Beginning, log.0)
        } else {
            self.first(id, log)?
        };
        let whole = self.whole(id, next, log)?;
        match out_of_range(next, whole) {
            Some(why) => self.instead(id, None, (next, why), log),
            None => {
                let mut found = found(id, start, next, log.1);
                found.log = self.mark_of(id, false);
                Ok(found)
            }
        }
    }

    /// Returns the start and end offsets of a partition's log.
    pub(super) fn log_of(&self, id: &PartitionId) -> KafkaResult<(i64, i64)> {
        let consumer = &self.mission.consumer;
        consumer.fetch_watermarks(&id.topic, id.number, ANSWER_TIMEOUT)
    }

    /// Returns `log`, the start and end of a log. If `offset` lies beyond its end, returns the
    /// range including open transactions.
    pub(super) fn whole(
        &self,
        id: &PartitionId,
        offset: i64,
        log: (i64, i64),
    ) -> Result<(i64, i64), DiscoveryError> {
        if offset <= log.1 {
            return Ok(log);
        }
        let probe = Probe::of_all(&self.mission).map_err(DiscoveryError::Failed)?;
        Ok(probe.log_of(id)?)
    }

    /// Returns the configured start position of a partition that has not been read before, and its
    /// offset.
    fn first(&self, id: &PartitionId, (low, high): (i64, i64)) -> KafkaResult<(Offset, i64)> {
        let consumer = &self.mission.consumer;
        let from = |offset: i64| (Offset::Offset(offset), offset);
        let earliest = (Offset::Beginning, low);
        let mut asked = TopicPartitionList::new();
        Ok(match &self.mission.start {
            Start::Earliest => earliest,
            Start::Latest => from(high),
            start @ (Start::Positions(_) | Start::TopicPositions(_)) => {
                let given = start.positions(&id.topic);
                let next = given.and_then(|positions| positions.next(id.number));
                next.map_or(earliest, from)
            }
            Start::Stored { .. } => {
                asked.add_partition(&id.topic, id.number);
                match answer(&consumer.committed_offsets(asked, ANSWER_TIMEOUT)?)? {
                    Offset::Offset(offset) => from(offset),
                    _ => earliest,
                }
            }
            Start::At(time) => {
                let millis = first_milli(*time);
                asked.add_partition_offset(&id.topic, id.number, Offset::Offset(millis))?;
                match answer(&consumer.offsets_for_times(asked, ANSWER_TIMEOUT)?)? {
                    Offset::Offset(offset) => from(offset),
                    _ => from(high),
                }
            }
        })
    }

    /// Returns identity and leader epoch of a partition's log, as far as known.
    fn mark_of(&self, id: &PartitionId, is_awaited: bool) -> LogMark {
        let identities = self.teller().identities();
        let deadline = Instant::now() + IDENTITY_TIMEOUT;
        loop {
            let mark = identities.mark_of(id);
            // The source's thread extracts them from the client's log, unless it is blocked.
            if mark.leader_epoch.is_some() || !is_awaited || Instant::now() >= deadline {
                return mark;
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Compares a restored position with the log. Returns the reason if the position was lost,
    /// otherwise `None`.
    fn lost(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
        mark: &LogMark,
        log: (i64, i64),
    ) -> Result<Option<LossReason>, DiscoveryError> {
        let whole = self.whole(id, reached.furthest(), log)?;
        if let Some(why) = unlike(reached, mark, whole) {
            return Ok(Some(why));
        }
        // Under one leader epoch, a log is only appended to.
        if is_same(&reached.log.topic_id, &mark.topic_id)
            && is_same(&reached.log.leader_epoch, &mark.leader_epoch)
        {
            return Ok(None);
        }
        let in_log = |last: &Fingerprint| (whole.0..whole.1).contains(&last.offset);
        let Some(last) = reached.log.last.filter(in_log) else {
            return Ok(None);
        };
        let there = self.probe()?.record_at(id, last.offset)?;
        Ok(other_record(last, there))
    }

    /// Returns the new start of a partition whose position was lost, or fails the job.
    pub(super) fn instead(
        &self,
        id: &PartitionId,
        reached: Option<&Reached>,
        (next, why): (i64, LossReason),
        log: (i64, i64),
    ) -> Result<DiscoveredPartition, DiscoveryError> {
        // The end offset applies only to the log for which it was determined.
        let end = match why.is_of_same_log() {
            true => reached.and_then(|reached| reached.end),
            false => None,
        };
        let lost = LostPosition {
            partition: id.clone(),
            next,
            log: Some(log),
            why,
        };
        if self.mission.on_lost == OnLostPosition::Fail {
            return Err(DiscoveryError::Failed(lost.into_error()));
        }
        let (oldest, newest) = log;
        self.teller().outage.log_line(format_args!(
            "the position {next} in {id} was lost: {lost}; reading continues at offset {oldest}"
        ));
        let end = end.map_or(newest, |end| end.min(newest));
        let mut found = found(id, Offset::Beginning, oldest, end);
        if let Some(reached) = reached {
            found.highest = reached.highest;
        }
        Ok(found)
    }

    /// Checks whether a log still reaches to the end offset of a bounded source.
    pub(super) fn compare_end(
        &mut self,
        id: &PartitionId,
        next: i64,
        end: i64,
        news: &mut DiscoveryResult,
    ) -> Result<(), DiscoveryError> {
        let log = self.log_of(id)?;
        if log.1 >= end {
            // A lagging replica can report a lower end. The remaining records arrive when it has
            // caught up.
            let first = self.probe()?.record_at(id, next)?;
            if first.is_none_or(|first| first.offset >= end) {
                news.ended.push(id.clone());
            }
            return Ok(());
        }
        let lost = LostPosition {
            partition: id.clone(),
            next,
            log: Some(log),
            why: LossReason::EndIsGone { end },
        };
        if self.mission.on_lost == OnLostPosition::Fail {
            return Err(DiscoveryError::Failed(lost.into_error()));
        }
        self.teller()
            .outage
            .log_line(format_args!("{id} was not read to its end: {lost}"));
        news.ended.push(id.clone());
        Ok(())
    }
}

pub(super) fn found(id: &PartitionId, start: Offset, next: i64, end: i64) -> DiscoveredPartition {
    DiscoveredPartition {
        id: PartitionId {
            topic: Arc::clone(&id.topic),
            number: id.number,
        },
        start,
        next,
        end,
        highest: Timestamp::MIN,
        log: LogMark::default(),
    }
}

/// Returns a partition that continues at `next` in the log of a known position.
pub(super) fn go_on_at(
    id: &PartitionId,
    next: i64,
    reached: &Reached,
    log: (i64, i64),
) -> DiscoveredPartition {
    let end = reached.end.unwrap_or(log.1);
    DiscoveredPartition {
        highest: reached.highest,
        log: reached.log.clone(),
        ..found(id, Offset::Offset(next), next, end)
    }
}

/// Compares a position with the log without reading records. Returns the reason if the position is
/// lost.
pub(super) fn unlike(reached: &Reached, mark: &LogMark, log: (i64, i64)) -> Option<LossReason> {
    let was = &reached.log;
    if let (Some(was), Some(is)) = (&was.topic_id, &mark.topic_id)
        && was != is
    {
        let (was, is) = (was.clone(), is.clone());
        return Some(LossReason::Replaced(Replaced { was, is }));
    }
    if let Some((was, is)) = was.leader_epoch.zip(mark.leader_epoch)
        && is < was
        && !is_same(&reached.log.topic_id, &mark.topic_id)
    {
        return Some(LossReason::EpochWentBack { was, is });
    }
    let end_is_gone = |end: i64| (end > log.1).then_some(LossReason::EndIsGone { end });
    out_of_range(reached.next, log).or_else(|| reached.end.and_then(end_is_gone))
}

/// Returns true if both values are known and equal.
fn is_same<T: PartialEq>(was: &Option<T>, is: &Option<T>) -> bool {
    was.is_some() && was == is
}

/// Returns the reason if another record is at the offset of the last record read.
pub(super) fn other_record(last: Fingerprint, there: Option<Fingerprint>) -> Option<LossReason> {
    // A record removed by compaction is no evidence of another log.
    let other = there.filter(|there| there.offset == last.offset && *there != last);
    let offset = last.offset;
    other.map(|_| LossReason::OtherRecord { offset })
}

fn out_of_range(next: i64, (low, high): (i64, i64)) -> Option<LossReason> {
    if next > high {
        Some(LossReason::BeyondEnd)
    } else if next < low {
        Some(LossReason::BelowStart)
    } else {
        None
    }
}

/// Returns the offset in a response about a single partition.
fn answer(list: &TopicPartitionList) -> KafkaResult<Offset> {
    let Some(element) = list.elements().into_iter().next() else {
        return Ok(Offset::Invalid);
    };
    element.error()?;
    Ok(element.offset())
}

/// Returns `time` rounded up to milliseconds, so that no older record is included.
fn first_milli(time: Timestamp) -> i64 {
    let millis = time.as_millis();
    let is_whole = time.as_micros() % 1_000 == 0;
    (if is_whole { millis } else { millis + 1 }).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_what_kafka_knows() {
        assert_eq!(first_milli(Timestamp::from_millis(7)), 7);
        assert_eq!(first_milli(Timestamp::from_micros(7_001)), 8);
        assert_eq!(first_milli(Timestamp::MIN), 0);
    }

    #[test]
    fn a_log_is_another_one_if_its_topic_its_epoch_or_its_end_says_so() {
        let mark = |topic_id: Option<&str>, leader_epoch| LogMark {
            topic_id: topic_id.map(str::to_string),
            leader_epoch,
            last: None,
        };
        let unlike = |was, is, end| {
            let reached = Reached {
                next: 5,
                end,
                highest: Timestamp::MIN,
                log: was,
            };
            unlike(&reached, &is, (0, 7))
        };
        let known = || mark(Some("A"), Some(3));
        assert_eq!(unlike(known(), known(), Some(7)), None);
        assert_eq!(unlike(known(), LogMark::default(), None), None);
        assert_eq!(unlike(known(), mark(Some("A"), Some(1)), None), None);
        let replaced = unlike(known(), mark(Some("B"), Some(3)), None);
        assert!(matches!(replaced, Some(LossReason::Replaced(_))));
        let went_back = unlike(mark(None, Some(3)), mark(None, Some(1)), None);
        assert_eq!(went_back, Some(LossReason::EpochWentBack { was: 3, is: 1 }));
        let shorter = unlike(known(), known(), Some(8));
        assert_eq!(shorter, Some(LossReason::EndIsGone { end: 8 }));
    }

    #[test]
    fn a_position_has_to_lie_in_its_log_or_right_behind_it() {
        assert_eq!(out_of_range(3, (3, 7)), None);
        assert_eq!(out_of_range(7, (3, 7)), None);
        assert_eq!(out_of_range(8, (3, 7)), Some(LossReason::BeyondEnd));
        assert_eq!(out_of_range(2, (3, 7)), Some(LossReason::BelowStart));
    }
}
