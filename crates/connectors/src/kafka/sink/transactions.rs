//! Transactional writer of batches: each batch is in the topic exactly once, across failures of any
//! process.
//!
//! # Protocol
//!
//! librdkafka cannot finish a transaction that another process has prepared, so nothing is
//! prepared. The messages of an epoch are stored in its snapshot and sent when the epoch is
//! committed, in one transaction with a **mark**. The mark is the epoch number, stored as the
//! offset of a consumer group that only this run uses. Kafka commits mark and messages together or
//! not at all.
//!
//! * *No loss:* an epoch's messages are in its snapshot before it can be committed. An attempt
//!   restored from a committed epoch has the messages of all batches that the snapshot did not
//!   record as sent.
//! * *No duplicates:* before the restored attempt sends anything, it takes over the transactional
//!   id of its predecessor (`init_transactions`). This commits or aborts the predecessor's
//!   transaction and fences the predecessor. The mark read afterwards no longer changes. It
//!   identifies the batches in the topic, because batches are sent in the order of their epochs and
//!   the batches of one transaction become visible together.
//! * Epochs are numbered across all attempts of a run, and each run has its own group, so a mark
//!   never refers to the batches of another run.
//! * If the mark is missing although the snapshot recorded one, the job fails. Kafka deletes
//!   offsets of inactive groups (`offsets.retention.minutes`), and the set of written batches is
//!   then unknown.

mod errors;

use std::time::{Duration, Instant};

use ardea_core::{BadRecords, Epoch, Error, ErrorCode, Result};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use super::aborts::{Aborts, is_permanent};
use super::batch::{Batch, BufferedMessage};
use super::deliveries::DeliveryTracker;
use super::limits::{Limits, PRODUCERS_LIMIT};
use super::requirements::transaction_timeout_ms;
use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::headers;
use crate::kafka::settings::Settings;
use errors::is_fenced;

/// Longest wait per poll for deliveries. librdkafka does not return early when a delivery arrives.
const WAIT: Duration = Duration::from_millis(5);
/// Timeout of a request to a broker.
const ANSWER: Duration = Duration::from_millis(900);

/// Default settings that properties can override.
const DEFAULTS: &[(&str, &str)] = &[("linger.ms", "1"), ("reconnect.backoff.max.ms", "1000")];

/// Transactional id of a writer, and consumer group that stores its mark.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub transactional_id: String,
    pub group: String,
}

/// Reaction to an error.
enum ErrorAction {
    /// Retry the call later.
    Again,
    /// Abort the transaction and start it again.
    Abort,
    /// Fail the job.
    Final,
}

/// Position of the next message in the batches of a transaction.
#[derive(Clone, Copy, Default, Debug)]
struct Cursor {
    batch: usize,
    block: usize,
    at: usize,
}

/// State of the current transaction.
#[derive(Clone, Copy, Debug)]
enum TransactionState {
    /// This producer is not initialized: other producers with the same id are not fenced and may
    /// still write.
    Unfenced,
    /// No open transaction.
    Between,
    Sending(Cursor),
    /// All messages have been handed to librdkafka; the mark follows.
    Marking,
    Committing,
    Aborting,
}

/// The transactions of one writer. Each call blocks for about a second at most; the caller repeats
/// it until it is done.
pub(super) struct Transactions {
    settings: Settings,
    writer: Writer,
    producer: BaseProducer<DeliveryTracker>,
    marks: BaseConsumer<KafkaClientContext>,
    stage: TransactionState,
    /// Start of the current transaction.
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
            // Ignores the mark of an open transaction.
            ("isolation.level", "read_committed"),
        ];
        // Producer settings may be invalid for a consumer.
        let plain = settings.of_connections();
        let mut bounded = settings.clone();
        if let Some(limit) = limits.producer_limit() {
            bounded.set(PRODUCERS_LIMIT.to_string(), limit);
        }
        Ok(Transactions {
            producer: bounded.client(job, DEFAULTS, &fixed)?,
            marks: plain.client(job, &[], &group)?,
            settings: settings.clone(),
            writer,
            stage: TransactionState::Unfenced,
            begun: Instant::now(),
            aborts: Aborts::default(),
        })
    }

    /// Fences other producers with this transactional id; returns false if the caller must call
    /// again.
    pub fn fence(&mut self) -> Result<bool> {
        if !matches!(self.stage, TransactionState::Unfenced) {
            return Ok(true);
        }
        self.producer.poll(Duration::ZERO);
        match self.producer.init_transactions(ANSWER) {
            Ok(()) => {
                self.producer.context().teller().report_response();
                self.stage = TransactionState::Between;
                Ok(true)
            }
            Err(error) => match Transactions::trouble(&error) {
                ErrorAction::Again => Ok(false),
                ErrorAction::Abort | ErrorAction::Final => Err(self.failed(error)),
            },
        }
    }

    /// Reads the mark, the latest epoch whose messages are in the topic. Returns `Some(None)` if
    /// there is no mark, and `None` if the mark is not known yet.
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
                self.marks.context().report_response();
                Ok(Some(match offset {
                    Offset::Offset(number) => u64::try_from(number).ok().map(Epoch),
                    _ => None,
                }))
            }
            // A retry would fail again, and the records wait for the result.
            Err(error) if is_permanent(error.rdkafka_error_code()) => Err(self.failed(error)),
            // Brokers are unavailable, which the producer reports, or the transaction is still
            // ending.
            Err(_) => Ok(None),
        }
    }

    /// Sends `batches` in one transaction, with their last epoch as the mark; returns true when the
    /// transaction is committed. Until then, the caller must call again with the same batches.
    pub fn publish(&mut self, batches: &[Batch], bad: &BadRecords) -> Result<bool> {
        let Some(last) = batches.last() else {
            return Ok(true);
        };
        if !self.fence()? {
            return Ok(false);
        }
        if matches!(self.stage, TransactionState::Between) && !self.aborts.may_begin(Instant::now())
        {
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
            Err(TransactionError::OfKafka(error)) => match Transactions::trouble(&error) {
                ErrorAction::Again => {
                    self.producer.poll(WAIT);
                    Ok(false)
                }
                ErrorAction::Abort if self.aborts.note(Instant::now()) => {
                    self.stage = TransactionState::Aborting;
                    Ok(false)
                }
                ErrorAction::Abort | ErrorAction::Final => Err(self.failed(error)),
            },
            Err(TransactionError::Other(error)) => Err(error),
        }
    }

    fn go_on(
        &mut self,
        batches: &[Batch],
        mark: Epoch,
        bad: &BadRecords,
    ) -> std::result::Result<bool, TransactionError> {
        match self.stage {
            TransactionState::Unfenced => {}
            TransactionState::Between => {
                self.producer.begin_transaction()?;
                self.begun = Instant::now();
                self.stage = TransactionState::Sending(Cursor::default());
            }
            TransactionState::Sending(cursor) => self.send(batches, cursor, bad)?,
            TransactionState::Marking => {
                self.producer.poll(WAIT);
                self.check_delivered()?;
                if self.producer.in_flight_count() == 0
                    && matches!(self.stage, TransactionState::Marking)
                {
                    self.send_mark(mark)?;
                    self.stage = TransactionState::Committing;
                }
            }
            TransactionState::Committing => {
                self.producer.commit_transaction(ANSWER)?;
                self.stage = TransactionState::Between;
                return Ok(true);
            }
            TransactionState::Aborting => {
                self.producer.abort_transaction(ANSWER)?;
                self.producer.poll(Duration::ZERO);
                // Deliveries of the aborted transaction are not failures.
                self.producer.context().take_failed();
                self.stage = TransactionState::Between;
            }
        }
        Ok(false)
    }

    /// Sends messages from the cursor on, until the queue is full.
    fn send(
        &mut self,
        batches: &[Batch],
        mut cursor: Cursor,
        bad: &BadRecords,
    ) -> std::result::Result<(), TransactionError> {
        self.producer.poll(Duration::ZERO);
        while let Some(batch) = batches.get(cursor.batch) {
            let Some(block) = batch.blocks.get(cursor.block) else {
                cursor = Cursor {
                    batch: cursor.batch + 1,
                    ..Cursor::default()
                };
                continue;
            };
            let Some((message, next)) = BufferedMessage::at(block, cursor.at)? else {
                cursor = Cursor {
                    block: cursor.block + 1,
                    at: 0,
                    ..cursor
                };
                continue;
            };
            if !self.send_one(message, bad)? {
                self.stage = TransactionState::Sending(cursor);
                // Wait for a full queue here: this thread has no other work.
                self.producer.poll(WAIT);
                self.check_delivered()?;
                return Ok(());
            }
            cursor.at = next;
        }
        self.stage = TransactionState::Marking;
        Ok(())
    }

    /// Hands a message to librdkafka; returns false if its queue is full.
    fn send_one(
        &self,
        message: BufferedMessage<'_>,
        bad: &BadRecords,
    ) -> std::result::Result<bool, TransactionError> {
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
            _ => Err(TransactionError::OfKafka(error)),
        }
    }

    /// Checks for failed deliveries. Aborts the transaction for another try, unless the failure is
    /// permanent.
    fn check_delivered(&mut self) -> std::result::Result<(), TransactionError> {
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
                Err(TransactionError::Other(self.failed(failure.error)))
            }
            _ => Err(TransactionError::Other(
                failure.into_error(&self.settings.topic),
            )),
        }
    }

    /// Aborts the current transaction, which then starts again. The sink waits for unavailable
    /// brokers, but available brokers must finish a transaction in time.
    fn begin_anew(&mut self, error: KafkaError) -> std::result::Result<(), TransactionError> {
        self.stage = TransactionState::Aborting;
        let teller = self.producer.context().teller();
        if !self.is_overdue() || teller.outage.is_away() {
            return Ok(());
        }
        let too_slow = self.too_slow(error);
        teller
            .outage
            .log_line(format_args!("{too_slow}; the transaction is retried"));
        match self.aborts.note(Instant::now()) {
            true => Ok(()),
            false => Err(TransactionError::Other(too_slow.permanent())),
        }
    }

    fn is_in_transaction(&self) -> bool {
        !matches!(
            self.stage,
            TransactionState::Unfenced | TransactionState::Between
        )
    }

    /// Returns true if brokers may have aborted the current transaction because of its timeout.
    fn is_overdue(&self) -> bool {
        self.begun.elapsed() >= Duration::from_millis(transaction_timeout_ms(&self.settings))
    }

    fn send_mark(&self, mark: Epoch) -> std::result::Result<(), TransactionError> {
        let mut offsets = TopicPartitionList::new();
        let number = i64::try_from(mark.0).unwrap_or(i64::MAX);
        offsets.add_partition_offset(&self.settings.topic, 0, Offset::Offset(number))?;
        let Some(group) = self.marks.group_metadata() else {
            let what = "the Kafka client has no consumer group";
            return Err(TransactionError::Other(Error::new(
                ErrorCode::Internal,
                what,
            )));
        };
        self.producer
            .send_offsets_to_transaction(&offsets, &group, ANSWER)?;
        Ok(())
    }

    fn trouble(error: &KafkaError) -> ErrorAction {
        let code = error.rdkafka_error_code();
        let is_late = matches!(
            code,
            Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::RequestTimedOut)
        );
        match error {
            KafkaError::Transaction(error) if error.is_fatal() => ErrorAction::Final,
            // A retry would fail again.
            KafkaError::Transaction(_) if is_permanent(code) => ErrorAction::Final,
            KafkaError::Transaction(error) if error.txn_requires_abort() => ErrorAction::Abort,
            KafkaError::Transaction(error) if error.is_retriable() => ErrorAction::Again,
            // The client rejects messages for a failed transaction.
            KafkaError::MessageProduction(RDKafkaErrorCode::State) => ErrorAction::Abort,
            _ if is_late => ErrorAction::Again,
            _ => ErrorAction::Final,
        }
    }
}

/// Error that stops a transaction.
enum TransactionError {
    OfKafka(KafkaError),
    Other(Error),
}

impl From<KafkaError> for TransactionError {
    fn from(error: KafkaError) -> Self {
        TransactionError::OfKafka(error)
    }
}

impl From<Error> for TransactionError {
    fn from(error: Error) -> Self {
        TransactionError::Other(error)
    }
}

/// Time slice of one call for longer work.
pub(super) const SLICE: Duration = CANCEL_CHECK_INTERVAL;
