//! Handling of discovery results and partition errors by the source.

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::{Error, ErrorCode, MessageForm, ReadP, Result};
use crate::kafka::discovery::{
    Damaged, DiscoveredPartition, DiscoveryResult, Reached, Request, is_damage,
};
use crate::kafka::lost::LossReason;
use crate::kafka::topics::PartitionId;

impl<M: MessageForm> ReadP<M> {
    /// Starts reading discovered partitions. Returns true if there were results.
    pub(super) fn apply_results(&mut self) -> Result<bool> {
        let Some(reading) = &mut self.reading else {
            return Ok(false);
        };
        let Some(news) = reading.discovery.take_results()? else {
            return Ok(false);
        };
        let DiscoveryResult {
            found,
            ended,
            gone,
            damaged,
            is_complete,
            at_first,
            failed,
        } = news;
        if let Some(error) = failed {
            return Err(error);
        }
        reading.is_complete |= is_complete;
        self.kept.note_partitions(at_first, reading.is_complete);
        for id in ended {
            if let Some(index) = self.partitions.index(&id) {
                self.partitions.ended(index);
            }
        }
        for id in gone {
            self.kept.forget(&id);
            if let Some(index) = self.partitions.index(&id) {
                self.partitions.remove(index);
                self.unassign(index)?;
            }
        }
        for damaged in damaged {
            self.set_aside(damaged)?;
        }
        let mut wanted = Vec::new();
        for found in found {
            if let Some(index) = self.place_of(&found)? {
                wanted.push((index, found));
            }
        }
        let intake = self
            .reading
            .as_mut()
            .and_then(|reading| reading.intake.as_mut());
        if let Some(intake) = intake {
            let assigned = intake.assign(&wanted);
            assigned.map_err(|error| self.cannot_read(error))?;
        }
        if let Some(opened) = &self.source {
            let identities = opened.consumer.context().identities();
            self.partitions.learn(identities);
        }
        self.plan.bookmark.note(self.partitions.positions());
        Ok(true)
    }

    fn set_aside(&self, damaged: Damaged) -> Result<()> {
        let Damaged {
            id,
            offsets,
            reason,
        } = damaged;
        let origin = || format!("{id}@{} to {}", offsets.start, offsets.end - 1);
        self.bad.report(origin, Vec::new, reason)
    }

    /// Returns the index of a partition that is read from now on; `None` if the partition has
    /// nothing to read.
    fn place_of(&mut self, found: &DiscoveredPartition) -> Result<Option<usize>> {
        match self.partitions.index(&found.id) {
            Some(index) => {
                let is_read = self.partitions.reset(index, found.clone());
                Ok(is_read.then_some(index))
            }
            None => {
                let index = self.partitions.count();
                let is_read = self.partitions.add(found.clone(), self.plan.is_bounded);
                Ok(is_read.then_some(index))
            }
        }
    }

    fn unassign(&mut self, index: usize) -> Result<()> {
        let intake = self
            .reading
            .as_mut()
            .and_then(|reading| reading.intake.as_mut());
        let unassigned = intake.map_or(Ok(()), |intake| intake.unassign(index));
        unassigned.map_err(|error| self.cannot_read(error))
    }

    /// Handles the end of a partition's log.
    pub(super) fn has_ended(&mut self, index: usize) {
        let now = self.bad.context().clock.now();
        let Some((next, end)) = self.partitions.at_end(index, now) else {
            return;
        };
        let id = self.partitions.at(index).0.clone();
        if let Some(reading) = &self.reading {
            reading
                .discovery
                .send_request(Request::End { id, next, end });
        }
    }

    fn is_lost(&mut self, index: usize, why: LossReason) -> Result<()> {
        self.ask(index, |id, reached| Request::Lost { id, reached, why })
    }

    /// Requests the position at which a partition continues, unless a request is pending. The
    /// partition is not read until the result arrives.
    fn ask(
        &mut self,
        index: usize,
        request: impl FnOnce(PartitionId, Reached) -> Request,
    ) -> Result<()> {
        let Some((id, reached)) = self.partitions.begin_request(index) else {
            return Ok(());
        };
        self.unassign(index)?;
        if let Some(reading) = &self.reading {
            reading.discovery.send_request(request(id, reached));
        }
        Ok(())
    }

    /// Handles an error of a partition.
    pub(super) fn has_failed(
        &mut self,
        index: usize,
        code: RDKafkaErrorCode,
        reason: String,
    ) -> Result<()> {
        match code {
            RDKafkaErrorCode::AutoOffsetReset
            | RDKafkaErrorCode::OffsetOutOfRange
            | RDKafkaErrorCode::LogTruncation
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
            | RDKafkaErrorCode::UnknownTopicOrPartition => {
                self.is_lost(index, LossReason::Reported(reason))
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => Err(self
                .cannot_read(KafkaError::MessageConsumption(code))
                .permanent()),
            code if is_damage(code) && self.plan.skips_damage => {
                // The client may skip the batch by itself without reporting the new offset.
                self.ask(index, |id, reached| Request::Damaged {
                    id,
                    reached,
                    reason,
                })
            }
            RDKafkaErrorCode::MessageSizeTooLarge => Err(self.is_damaged(index, &reason)),
            code if is_damage(code) => Err(self.is_damaged(index, &reason)),
            // Brokers are unavailable: this has been reported, and librdkafka reconnects by itself.
            _ => Ok(()),
        }
    }

    fn is_damaged(&self, index: usize, reason: &str) -> Error {
        let (id, next) = self.partitions.at(index);
        let what = format!("a batch of the Kafka topic {id} cannot be read, from offset {next} on");
        let hint = "restore the broker's log from another replica; or skip the batch, as one dead letter (`skip_damaged_batches`)";
        Error::new(ErrorCode::ReadFailed, what)
            .because(reason.to_string())
            .hint(hint)
            .permanent()
    }

    /// Handles topics that were created again while being read.
    pub(super) fn notice_replaced(&mut self) -> Result<()> {
        let Some(opened) = &self.source else {
            return Ok(());
        };
        for (topic, replaced) in opened.consumer.context().identities().take_replaced() {
            self.replaced.insert(topic, replaced);
        }
        for (topic, replaced) in std::mem::take(&mut self.replaced) {
            let mut is_answered = true;
            for index in self.partitions.of_topic(&topic) {
                // The pending result may refer to the old topic or to the new one.
                if self.partitions.is_pending(index) {
                    is_answered = false;
                } else if !self.partitions.is_of(index, &replaced.is) {
                    self.is_lost(index, LossReason::Replaced(replaced.clone()))?;
                }
            }
            if !is_answered {
                self.replaced.insert(topic, replaced);
            }
        }
        Ok(())
    }

    pub(super) fn cannot_read(&self, error: KafkaError) -> Error {
        let topics = &self.plan.topics;
        let what = format!("cannot continue reading the Kafka topic {topics}");
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("check that the topic exists and that this user may read it")
    }
}
