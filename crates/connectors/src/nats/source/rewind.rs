//! Handling of a consumer that is ahead of the job after a restore from an earlier checkpoint.
//!
//! The server regards messages as acknowledged that the restored job has not read, and would never
//! redeliver them.

use ardea_core::{Error, ErrorCode};
use async_nats::Client;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::{RetentionPolicy, Stream};

use super::NatsSourceConfig;
use super::fetcher::ErrorAction;
use super::position::Known;
use super::unreadable::next_raw;

/// Returns the first message that the job has not read but the consumer has acknowledged; `None` if
/// there is none.
pub(super) async fn first_passed_over(
    client: &Client,
    plan: &NatsSourceConfig,
    known: &Known,
    consumer: &PullConsumer,
) -> Result<Option<u64>, ErrorAction> {
    let acknowledged = consumer.cached_info().ack_floor.stream_sequence;
    let highest = known.highest();
    if acknowledged <= highest {
        return Ok(None);
    }
    // The acknowledged range also covers deleted messages and other subjects.
    let next = next_raw(client, &plan.stream, highest + 1, &plan.subject).await;
    let next = next.map_err(ErrorAction::Passing)?.map(|raw| raw.number);
    Ok(next.filter(|number| *number <= acknowledged))
}

/// Deletes a consumer so that it can be created again at an earlier message.
pub(super) async fn delete(stream: &Stream, name: &str, first: u64) -> Result<(), ErrorAction> {
    let info = stream.cached_info();
    if info.config.retention != RetentionPolicy::Limits {
        let what = format!(
            "the consumer {name} has acknowledged message {first} of the stream {}, which the job has not read",
            info.config.name
        );
        let error = Error::new(ErrorCode::ReadFailed, what)
            .permanent()
            .because("the job went back to an earlier checkpoint, and the stream removes acknowledged messages")
            .hint("restore from the latest checkpoint, or delete the consumer and accept the loss");
        return Err(ErrorAction::Final(error));
    }
    let deleted = stream.delete_consumer(name).await;
    deleted.map_err(|error| ErrorAction::Passing(error.to_string()))?;
    Ok(())
}
