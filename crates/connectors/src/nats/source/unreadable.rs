//! Search for unreadable messages at which the client drops its connection.
//!
//! The client drops its connection at a message whose headers are not UTF-8, and would receive the
//! same message again after each reconnect. The server can return such a message by its number in a
//! form that the client does not parse.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::stream::RawMessage;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::json;

/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(5);

/// Response to a request for a message.
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

/// Code of a response without a message.
const NOT_FOUND: u16 = 404;

/// A message in its stored form.
#[derive(Debug)]
pub(super) struct Raw {
    pub number: u64,
    pub subject: String,
    pub payload: Vec<u8>,
    /// Publish time in nanoseconds since 1970.
    pub published: i128,
    /// True if the message's headers are not UTF-8.
    pub is_unreadable: bool,
}

/// Returns the first message of a stream with a number of at least `from` and a matching `subject`;
/// `None` if there is none.
///
/// # Errors
/// The reason why the request failed.
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
