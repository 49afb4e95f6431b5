//! Writes batches to a topic, each once, whoever dies in between.
//!
//! # Why nothing is lost or doubled
//!
//! librdkafka can't finish a transaction that another process has prepared. So nothing is prepared: the messages of an epoch are kept in the cut
//! that ends it, and sent when the epoch is committed, in one transaction with a **mark**: the number of the epoch, as the offset of
//! a consumer group of the run's own, which Kafka commits with the messages or not at all.
//!
//! * *Nothing is lost:* an epoch's messages are in its cut before it can be committed. Whoever goes on from a committed epoch has the
//!   messages of all batches that the cut did not know to be sent.
//! * *Nothing is doubled:* before such a one sends anything, it takes over the transactional id of the dead one (`init_transactions`), which
//!   ends that one's transaction, committed or aborted, and lets it write no more. Then it reads the mark: it is stable, and says exactly
//!   which batches are there, as batches are sent in the order of their epochs, and those of one transaction are there together.
//! * Epochs count on over all lives of a run, and another run has another group: a mark never speaks of other batches.
//! * A mark that is gone, though the cut knows that there was one, is an error: Kafka forgets offsets of groups that were silent for long
//!   (`offsets.retention.minutes`), and nobody could tell what is there.

mod errors;

use std::time::{Duration, Instant};

use ardea_core::{BadRecords, Epoch, Error, ErrorCode, Result};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use super::aborts::{Aborts, comes_again};
use super::batch::{Batch, Waiting};
use super::deliveries::Deliveries;
use super::limits::{Limits, PRODUCERS_LIMIT};
use super::requirements::transaction_timeout_ms;
use crate::kafka::TURN;
use crate::kafka::headers;
use crate::kafka::settings::Settings;
use crate::kafka::teller::Teller;
use errors::is_fenced;

/// How long to wait for deliveries at a time. librdkafka's wait is not cut short by them.
const WAIT: Duration = Duration::from_millis(5);
/// How long a broker may take to answer a question.
const ANSWER: Duration = Duration::from_millis(900);

/// Settings that can be changed by properties.
const DEFAULTS: &[(&str, &str)] = &[("linger.ms", "1"), ("reconnect.backoff.max.ms", "1000")];

/// Who writes, and under which name the mark is kept.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub transactional_id: String,
    pub group: String,
}

/// What an error asks for.
enum Trouble {
    /// The same again, later.
    Again,
    /// The transaction from its beginning.
    Abort,
    /// Nothing helps.
    Final,
}

/// Where in the batches of a transaction the next message is.
#[derive(Clone, Copy, Default, Debug)]
struct Cursor {
    batch: usize,
    block: usize,
    at: usize,
}

/// How far the transaction at hand is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Others with the same id may still write.
    Unfenced,
    /// There is none.
    Between,
    Sending(Cursor),
    /// All messages are under way, or there; the mark is next.
    Marking,
    Committing,
    Aborting,
}

/// The transactions of one writer. Every call takes about a second at most, and is made again until it has an answer.
pub(super) struct Transactions {
    settings: Settings,
    writer: Writer,
    producer: BaseProducer<Deliveries>,
    marks: BaseConsumer<Teller>,
    stage: Stage,
    /// When the transaction at hand began.
    begun: Instant,
    aborts: Aborts,
}

impl Transactions {
    pub fn new(settings: &Settings, job: &str, writer: Writer, limits: &Limits) -> Result<Self> {
        let fixed = [
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("transactional.id", writer.transactional_id.as_str()),
        ];
        let group = [
            ("group.id", writer.group.as_str()),
            ("enable.auto.commit", "false"),
            // A mark whose transaction has not ended is not told.
            ("isolation.level", "read_committed"),
        ];
        // What a producer is told may be of no use to a consumer.
        let plain = settings.of_connections();
        let mut bounded = settings.clone();
        if let Some(limit) = limits.to_tell() {
            bounded.set(PRODUCERS_LIMIT.to_string(), limit);
        }
        Ok(Transactions {
            producer: bounded.client(job, DEFAULTS, &fixed)?,
            marks: plain.client(job, &[], &group)?,
            settings: settings.clone(),
            writer,
            stage: Stage::Unfenced,
            begun: Instant::now(),
            aborts: Aborts::default(),
        })
    }

    /// Sees to it that nobody else writes under this id; false if that is not known yet.
    pub fn fence(&mut self) -> Result<bool> {
        if !matches!(self.stage, Stage::Unfenced) {
            return Ok(true);
        }
        self.producer.poll(Duration::ZERO);
        match self.producer.init_transactions(ANSWER) {
            Ok(()) => {
                self.producer.context().teller().heard();
                self.stage = Stage::Between;
                Ok(true)
            }
            Err(error) => match Transactions::trouble(&error) {
                Trouble::Again => Ok(false),
                Trouble::Abort | Trouble::Final => Err(self.failed(error)),
            },
        }
    }

    /// The latest epoch whose messages are there, none if there was none so far; nothing if it is not known yet.
    pub fn mark(&mut self) -> Result<Option<Option<Epoch>>> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&self.settings.topic, 0);
        let answered = self.marks.committed_offsets(asked, ANSWER);
        let offset = answered.and_then(|list| {
            let element = list.elements().into_iter().next();
            element.map_or(Ok(Offset::Invalid), |element| {
                element.error().map(|()| element.offset())
            })
        });
        match offset {
            Ok(offset) => {
                self.marks.context().heard();
                Ok(Some(match offset {
                    Offset::Offset(number) => u64::try_from(number).ok().map(Epoch),
                    _ => None,
                }))
            }
            // It would be so again, and the records wait for the answer.
            Err(error) if comes_again(error.rdkafka_error_code()) => Err(self.failed(error)),
            // Brokers are away, which is told by the producer, or the transaction has not quite ended.
            Err(_) => Ok(None),
        }
    }

    /// Sends these batches in one transaction, with the epoch of the last as its mark; done when they are there. Until it is, it has to be
    /// called with the same ones.
    pub fn publish(&mut self, batches: &[Batch], bad: &BadRecords) -> Result<bool> {
        let Some(last) = batches.last() else {
            return Ok(true);
        };
        if !self.fence()? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Between) && !self.aborts.may_begin(Instant::now()) {
            self.producer.poll(WAIT);
            return Ok(false);
        }
        match self.go_on(batches, last.epoch, bad) {
            Ok(is_done) => {
                if is_done {
                    self.aborts.forget();
                }
                Ok(is_done)
            }
            Err(Problem::OfKafka(error)) => match Transactions::trouble(&error) {
                Trouble::Again => {
                    self.producer.poll(WAIT);
                    Ok(false)
                }
                Trouble::Abort if self.aborts.note(Instant::now()) => {
                    self.stage = Stage::Aborting;
                    Ok(false)
                }
                Trouble::Abort | Trouble::Final => Err(self.failed(error)),
            },
            Err(Problem::Other(error)) => Err(error),
        }
    }

    fn go_on(
        &mut self,
        batches: &[Batch],
        mark: Epoch,
        bad: &BadRecords,
    ) -> std::result::Result<bool, Problem> {
        match self.stage {
            Stage::Unfenced => {}
            Stage::Between => {
                self.producer.begin_transaction()?;
                self.begun = Instant::now();
                self.stage = Stage::Sending(Cursor::default());
            }
            Stage::Sending(cursor) => self.send(batches, cursor, bad)?,
            Stage::Marking => {
                self.producer.poll(WAIT);
                self.check_delivered()?;
                if self.producer.in_flight_count() == 0 && matches!(self.stage, Stage::Marking) {
                    self.send_mark(mark)?;
                    self.stage = Stage::Committing;
                }
            }
            Stage::Committing => {
                self.producer.commit_transaction(ANSWER)?;
                self.stage = Stage::Between;
                return Ok(true);
            }
            Stage::Aborting => {
                self.producer.abort_transaction(ANSWER)?;
                self.producer.poll(Duration::ZERO);
                // What was taken back is no failure.
                self.producer.context().take_failed();
                self.stage = Stage::Between;
            }
        }
        Ok(false)
    }

    /// Sends on from a message, as far as there is room.
    fn send(
        &mut self,
        batches: &[Batch],
        mut cursor: Cursor,
        bad: &BadRecords,
    ) -> std::result::Result<(), Problem> {
        self.producer.poll(Duration::ZERO);
        while let Some(batch) = batches.get(cursor.batch) {
            let Some(block) = batch.blocks.get(cursor.block) else {
                cursor = Cursor {
                    batch: cursor.batch + 1,
                    ..Cursor::default()
                };
                continue;
            };
            let Some((message, next)) = Waiting::at(block, cursor.at)? else {
                cursor = Cursor {
                    block: cursor.block + 1,
                    at: 0,
                    ..cursor
                };
                continue;
            };
            if !self.send_one(message, bad)? {
                self.stage = Stage::Sending(cursor);
                // A full queue is waited for: this thread has nothing else to do.
                self.producer.poll(WAIT);
                self.check_delivered()?;
                return Ok(());
            }
            cursor.at = next;
        }
        self.stage = Stage::Marking;
        Ok(())
    }

    /// Hands a message over; false if the queue is full.
    fn send_one(
        &self,
        message: Waiting<'_>,
        bad: &BadRecords,
    ) -> std::result::Result<bool, Problem> {
        let position = usize::try_from(message.position).unwrap_or(usize::MAX);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&self.settings.topic, position);
        record.key = message.key;
        record.payload = message.value;
        record.partition = message.partition;
        record.timestamp = super::kafka_time(message.time);
        record.headers = headers::owned(message.headers);
        let Err((error, _)) = self.producer.send(record) else {
            return Ok(true);
        };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(false),
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                let position = message.position;
                bad.report(|| format!("record {position}"), Vec::new, super::TOO_LARGE)?;
                Ok(true)
            }
            _ => Err(Problem::OfKafka(error)),
        }
    }

    /// A message that will not be delivered in this transaction begins it anew, unless it never will be.
    fn check_delivered(&mut self) -> std::result::Result<(), Problem> {
        let Some(failure) = self.producer.context().take_failed() else {
            return Ok(());
        };
        match failure.error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::MessageTimedOut
                | RDKafkaErrorCode::PurgeQueue
                | RDKafkaErrorCode::PurgeInflight
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::NotEnoughReplicas
                | RDKafkaErrorCode::NotEnoughReplicasAfterAppend,
            ) => self.begin_anew(failure.error),
            code if is_fenced(code) || code == Some(RDKafkaErrorCode::Fatal) => {
                Err(Problem::Other(self.failed(failure.error)))
            }
            _ => Err(Problem::Other(failure.into_error(&self.settings.topic))),
        }
    }

    /// Aborts the transaction at hand, which then begins anew. Brokers that are away are waited
    /// for; those that answer have to take a transaction in time.
    fn begin_anew(&mut self, error: KafkaError) -> std::result::Result<(), Problem> {
        self.stage = Stage::Aborting;
        let teller = self.producer.context().teller();
        if !self.is_overdue() || teller.is_away() {
            return Ok(());
        }
        let too_slow = self.too_slow(error);
        teller.say(&format!("{too_slow}; the transaction begins anew"));
        match self.aborts.note(Instant::now()) {
            true => Ok(()),
            false => Err(Problem::Other(too_slow.permanent())),
        }
    }

    fn is_in_transaction(&self) -> bool {
        !matches!(self.stage, Stage::Unfenced | Stage::Between)
    }

    /// Returns whether brokers may have ended the transaction at hand for the time it takes.
    fn is_overdue(&self) -> bool {
        self.begun.elapsed() >= Duration::from_millis(transaction_timeout_ms(&self.settings))
    }

    fn send_mark(&self, mark: Epoch) -> std::result::Result<(), Problem> {
        let mut offsets = TopicPartitionList::new();
        let number = i64::try_from(mark.0).unwrap_or(i64::MAX);
        offsets.add_partition_offset(&self.settings.topic, 0, Offset::Offset(number))?;
        let Some(group) = self.marks.group_metadata() else {
            let what = "the Kafka client has no consumer group";
            return Err(Problem::Other(Error::new(ErrorCode::Internal, what)));
        };
        self.producer
            .send_offsets_to_transaction(&offsets, &group, ANSWER)?;
        Ok(())
    }

    fn trouble(error: &KafkaError) -> Trouble {
        let code = error.rdkafka_error_code();
        let is_late = matches!(
            code,
            Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::RequestTimedOut)
        );
        match error {
            KafkaError::Transaction(error) if error.is_fatal() => Trouble::Final,
            // It would be so again, and again.
            KafkaError::Transaction(_) if comes_again(code) => Trouble::Final,
            KafkaError::Transaction(error) if error.txn_requires_abort() => Trouble::Abort,
            KafkaError::Transaction(error) if error.is_retriable() => Trouble::Again,
            // The client takes no messages for a transaction that has failed.
            KafkaError::MessageProduction(RDKafkaErrorCode::State) => Trouble::Abort,
            _ if is_late => Trouble::Again,
            _ => Trouble::Final,
        }
    }
}

/// What keeps a transaction from going on.
enum Problem {
    OfKafka(KafkaError),
    Other(Error),
}

impl From<KafkaError> for Problem {
    fn from(error: KafkaError) -> Self {
        Problem::OfKafka(error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Problem::Other(error)
    }
}

/// So long at most one call works on what takes longer.
pub(super) const SLICE: Duration = TURN;
