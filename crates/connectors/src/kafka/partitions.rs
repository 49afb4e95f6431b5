//! The partitions of an instance, with their offsets, event times and watermarks.

use std::time::Duration;

use ardea_core::{AheadBound, Clock, Timestamp, Watermark, WatermarkMerge};

use crate::kafka::discovery::{DiscoveredPartition, LogMark, Reached};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Identities;
use crate::kafka::topics::PartitionId;

/// Longest normal interval between calls of an instance. A longer one means that the instance was
/// stopped or blocked, and does not count as idle time.
const MAX_CALL_INTERVAL: Duration = Duration::from_secs(1);

/// Event time settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timing {
    /// Maximum disorder of event times within a partition.
    pub disorder: Duration,
    /// Time without a record at the end of its log after which a partition becomes idle; `None` for
    /// never.
    pub idle_after: Option<Duration>,
    /// Maximum lead of an event time over the highest earlier event time and over the wall clock.
    /// Event times further ahead do not advance the watermark.
    pub max_ahead: Option<Duration>,
}

/// Watermark output of the instance after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TimeOutput {
    pub watermark: Option<Watermark>,
    pub is_idle: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// More records are available.
    Behind,
    /// All available records have been read; contains the time when, on the instance's clock.
    AtEnd(Duration),
    /// The partition is idle: the watermark does not wait for it.
    Idle,
    /// The partition is fully read.
    Done,
}

#[derive(Debug)]
struct Slot {
    id: PartitionId,
    next: i64,
    /// End offset of a bounded source.
    end: Option<i64>,
    highest: Timestamp,
    log: LogMark,
    is_touched: bool,
    /// True if the partition no longer exists.
    is_gone: bool,
    /// True while a discovery request is pending. The partition is not read until the result
    /// arrives.
    is_pending: bool,
    state: State,
}

impl Slot {
    fn new(found: DiscoveredPartition, is_bounded: bool) -> Self {
        let mut slot = Slot {
            id: found.id,
            next: found.next,
            end: is_bounded.then_some(found.end),
            highest: found.highest,
            log: found.log,
            // A restored event time takes part in the watermark at once.
            is_touched: found.highest.is_event_time(),
            is_gone: false,
            is_pending: false,
            state: State::Behind,
        };
        if slot.end.is_some_and(|end| slot.next >= end) {
            slot.finish();
        }
        slot
    }

    fn reached(&self) -> Reached {
        Reached {
            next: self.next,
            end: self.end,
            highest: self.highest,
            log: self.log.clone(),
        }
    }

    fn finish(&mut self) {
        self.state = State::Done;
        self.is_touched = true;
    }
}

/// The partitions of one instance. Each partition is an input of the watermark merge.
#[derive(Debug)]
pub(crate) struct Partitions {
    slots: Vec<Slot>,
    merge: WatermarkMerge,
    timing: Timing,
    /// Bound above which event times do not advance the watermark.
    bound: AheadBound,
    /// Time of the last idle report.
    said_idle: Option<Duration>,
    /// Time of the last call.
    looked: Duration,
}

impl Partitions {
    pub fn new(timing: Timing) -> Self {
        Partitions {
            slots: Vec::new(),
            merge: WatermarkMerge::new(0),
            timing,
            bound: AheadBound::new(timing.max_ahead, Timestamp::MIN, Clock::system()),
            said_idle: None,
            looked: Duration::ZERO,
        }
    }

    /// Adds a partition. If `is_bounded`, it is read up to its end offset. Returns true if there
    /// are records to read.
    pub fn add(&mut self, found: DiscoveredPartition, is_bounded: bool) -> bool {
        self.merge.add();
        self.said_idle = None;
        self.remember(found.highest);
        self.slots.push(Slot::new(found, is_bounded));
        self.slots
            .last()
            .is_some_and(|slot| slot.state != State::Done)
    }

    /// Returns the number of partitions added so far.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the index of a partition.
    pub fn index(&self, id: &PartitionId) -> Option<usize> {
        let is_it = |slot: &Slot| slot.id == *id && !slot.is_gone;
        self.slots.iter().position(is_it)
    }

    /// Raises the bound for event times to the highest event time of an earlier attempt.
    fn remember(&mut self, highest: Timestamp) {
        let highest = self.bound.highest().max(highest);
        self.bound = AheadBound::new(self.timing.max_ahead, highest, Clock::system());
    }

    /// Marks a discovery request as pending and returns the partition with its read position.
    /// Returns `None` if a request is already pending or the partition is fully read.
    pub fn begin_request(&mut self, index: usize) -> Option<(PartitionId, Reached)> {
        let slot = &mut self.slots[index];
        if slot.is_pending || slot.state == State::Done {
            return None;
        }
        slot.is_pending = true;
        Some((slot.id.clone(), slot.reached()))
    }

    /// Returns true if a discovery request is pending.
    pub fn is_pending(&self, index: usize) -> bool {
        self.slots[index].is_pending
    }

    /// Returns true if a partition's position is known to belong to the topic with this id.
    pub fn is_of(&self, index: usize, topic_id: &str) -> bool {
        self.slots[index].log.topic_id.as_deref() == Some(topic_id)
    }

    /// Resumes a partition at the position found by discovery. Returns false if no request was
    /// pending or nothing is left to read.
    pub fn reset(&mut self, index: usize, found: DiscoveredPartition) -> bool {
        let slot = &mut self.slots[index];
        if !slot.is_pending || slot.state == State::Done {
            return false;
        }
        let fresh = Slot::new(found, slot.end.is_some());
        *slot = Slot {
            highest: slot.highest.max(fresh.highest),
            is_touched: true,
            ..fresh
        };
        slot.state != State::Done
    }

    /// Removes a deleted partition; its position is no longer stored.
    pub fn remove(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.is_gone = true;
        slot.finish();
    }

    /// Records a message; returns false if it lies beyond the end offset.
    ///
    /// A message without a valid time does not end idleness: a partition of such messages must not
    /// hold back the watermark.
    #[inline]
    pub fn message(&mut self, index: usize, offset: i64, time: Timestamp) -> bool {
        let slot = &mut self.slots[index];
        if slot.state == State::Done {
            return false;
        }
        if slot.end.is_some_and(|end| offset >= end) {
            slot.finish();
            return false;
        }
        slot.next = offset + 1;
        if self.bound.take(time).is_ok() {
            slot.highest = slot.highest.max(time);
            slot.is_touched = true;
            slot.state = State::Behind;
        }
        if slot.end.is_some_and(|end| slot.next >= end) {
            slot.finish();
        }
        true
    }

    /// Sets the last record read from a partition.
    pub fn last_was(&mut self, index: usize, last: Fingerprint) {
        self.slots[index].log.last = Some(last);
    }

    /// Marks the end of a partition's log. For a bounded source that has not reached its end
    /// offset, returns the next offset and the end offset.
    pub fn at_end(&mut self, index: usize, now: Duration) -> Option<(i64, i64)> {
        let slot = &mut self.slots[index];
        match (slot.state, slot.end) {
            (State::Behind, Some(end)) => return Some((slot.next, end)),
            (State::Behind, None) => slot.state = State::AtEnd(now),
            (State::AtEnd(_) | State::Idle | State::Done, _) => {}
        }
        None
    }

    /// Finishes a partition of a bounded source whose remaining offsets contain no records.
    pub fn ended(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.end.is_some() {
            slot.finish();
        }
    }

    /// Returns the partition at an index and its next offset.
    pub fn at(&self, index: usize) -> (&PartitionId, i64) {
        let slot = &self.slots[index];
        (&slot.id, slot.next)
    }

    /// Returns the indices of a topic's unfinished partitions.
    pub fn of_topic(&self, topic: &str) -> Vec<usize> {
        let is_of_it = |slot: &Slot| &*slot.id.topic == topic && slot.state != State::Done;
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| is_of_it(slot))
            .map(|(index, _)| index)
            .collect()
    }

    /// Updates the partitions with received topic ids and leader epochs.
    pub fn learn(&mut self, identities: &Identities) {
        for slot in &mut self.slots {
            let (topic, number) = (&*slot.id.topic, slot.id.number);
            let is = identities.id(topic);
            if slot.log.topic_id.is_none() {
                slot.log.topic_id.clone_from(&is);
            }
            // A position in a replaced topic keeps its old identity.
            if slot.log.topic_id == is {
                let epoch = identities.leader_epoch(topic, number);
                slot.log.leader_epoch = epoch.or(slot.log.leader_epoch);
            }
        }
    }

    /// Returns true if all partitions are fully read.
    pub fn are_done(&self) -> bool {
        self.slots.iter().all(|slot| slot.state == State::Done)
    }

    /// Returns the watermark and idleness to emit.
    pub fn time(&mut self, now: Duration) -> TimeOutput {
        let mut saying = TimeOutput::default();
        self.count_anew(now);
        for (input, slot) in self.slots.iter_mut().enumerate() {
            let mut rose = None;
            if std::mem::take(&mut slot.is_touched) {
                self.merge.record(input);
                self.said_idle = None;
                if slot.highest.is_event_time() {
                    let time = slot.highest - self.timing.disorder;
                    rose = self.merge.advance(input, Watermark(time));
                }
                if slot.state == State::Done {
                    rose = self.merge.done(input).or(rose);
                }
            }
            if let (State::AtEnd(since), Some(idle_after)) = (slot.state, self.timing.idle_after)
                && now.saturating_sub(since) >= idle_after
            {
                slot.state = State::Idle;
                rose = self.merge.idle(input).or(rose);
            }
            saying.watermark = rose.or(saying.watermark);
        }
        // The final watermark is emitted by the end of the source.
        saying.watermark = saying.watermark.filter(|mark| *mark != Watermark::END);
        let is_idle =
            self.merge.is_idle() || (self.slots.is_empty() && self.timing.idle_after.is_some());
        let again = self.timing.idle_after.unwrap_or_default();
        let is_said = |said: Duration| now.saturating_sub(said) < again;
        saying.is_idle = is_idle && !self.said_idle.is_some_and(is_said);
        if saying.is_idle {
            self.said_idle = Some(now);
        }
        saying
    }

    /// Restarts idle timeouts after a gap between calls, and for all partitions when the first idle
    /// one becomes active.
    fn count_anew(&mut self, now: Duration) {
        let slept = now.saturating_sub(self.looked);
        self.looked = now;
        let wakes = self.merge.is_idle() && self.slots.iter().any(|slot| slot.is_touched);
        for (input, slot) in self.slots.iter_mut().enumerate() {
            match &mut slot.state {
                State::AtEnd(since) if slept > MAX_CALL_INTERVAL => *since += slept,
                State::Idle if wakes => {
                    slot.state = State::AtEnd(now);
                    self.merge.record(input);
                }
                _ => {}
            }
        }
    }

    /// Returns the read position of each partition.
    pub fn reached(&self) -> impl Iterator<Item = (PartitionId, Reached)> + '_ {
        let slots = self.slots.iter().filter(|slot| !slot.is_gone);
        slots.map(|slot| (slot.id.clone(), slot.reached()))
    }

    /// Returns the next offset of each partition.
    pub fn positions(&self) -> impl Iterator<Item = (&PartitionId, i64)> + '_ {
        let slots = self.slots.iter().filter(|slot| !slot.is_gone);
        slots.map(|slot| (&slot.id, slot.next))
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Offset;

    use super::*;

    fn found(partition: i32, next: i64, end: i64) -> DiscoveredPartition {
        DiscoveredPartition {
            id: PartitionId::new("t", partition),
            log: LogMark::default(),
            start: Offset::Beginning,
            next,
            end,
            highest: Timestamp::MIN,
        }
    }

    fn partitions(count: i32, is_bounded: bool) -> Partitions {
        let mut partitions = Partitions::new(Timing {
            disorder: Duration::from_secs(1),
            idle_after: Some(Duration::from_secs(10)),
            max_ahead: Some(Duration::from_secs(60)),
        });
        for partition in 0..count {
            partitions.add(found(partition, 0, 2), is_bounded);
        }
        partitions
    }

    fn nexts(partitions: &Partitions) -> Vec<i64> {
        partitions.positions().map(|(_, next)| next).collect()
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn said(watermark: i64) -> TimeOutput {
        TimeOutput {
            watermark: Some(Watermark(at(watermark))),
            is_idle: false,
        }
    }

    /// Returns the first output while polling from one time to the other.
    fn looked(partitions: &mut Partitions, from: Duration, to: Duration) -> TimeOutput {
        let mut now = from;
        while now <= to {
            let saying = partitions.time(now);
            if saying != TimeOutput::default() {
                return saying;
            }
            now += MAX_CALL_INTERVAL / 2;
        }
        TimeOutput::default()
    }

    const SOON: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_secs(12);

    #[test]
    fn what_was_known_of_time_is_known_again() {
        let mut before = partitions(1, false);
        assert!(before.message(0, 0, at(100)));
        let (id, reached) = before.reached().next().unwrap();
        let mut after = partitions(0, false);
        after.add(
            DiscoveredPartition {
                highest: reached.highest,
                ..found(id.number, reached.next, 2)
            },
            false,
        );
        assert_eq!(after.time(SOON), said(99));
        assert_eq!(nexts(&after), [1]);
    }

    #[test]
    fn time_is_that_of_the_partition_that_is_furthest_back() {
        let mut partitions = partitions(2, false);
        assert!(partitions.message(0, 0, at(100)));
        assert_eq!(partitions.time(SOON), TimeOutput::default());
        assert!(partitions.message(1, 0, at(50)));
        assert_eq!(partitions.time(SOON), said(49));
        assert!(partitions.message(1, 1, at(200)));
        assert_eq!(partitions.time(SOON), said(99));
        assert_eq!(nexts(&partitions), [1, 2]);
    }

    #[test]
    fn a_partition_is_idle_at_its_end_and_never_before() {
        let mut partitions = partitions(2, false);
        partitions.message(0, 0, at(100));
        let nothing = TimeOutput::default();
        assert_eq!(
            looked(&mut partitions, SOON, LATER),
            nothing,
            "there may be more"
        );
        partitions.at_end(1, LATER);
        assert_eq!(looked(&mut partitions, LATER, 2 * LATER), said(99));
        partitions.at_end(0, 2 * LATER);
        assert!(looked(&mut partitions, 2 * LATER, 3 * LATER).is_idle);
        assert!(!partitions.time(3 * LATER).is_idle, "it was said");
        partitions.message(1, 0, at(40));
        assert_eq!(
            partitions.time(3 * LATER),
            nothing,
            "time stays where it is"
        );
    }

    #[test]
    fn a_partition_whose_times_are_all_refused_becomes_idle() {
        let mut partitions = partitions(2, false);
        partitions.message(0, 0, at(100));
        partitions.at_end(1, Duration::ZERO);
        partitions.message(1, 0, Timestamp::MAX);
        assert_eq!(partitions.time(SOON), TimeOutput::default());
        partitions.message(1, 1, Timestamp::MIN);
        assert_eq!(looked(&mut partitions, SOON, LATER), said(99));
        assert_eq!(nexts(&partitions), [1, 2], "positions go on all the same");
    }

    #[test]
    fn when_all_have_been_silent_one_that_speaks_first_waits_for_the_others() {
        let mut partitions = partitions(2, false);
        for partition in 0..2 {
            partitions.message(partition, 0, at(100));
        }
        assert_eq!(partitions.time(SOON), said(99));
        for partition in 0..2 {
            partitions.at_end(partition, SOON);
        }
        assert!(looked(&mut partitions, SOON, LATER).is_idle);
        partitions.message(0, 1, at(200));
        assert_eq!(partitions.time(LATER), TimeOutput::default());
        partitions.message(1, 1, at(190));
        assert_eq!(partitions.time(LATER), said(189));
    }

    #[test]
    fn that_an_instance_was_stopped_is_no_silence() {
        let mut partitions = partitions(2, false);
        partitions.message(0, 0, at(100));
        assert_eq!(partitions.time(SOON), TimeOutput::default());
        partitions.at_end(1, SOON);
        assert_eq!(partitions.time(LATER), TimeOutput::default());
        assert_eq!(looked(&mut partitions, LATER, 2 * LATER), said(99));
    }

    #[test]
    fn an_instance_without_partitions_is_idle() {
        assert!(partitions(0, false).time(SOON).is_idle);
    }

    #[test]
    fn a_bounded_source_reads_what_there_was_and_no_more() {
        let mut partitions = partitions(2, true);
        assert!(!partitions.add(found(2, 7, 7), true), "nothing is in it");
        assert!(partitions.message(0, 0, at(1)) && partitions.message(0, 1, at(2)));
        assert!(!partitions.message(0, 2, at(3)), "that came later");
        assert!(!partitions.are_done());
        assert!(partitions.message(1, 0, at(9)));
        assert_eq!(partitions.time(SOON), said(8), "they do not hold it");
        assert_eq!(partitions.at_end(1, SOON), Some((1, 2)));
        assert!(!partitions.are_done(), "the rest is not known yet");
        partitions.ended(1);
        assert!(partitions.are_done(), "the last offset is no record");
        assert_eq!(partitions.time(SOON), TimeOutput::default());
    }

    #[test]
    fn records_without_time_say_nothing_of_it() {
        let mut partitions = partitions(1, false);
        partitions.message(0, 0, Timestamp::MIN);
        assert_eq!(partitions.time(SOON), TimeOutput::default());
    }

    #[test]
    fn a_position_that_was_lost_goes_on_elsewhere_and_remembers_its_new_log() {
        let mut partitions = partitions(2, false);
        let identities = Identities::default();
        identities.note("Topic t changed id from AAAAAAAAAAAAAAAAAAAAAA to A");
        partitions.message(0, 0, at(100));
        partitions.learn(&identities);
        identities.note("Topic t changed id from A to B");
        identities.note("Topic t [0] Leader 1 Epoch 3");
        partitions.learn(&identities);
        let mark = |partitions: &Partitions| partitions.reached().next().unwrap().1.log;
        assert_eq!(mark(&partitions).topic_id.as_deref(), Some("A"));
        assert_eq!(mark(&partitions).leader_epoch, None);
        assert_eq!(partitions.of_topic("t"), [0, 1]);
        assert!(!partitions.reset(0, found(0, 7, 9)), "it was not asked for");
        assert_eq!(partitions.begin_request(0).unwrap().1.next, 1);
        assert!(
            partitions.begin_request(0).is_none(),
            "there is one question at a time"
        );
        assert!(partitions.reset(0, found(0, 7, 9)));
        assert!(!partitions.is_pending(0));
        partitions.learn(&identities);
        assert_eq!(mark(&partitions).topic_id.as_deref(), Some("B"));
        assert_eq!(mark(&partitions).leader_epoch, Some(3));
        assert_eq!(nexts(&partitions), [7, 0]);
        partitions.message(1, 0, at(50));
        assert_eq!(
            partitions.time(SOON),
            said(49),
            "its time is that of before"
        );
        partitions.remove(1);
        assert_eq!(partitions.time(SOON), said(99), "it is not waited for");
        assert_eq!(nexts(&partitions), [7]);
        assert_eq!(partitions.index(&PartitionId::new("t", 1)), None);
    }

    #[test]
    fn a_time_that_an_earlier_life_has_taken_bounds_those_that_come_next() {
        let far = Timestamp::MAX - Duration::from_secs(1_000_000_000);
        let mut partitions = partitions(0, false);
        partitions.add(
            DiscoveredPartition {
                highest: far,
                ..found(0, 7, 9)
            },
            false,
        );
        let next = far + Duration::from_secs(2);
        assert!(partitions.message(0, 7, next));
        let said = partitions.time(SOON).watermark;
        assert_eq!(said, Some(Watermark(next - Duration::from_secs(1))));
    }

    #[test]
    fn a_message_far_ahead_moves_no_time() {
        let mut partitions = partitions(1, false);
        assert!(partitions.message(0, 0, at(100)));
        assert!(partitions.message(0, 1, at(99_000_000_000)));
        assert!(partitions.message(0, 2, Timestamp::MAX));
        let said = partitions.time(Duration::ZERO).watermark;
        assert_eq!(said, Some(Watermark(at(99))));
    }
}
