//! Finds messages that the client cannot read, and breaks its connection at.
//!
//! The client gives up its connection at a message whose headers are no text. It would get that
//! message again for ever, and none behind it. The server hands out such a message by its number as
//! well, in a form that the client does not look into.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::stream::RawMessage;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;

/// Time limit of an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The answer to a request for a message.
#[derive(Debug, Deserialize)]
struct Answer {
    message: Option<RawMessage>,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    code: u16,
    #[serde(default)]
    description: String,
}

/// The code of an answer without a message.
const NOT_FOUND: u16 = 404;

/// A message as the server keeps it.
#[derive(Debug)]
pub(super) struct Raw {
    pub number: u64,
    pub subject: String,
    pub payload: Vec<u8>,
    /// In nanoseconds since 1970.
    pub published: i128,
    /// Its headers are no text.
    pub is_unreadable: bool,
}

/// Returns the first message of a stream from this number on, of those on these subjects; `None` if
/// there is none.
///
/// # Errors
/// The reason why it is not known.
pub(super) async fn next_raw(
    client: &Client,
    stream: &str,
    from: u64,
    subject: &str,
) -> Result<Option<Raw>, String> {
    let subject = match subject {
        "" => ">",
        subject => subject,
    };
    let request = json!({ "seq": from, "next_by_subj": subject }).to_string();
    let asked = client.request(format!("$JS.API.STREAM.MSG.GET.{stream}"), request.into());
    let answer = tokio::time::timeout(ANSWER, asked).await;
    let answer = answer
        .map_err(|_| format!("the server gives no message of the stream {stream} in time"))?
        .map_err(|error| format!("the server gives no message of the stream {stream}: {error}"))?;
    read(&answer.payload)
}

fn read(answer: &[u8]) -> Result<Option<Raw>, String> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let Some(message) = answer.message else {
        return match answer.error {
            Some(error) if error.code != NOT_FOUND => Err(error.description),
            _ => Ok(None),
        };
    };
    let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(|e| e.to_string());
    let headers = bytes(message.headers.as_deref().unwrap_or_default())?;
    Ok(Some(Raw {
        number: message.sequence,
        subject: message.subject,
        payload: bytes(&message.payload)?,
        published: message.time.unix_timestamp_nanos(),
        is_unreadable: std::str::from_utf8(&headers).is_err(),
    }))
}
