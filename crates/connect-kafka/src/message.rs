//! What a topic's partition holds at one offset.

use ardea_core::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

/// A message of a topic, lent to a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// What it is keyed by, if by anything.
    pub key: Option<&'a [u8]>,
    /// What it says; `None` is a tombstone, which takes back what was said of its key.
    pub value: Option<&'a [u8]>,
    /// The partition that it lies in.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// When it was made, or appended, as the topic says; [`Timestamp::MIN`] if that is not known. Kafka knows milliseconds.
    pub timestamp: Timestamp,
}

impl<'a> Message<'a> {
    pub(crate) fn of(message: &'a BorrowedMessage<'_>) -> Self {
        Message {
            key: message.key(),
            value: message.payload(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp: message
                .timestamp()
                .to_millis()
                .map_or(Timestamp::MIN, Timestamp::from_millis),
        }
    }

    /// The value as text.
    ///
    /// # Errors
    /// The reason, if there is no value or it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.value.ok_or("there is no value (a tombstone)")?)
            .map_err(|error| format!("not UTF-8 from byte {} on", error.valid_up_to()))
    }
}

/// A message of a topic, with memory of its own.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// What it is keyed by, if by anything.
    pub key: Option<Vec<u8>>,
    /// What it says; `None` is a tombstone, which takes back what was said of its key.
    pub value: Option<Vec<u8>>,
    /// The partition that it lies in.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// When it was made, or appended, as the topic says; [`Timestamp::MIN`] if that is not known.
    pub timestamp: Timestamp,
}

impl From<&Message<'_>> for Record {
    fn from(message: &Message<'_>) -> Self {
        Record {
            key: message.key.map(<[u8]>::to_vec),
            value: message.value.map(<[u8]>::to_vec),
            partition: message.partition,
            offset: message.offset,
            timestamp: message.timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_text_says_where_it_ceases_to_be() {
        let message = |value| Message {
            key: None,
            value,
            partition: 0,
            offset: 0,
            timestamp: Timestamp::MIN,
        };
        assert_eq!(message(Some(b"good")).text(), Ok("good"));
        assert_eq!(
            message(Some(b"b\xff")).text(),
            Err("not UTF-8 from byte 1 on".to_string())
        );
        assert!(message(None).text().is_err());
    }
}
