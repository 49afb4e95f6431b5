//! Messages that wait for what their decoder needs, such as a schema.

use std::collections::VecDeque;

use rdkafka::message::BorrowedMessage;

use crate::kafka::fingerprint::Fingerprint;
use crate::kafka::message::{Message, Record};

/// A copied message. The memory of the client is returned in the meantime.
pub(super) struct PendingMessage {
    /// The index of the partition.
    pub index: usize,
    /// The message, or the reason why it is a bad record: its timestamp or its headers.
    pub record: Result<Record, String>,
    pub offset: i64,
    /// The value, for a bad record.
    pub raw: Vec<u8>,
    pub fingerprint: Fingerprint,
}

impl PendingMessage {
    fn of(index: usize, topic: &str, fetched: &BorrowedMessage<'_>) -> Self {
        let (message, is_timed) = Message::of(topic, fetched);
        let record = is_timed.and_then(|()| Record::try_from(&message));
        let raw = match &record {
            Ok(_) => Vec::new(),
            Err(_) => message.value.unwrap_or_default().to_vec(),
        };
        PendingMessage {
            index,
            record,
            offset: message.offset,
            raw,
            fingerprint: Fingerprint::of(fetched),
        }
    }
}

/// The messages that were fetched and cannot be decoded yet, in order, and the partition ends that
/// follow them. Nothing is fetched meanwhile. They are not part of a snapshot: a restored source
/// fetches them again.
#[derive(Default)]
pub(super) struct PendingMessages {
    pub messages: VecDeque<PendingMessage>,
    pub ended: Vec<usize>,
}

impl PendingMessages {
    pub fn add(&mut self, index: usize, topic: &str, fetched: &BorrowedMessage<'_>) {
        self.messages
            .push_back(PendingMessage::of(index, topic, fetched));
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
