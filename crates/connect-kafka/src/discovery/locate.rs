//! Where reading a partition begins, and whether a position still means what it meant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{OnLostPosition, Result, Timestamp};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

use super::{ANSWER_TIMEOUT, Found, LogMark, News, Reached, Search, Trouble};
use crate::identity::Replaced;
use crate::lost::{Lost, Why};
use crate::positions::Start;
use crate::topics::PartitionId;

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
                Some(why) => self.instead(id, Some(&reached), why, log),
                None => Ok(Found {
                    id: id.clone(),
                    start: Offset::Offset(reached.next),
                    next: reached.next,
                    end: reached.end.unwrap_or(log.1),
                    highest: reached.highest,
                    log: LogMark {
                        last: reached.log.last,
                        ..mark
                    },
                }),
            };
        }
        let (start, next) = if is_new {
            (Offset::Beginning, log.0)
        } else {
            self.first(id, log)?
        };
        match out_of_range(next, log) {
            Some(why) => self.instead(id, None, (next, why), log),
            None => Ok(found(id, start, next, log.1)),
        }
    }

    /// The start and the end of a log.
    pub(super) fn log_of(&self, id: &PartitionId) -> KafkaResult<(i64, i64)> {
        let consumer = &self.mission.consumer;
        consumer.fetch_watermarks(&id.topic, id.number, ANSWER_TIMEOUT)
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
            let mark = LogMark {
                topic_id: identities.id(&id.topic),
                leader_epoch: identities.leader_epoch(&id.topic, id.number),
                last: None,
            };
            // The source's thread takes them from the client's log, if it isn't held up.
            if mark.leader_epoch.is_some() || !is_awaited || Instant::now() >= deadline {
                return mark;
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Compares what is remembered of a log with the log. Returns the offset that was lost, and why.
    fn lost(
        &mut self,
        id: &PartitionId,
        reached: &Reached,
        mark: &LogMark,
        log: (i64, i64),
    ) -> Result<Option<(i64, Why)>, Trouble> {
        let next = reached.next;
        let was = &reached.log;
        let is_same_topic = match (&was.topic_id, &mark.topic_id) {
            (Some(was), Some(is)) if was != is => {
                let (was, is) = (was.clone(), is.clone());
                return Ok(Some((next, Why::Replaced(Replaced { was, is }))));
            }
            (was, is) => was.is_some() && was == is,
        };
        let epochs = was.leader_epoch.zip(mark.leader_epoch);
        if let Some((was, is)) = epochs
            && is < was
            && !is_same_topic
        {
            return Ok(Some((next, Why::EpochWentBack { was, is })));
        }
        if let Some(why) = out_of_range(next, log) {
            return Ok(Some((next, why)));
        }
        if let Some(end) = reached.end.filter(|end| *end > log.1) {
            return Ok(Some((next, Why::EndIsGone { end })));
        }
        // Under one leader a log is only appended to.
        let is_same_leader = epochs.is_some_and(|(was, is)| was == is);
        if is_same_topic && is_same_leader {
            return Ok(None);
        }
        let Some(last) = was
            .last
            .filter(|last| (log.0..log.1).contains(&last.offset))
        else {
            return Ok(None);
        };
        let there = self.probe()?.record_at(id, last.offset)?;
        // One that was removed by compaction says nothing.
        let other = there.filter(|there| there.offset == last.offset && *there != last);
        let why = |_| {
            (
                next,
                Why::OtherRecord {
                    offset: last.offset,
                },
            )
        };
        Ok(other.map(why))
    }

    /// Where a partition is read from whose position was lost.
    fn instead(
        &self,
        id: &PartitionId,
        reached: Option<&Reached>,
        (next, why): (i64, Why),
        log: (i64, i64),
    ) -> Result<Found, Trouble> {
        let lost = Lost {
            partition: id.clone(),
            next,
            log: Some(log),
            why,
        };
        if self.mission.on_lost == OnLostPosition::Fail {
            return Err(Trouble::Failed(lost.into_error()));
        }
        let (oldest, end) = log;
        self.teller().say(&format!(
            "the position {next} in {id} was lost: {lost}; reading goes on at offset {oldest}"
        ));
        let mut found = found(id, Offset::Beginning, oldest, end);
        if let Some(reached) = reached {
            found.highest = reached.highest;
        }
        Ok(found)
    }

    /// The position of a partition that is being read was lost.
    pub(super) fn go_on_elsewhere(
        &mut self,
        id: &PartitionId,
        next: i64,
        why: Why,
        news: &mut News,
    ) -> Result<(), Trouble> {
        let counts = self.partition_counts()?;
        if let Some(count) = counts.get(&id.topic)
            && *count <= id.number
        {
            let lost = Lost {
                partition: id.clone(),
                next,
                log: None,
                why: Why::NoPartition { count: *count },
            };
            return Err(Trouble::Missing(lost));
        }
        let log = self.log_of(id)?;
        let why = match why {
            // What the client reports is mostly one of these.
            Why::Reported(reason) => out_of_range(next, log).unwrap_or(Why::Reported(reason)),
            why => why,
        };
        news.found.push(self.instead(id, None, (next, why), log)?);
        Ok(())
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
            // A replica that lags behind tells an end too early. The records behind it come when it has caught up.
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
    fn a_position_has_to_lie_in_its_log_or_right_behind_it() {
        assert_eq!(out_of_range(3, (3, 7)), None);
        assert_eq!(out_of_range(7, (3, 7)), None);
        assert_eq!(out_of_range(8, (3, 7)), Some(Why::BeyondEnd));
        assert_eq!(out_of_range(2, (3, 7)), Some(Why::BelowStart));
    }
}
