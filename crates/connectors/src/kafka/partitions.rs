//! The partitions of an instance, with their offsets, event times and watermarks.

use std::time::Duration;

use ardea_core::{Clock, Timestamp, WatermarkPolicy};

use crate::kafka::discovery::{DiscoveredPartition, LogMark, Reached};
use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::identity::Identities;
use crate::kafka::topics::PartitionId;
use crate::source_watermarks::{SourceWatermarks, TimeOutput};

#[derive(Debug)]
struct Slot {
    id: PartitionId,
    next: i64,
    /// End offset of a bounded source.
    end: Option<i64>,
    log: LogMark,
    /// True if the partition no longer exists.
    is_gone: bool,
    /// True while a discovery request is pending. The partition is not read until the result
    /// arrives.
    is_pending: bool,
}

impl Slot {
    fn new(found: DiscoveredPartition, is_bounded: bool) -> Self {
        Slot {
            id: found.id,
            next: found.next,
            end: is_bounded.then_some(found.end),
            log: found.log,
            is_gone: false,
            is_pending: false,
        }
    }

    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

/// The partitions of one instance. Each partition is an input of the watermark.
#[derive(Debug)]
pub(crate) struct Partitions {
    slots: Vec<Slot>,
    watermarks: SourceWatermarks,
}

impl Partitions {
    pub fn new(policy: WatermarkPolicy) -> Self {
        Partitions {
            slots: Vec::new(),
            watermarks: SourceWatermarks::new(policy, Clock::system()),
        }
    }

    /// Adds a partition. If `is_bounded`, it is read up to its end offset. Returns true if there
    /// are records to read.
    pub fn add(&mut self, found: DiscoveredPartition, is_bounded: bool) -> bool {
        self.watermarks.add(found.highest);
        self.slots.push(Slot::new(found, is_bounded));
        !self.finish_at_end(self.slots.len() - 1)
    }

    /// Marks a partition that has reached its end offset as fully read; returns true if it has.
    fn finish_at_end(&mut self, index: usize) -> bool {
        let is_at_end = self.slots[index].is_at_end();
        if is_at_end {
            self.watermarks.finish(index);
        }
        is_at_end
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

    fn reached_at(&self, index: usize) -> Reached {
        let slot = &self.slots[index];
        Reached {
            next: slot.next,
            end: slot.end,
            highest: self.watermarks.highest(index),
            log: slot.log.clone(),
        }
    }

    /// Marks a discovery request as pending and returns the partition with its read position.
    /// Returns `None` if a request is already pending or the partition is fully read.
    pub fn begin_request(&mut self, index: usize) -> Option<(PartitionId, Reached)> {
        if self.slots[index].is_pending || self.watermarks.is_done(index) {
            return None;
        }
        self.slots[index].is_pending = true;
        Some((self.slots[index].id.clone(), self.reached_at(index)))
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
        if !slot.is_pending || self.watermarks.is_done(index) {
            return false;
        }
        self.watermarks.reset(index, found.highest);
        *slot = Slot::new(found, slot.end.is_some());
        !self.finish_at_end(index)
    }

    /// Removes a deleted partition; its position is no longer stored.
    pub fn remove(&mut self, index: usize) {
        self.slots[index].is_gone = true;
        self.watermarks.finish(index);
    }

    /// Records a message; returns false if it lies beyond the end offset.
    #[inline]
    pub fn message(&mut self, index: usize, offset: i64, time: Timestamp) -> bool {
        if self.watermarks.is_done(index) {
            return false;
        }
        let slot = &mut self.slots[index];
        if slot.end.is_some_and(|end| offset >= end) {
            self.watermarks.finish(index);
            return false;
        }
        slot.next = offset + 1;
        self.watermarks.record(index, time);
        self.finish_at_end(index);
        true
    }

    /// Sets the last record read from a partition.
    pub fn last_was(&mut self, index: usize, last: Fingerprint) {
        self.slots[index].log.last = Some(last);
    }

    /// Marks the end of a partition's log. For a bounded source that has not reached its end
    /// offset, returns the next offset and the end offset.
    pub fn at_end(&mut self, index: usize, now: Duration) -> Option<(i64, i64)> {
        let slot = &self.slots[index];
        match slot.end {
            Some(end) => self.watermarks.is_behind(index).then_some((slot.next, end)),
            None => {
                self.watermarks.at_end(index, now);
                None
            }
        }
    }

    /// Finishes a partition of a bounded source whose remaining offsets contain no records.
    pub fn ended(&mut self, index: usize) {
        if self.slots[index].end.is_some() {
            self.watermarks.finish(index);
        }
    }

    /// Returns the partition at an index and its next offset.
    pub fn at(&self, index: usize) -> (&PartitionId, i64) {
        let slot = &self.slots[index];
        (&slot.id, slot.next)
    }

    /// Returns the indices of a topic's unfinished partitions.
    pub fn of_topic(&self, topic: &str) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        let is_of_it = |(index, slot): &(usize, &Slot)| {
            &*slot.id.topic == topic && !self.watermarks.is_done(*index)
        };
        slots.filter(is_of_it).map(|(index, _)| index).collect()
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
        self.watermarks.are_done()
    }

    /// Returns the watermark and idleness to emit.
    pub fn time(&mut self, now: Duration) -> TimeOutput {
        self.watermarks.time(now)
    }

    fn present(&self) -> impl Iterator<Item = (usize, &Slot)> + '_ {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| !slot.is_gone)
    }

    /// Returns the read position of each partition.
    pub fn reached(&self) -> impl Iterator<Item = (PartitionId, Reached)> + '_ {
        let slots = self.present();
        slots.map(|(index, slot)| (slot.id.clone(), self.reached_at(index)))
    }

    /// Returns the next offset of each partition.
    pub fn positions(&self) -> impl Iterator<Item = (&PartitionId, i64)> + '_ {
        self.present().map(|(_, slot)| (&slot.id, slot.next))
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::Watermark;
    use rdkafka::Offset;

    use super::*;
    use crate::source_watermarks::MAX_CALL_INTERVAL;

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
        let policy = WatermarkPolicy::out_of_order(Duration::from_secs(1))
            .max_ahead(Some(Duration::from_secs(60)));
        let mut partitions = Partitions::new(policy);
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
