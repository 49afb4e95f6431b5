//! What a topic's partition holds at one offset.

use ardea_core::Timestamp;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::kafka::headers::{HeaderRef, headers_of};

/// A message of a topic, lent to a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The topic.
    pub topic: &'a str,
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
    /// Its headers are read when they are asked for.
    fetched: Option<&'a BorrowedMessage<'a>>,
}

impl<'a> Message<'a> {
    /// The message, and the reason if its timestamp is none that a record can have.
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
            fetched: Some(message),
        };
        (message, is_good)
    }

    /// The value as text.
    ///
    /// # Errors
    /// The reason, if there is no value or it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.value.ok_or("there is no value (a tombstone)")?)
            .map_err(|error| format!("not UTF-8 from byte {} on", error.valid_up_to()))
    }

    /// The headers, in their order. A name may occur several times.
    ///
    /// # Errors
    /// The reason, if the name of a header is not UTF-8.
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
        self.fetched.map_or(Ok(Vec::new()), headers_of)
    }

    /// The value of the last header of this name; `None` if there is no such header or it has no value.
    ///
    /// # Errors
    /// As [`headers`](Self::headers).
    pub fn header(&self, name: &str) -> Result<Option<&'a [u8]>, String> {
        let headers = self.headers()?;
        let last = headers.into_iter().rev().find(|(of, _)| *of == name);
        Ok(last.and_then(|(_, value)| value))
    }
}

/// The time of a record, or why a timestamp is none.
fn event_time(millis: i64) -> Result<Timestamp, String> {
    let time = Timestamp::from_millis(millis);
    match time.is_event_time() && time.as_millis() == millis {
        true => Ok(time),
        false => Err(format!(
            "its timestamp, {millis} milliseconds since 1970, is out of range"
        )),
    }
}

/// A message of a topic, with memory of its own.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The topic.
    pub topic: String,
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
    /// Its headers, in their order: a name, and a value if it has one.
    #[serde(default)]
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl TryFrom<&Message<'_>> for Record {
    type Error = String;

    /// Copies a message.
    ///
    /// # Errors
    /// As [`Message::headers`].
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
            fetched: None,
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
