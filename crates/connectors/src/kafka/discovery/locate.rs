//! Where reading a partition begins, and whether a position still means what it meant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{OnLostPosition, Result, Timestamp};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use super::{ANSWER_TIMEOUT, Found, LogMark, News, Probe, Reached, Search, Trouble};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Replaced;
use crate::kafka::lost::{Lost, Why};
use crate::kafka::positions::Start;
use crate::kafka::topics::PartitionId;

/// How long the client's log of a topic's identity is waited for.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Search {
    /// Finds where reading a partition begins.
    pub(super) fn locate(&mut self, id: &PartitionId, is_new: bool) -> Result<Found, Trouble> {
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

    /// The start and the end of a log.
    pub(super) fn log_of(&self, id: &PartitionId) -> KafkaResult<(i64, i64)> {
        let consumer = &self.mission.consumer;
        consumer.fetch_watermarks(&id.topic, id.number, ANSWER_TIMEOUT)
    }

    /// The start and the end of a log with its open transactions, if an offset lies behind what is
    /// committed of it.
    pub(super) fn whole(
        &self,
        id: &PartitionId,
        offset: i64,
        log: (i64, i64),
    ) -> Result<(i64, i64), Trouble> {
        if offset <= log.1 {
            return Ok(log);
        }
        let probe = Probe::of_all(&self.mission).map_err(Trouble::Failed)?;
        Ok(probe.log_of(id)?)
    }

    /// Where a partition is read from that has not been read before.
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

    /// Identity and leader epoch of a partition's log, as far as they are known.
    fn mark_of(&self, id: &PartitionId, is_awaited: bool) -> LogMark {
        let identities = self.teller().identities();
        let deadline = Instant::now() + IDENTITY_TIMEOUT;
        loop {
            let mark = identities.mark_of(id);
            // The source's thread takes them from the client's log, if it isn't held up.
            if mark.leader_epoch.is_some() || !is_awaited || Instant::now() >= deadline {
                return mark;
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Compares what is remembered of a log with the log. Returns why the position was lost, if it
    /// was.
    fn lost(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
        mark: &LogMark,
        log: (i64, i64),
    ) -> Result<Option<Why>, Trouble> {
        let whole = self.whole(id, reached.furthest(), log)?;
        if let Some(why) = unlike(reached, mark, whole) {
            return Ok(Some(why));
        }
        // Under one leader a log is only appended to.
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

    /// Where a partition is read from whose position was lost.
    pub(super) fn instead(
        &self,
        id: &PartitionId,
        reached: Option<&Reached>,
        (next, why): (i64, Why),
        log: (i64, i64),
    ) -> Result<Found, Trouble> {
        // Up to where another log was to be read says nothing of this one.
        let end = match why.is_of_same_log() {
            true => reached.and_then(|reached| reached.end),
            false => None,
        };
        let lost = Lost {
            partition: id.clone(),
            next,
            log: Some(log),
            why,
        };
        if self.mission.on_lost == OnLostPosition::Fail {
            return Err(Trouble::Failed(lost.into_error()));
        }
        let (oldest, newest) = log;
        self.teller().say(&format!(
            "the position {next} in {id} was lost: {lost}; reading goes on at offset {oldest}"
        ));
        let end = end.map_or(newest, |end| end.min(newest));
        let mut found = found(id, Offset::Beginning, oldest, end);
        if let Some(reached) = reached {
            found.highest = reached.highest;
        }
        Ok(found)
    }

    /// Finds out whether a log still reaches to the offset up to which it was to be read.
    pub(super) fn compare_end(
        &mut self,
        id: &PartitionId,
        next: i64,
        end: i64,
        news: &mut News,
    ) -> Result<(), Trouble> {
        let log = self.log_of(id)?;
        if log.1 >= end {
            // A replica that lags behind tells an end too early. The records behind it come when it
            // has caught up.
            let first = self.probe()?.record_at(id, next)?;
            if first.is_none_or(|first| first.offset >= end) {
                news.ended.push(id.clone());
            }
            return Ok(());
        }
        let lost = Lost {
            partition: id.clone(),
            next,
            log: Some(log),
            why: Why::EndIsGone { end },
        };
        if self.mission.on_lost == OnLostPosition::Fail {
            return Err(Trouble::Failed(lost.into_error()));
        }
        self.teller()
            .say(&format!("{id} was not read to its end: {lost}"));
        news.ended.push(id.clone());
        Ok(())
    }
}

pub(super) fn found(id: &PartitionId, start: Offset, next: i64, end: i64) -> Found {
    Found {
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

/// A partition that goes on at an offset of the log in which an earlier one was reached.
pub(super) fn go_on_at(id: &PartitionId, next: i64, reached: &Reached, log: (i64, i64)) -> Found {
    let end = reached.end.unwrap_or(log.1);
    Found {
        highest: reached.highest,
        log: reached.log.clone(),
        ..found(id, Offset::Offset(next), next, end)
    }
}

/// Returns why a position does not lie in a log, as far as that is seen without its records.
pub(super) fn unlike(reached: &Reached, mark: &LogMark, log: (i64, i64)) -> Option<Why> {
    let was = &reached.log;
    if let (Some(was), Some(is)) = (&was.topic_id, &mark.topic_id)
        && was != is
    {
        let (was, is) = (was.clone(), is.clone());
        return Some(Why::Replaced(Replaced { was, is }));
    }
    if let Some((was, is)) = was.leader_epoch.zip(mark.leader_epoch)
        && is < was
        && !is_same(&reached.log.topic_id, &mark.topic_id)
    {
        return Some(Why::EpochWentBack { was, is });
    }
    let end_is_gone = |end: i64| (end > log.1).then_some(Why::EndIsGone { end });
    out_of_range(reached.next, log).or_else(|| reached.end.and_then(end_is_gone))
}

/// Returns whether both are known, and equal.
fn is_same<T: PartialEq>(was: &Option<T>, is: &Option<T>) -> bool {
    was.is_some() && was == is
}

/// Returns why a position was lost if another record is in the place of the one that was read last.
pub(super) fn other_record(last: Fingerprint, there: Option<Fingerprint>) -> Option<Why> {
    // One that was removed by compaction says nothing.
    let other = there.filter(|there| there.offset == last.offset && *there != last);
    let offset = last.offset;
    other.map(|_| Why::OtherRecord { offset })
}

fn out_of_range(next: i64, (low, high): (i64, i64)) -> Option<Why> {
    if next > high {
        Some(Why::BeyondEnd)
    } else if next < low {
        Some(Why::BelowStart)
    } else {
        None
    }
}

/// What was answered of the one partition that was asked for.
fn answer(list: &TopicPartitionList) -> KafkaResult<Offset> {
    let Some(element) = list.elements().into_iter().next() else {
        return Ok(Offset::Invalid);
    };
    element.error()?;
    Ok(element.offset())
}

/// The first millisecond that does not begin before `time`: no record that is older has it.
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
        assert!(matches!(replaced, Some(Why::Replaced(_))));
        let went_back = unlike(mark(None, Some(3)), mark(None, Some(1)), None);
        assert_eq!(went_back, Some(Why::EpochWentBack { was: 3, is: 1 }));
        let shorter = unlike(known(), known(), Some(8));
        assert_eq!(shorter, Some(Why::EndIsGone { end: 8 }));
    }

    #[test]
    fn a_position_has_to_lie_in_its_log_or_right_behind_it() {
        assert_eq!(out_of_range(3, (3, 7)), None);
        assert_eq!(out_of_range(7, (3, 7)), None);
        assert_eq!(out_of_range(8, (3, 7)), Some(Why::BeyondEnd));
        assert_eq!(out_of_range(2, (3, 7)), Some(Why::BelowStart));
    }
}
