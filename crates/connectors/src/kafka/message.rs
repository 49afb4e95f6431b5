//! Messages of a topic.

use ardea_core::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::kafka::headers::{HeaderRef, headers_of};
use crate::kafka::topics::PartitionId;

/// A message of a topic, borrowed by a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Key, if any.
    pub key: Option<&'a [u8]>,
    /// Value; `None` for a tombstone, which deletes the key.
    pub value: Option<&'a [u8]>,
    /// Partition of the message.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Creation or append time, depending on the topic, in milliseconds; [`Timestamp::MIN`] if
    /// unknown.
    pub timestamp: Timestamp,
    headers: HeaderSource<'a>,
}

/// The source of the headers of a message, which are decoded on demand.
#[derive(Clone, Copy, Debug)]
enum HeaderSource<'a> {
    /// A message of the client.
    Fetched(&'a BorrowedMessage<'a>),
    Copied(&'a [(String, Option<Vec<u8>>)]),
}

impl<'a> Message<'a> {
    /// Returns the message, and an error with the reason if its timestamp is out of range.
    pub(crate) fn of(
        topic: &'a str,
        message: &'a BorrowedMessage<'a>,
    ) -> (Self, Result<(), String>) {
        let (timestamp, is_good) = match message.timestamp().to_millis().map(event_time) {
            None => (Timestamp::MIN, Ok(())),
            Some(Ok(timestamp)) => (timestamp, Ok(())),
            Some(Err(why)) => (Timestamp::MIN, Err(why)),
        };
        let message = Message {
            topic,
            key: message.key(),
            value: message.payload(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp,
            headers: HeaderSource::Fetched(message),
        };
        (message, is_good)
    }

    /// Returns a message without time, of which only the value is known.
    pub(crate) fn unreadable(id: &'a PartitionId, offset: i64, value: &'a [u8]) -> Self {
        Message {
            topic: &id.topic,
            key: None,
            value: Some(value),
            partition: id.number,
            offset,
            timestamp: Timestamp::MIN,
            headers: HeaderSource::Copied(&[]),
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn present_value(&self) -> Result<&'a [u8], String> {
        Ok(self.value.ok_or("there is no value (a tombstone)")?)
    }

    /// Returns the value as text.
    ///
    /// # Errors
    /// The reason why there is no text: the value is missing or not UTF-8.
    pub fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.present_value()?)
            .map_err(|error| format!("not UTF-8 from byte {} on", error.valid_up_to()))
    }

    /// Returns the headers in order. A name may occur several times.
    ///
    /// # Errors
    /// The reason why the headers cannot be decoded: a name is not UTF-8.
    ///
    /// ```
    /// use ardea_connectors::kafka::read;
    ///
    /// let traced = read("localhost:9092", "flights").decode(|message| {
    ///     let headers = message.headers()?;
    ///     let trace = headers.iter().find(|(name, _)| *name == "trace");
    ///     Ok((trace.and_then(|(_, id)| *id).map(<[u8]>::to_vec), message.text()?.to_string()))
    /// });
    /// ```
    pub fn headers(&self) -> Result<Vec<HeaderRef<'a>>, String> {
        match self.headers {
            HeaderSource::Fetched(message) => headers_of(message),
            HeaderSource::Copied(headers) => {
                let headers = headers.iter();
                Ok(headers
                    .map(|(name, value)| (&**name, value.as_deref()))
                    .collect())
            }
        }
    }

    /// Returns the value of the last header with this name; `None` if there is no such header or it
    /// has no value.
    ///
    /// # Errors
    /// Same as [`headers`](Self::headers).
    pub fn header(&self, name: &str) -> Result<Option<&'a [u8]>, String> {
        let headers = self.headers()?;
        let last = headers.into_iter().rev().find(|(of, _)| *of == name);
        Ok(last.and_then(|(_, value)| value))
    }
}

/// Converts a timestamp to an event time, or returns the reason if it is out of range.
fn event_time(millis: i64) -> Result<Timestamp, String> {
    let time = Timestamp::from_millis(millis);
    match time.is_event_time() && time.as_millis() == millis {
        true => Ok(time),
        false => Err(format!(
            "its timestamp, {millis} milliseconds since 1970, is out of range"
        )),
    }
}

/// An owned message of a topic.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The topic.
    pub topic: String,
    /// Key, if any.
    pub key: Option<Vec<u8>>,
    /// Value; `None` for a tombstone, which deletes the key.
    pub value: Option<Vec<u8>>,
    /// Partition of the message.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Creation or append time, depending on the topic; [`Timestamp::MIN`] if unknown.
    pub timestamp: Timestamp,
    /// Headers in order: names with optional values.
    #[serde(default)]
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl<'a> From<&'a Record> for Message<'a> {
    fn from(record: &'a Record) -> Self {
        Message {
            topic: &record.topic,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            headers: HeaderSource::Copied(&record.headers),
        }
    }
}

impl TryFrom<&Message<'_>> for Record {
    type Error = String;

    /// Copies a message.
    ///
    /// # Errors
    /// Same as [`Message::headers`].
    fn try_from(message: &Message<'_>) -> Result<Self, String> {
        let headers = message.headers()?.into_iter();
        Ok(Record {
            topic: message.topic.to_string(),
            key: message.key.map(<[u8]>::to_vec),
            value: message.value.map(<[u8]>::to_vec),
            partition: message.partition,
            offset: message.offset,
            timestamp: message.timestamp,
            headers: headers
                .map(|(name, value)| (name.to_string(), value.map(<[u8]>::to_vec)))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_text_says_where_it_ceases_to_be() {
        let message = |value| Message {
            topic: "t",
            key: None,
            value,
            partition: 0,
            offset: 0,
            timestamp: Timestamp::MIN,
            headers: HeaderSource::Copied(&[]),
        };
        assert_eq!(message(Some(b"good")).text(), Ok("good"));
        assert_eq!(
            message(Some(b"b\xff")).text(),
            Err("not UTF-8 from byte 1 on".to_string())
        );
        assert!(message(None).text().is_err());
        assert_eq!(message(None).header("trace"), Ok(None));
    }

    #[test]
    fn a_timestamp_that_no_record_can_have_is_refused_and_a_negative_one_is_not() {
        assert_eq!(event_time(-5), Ok(Timestamp::from_millis(-5)));
        let last = i64::MAX / 1_000 - 1;
        assert_eq!(event_time(last), Ok(Timestamp::from_millis(last)));
        for millis in [
            i64::MAX,
            i64::MIN,
            i64::MAX / 1_000 + 1,
            i64::MIN / 1_000 - 1,
        ] {
            let why = event_time(millis).unwrap_err();
            assert!(why.contains(&millis.to_string()), "{why}");
        }
    }
}
