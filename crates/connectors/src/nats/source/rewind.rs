//! A consumer that is further on than the job, which has gone back to an earlier snapshot.
//!
//! Such a consumer has acknowledgements of messages that the job has not read, and would never
//! deliver them.

use ardea_core::{Error, ErrorCode};
use async_nats::Client;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::{RetentionPolicy, Stream};

use super::Plan;
use super::position::Known;
use super::reader::Trouble;
use super::unreadable::next_raw;

/// Returns the first message that the job has not read and the consumer does not deliver any more;
/// `None` if there is none.
pub(super) async fn first_passed_over(
    client: &Client,
    plan: &Plan,
    known: &Known,
    consumer: &PullConsumer,
) -> Result<Option<u64>, Trouble> {
    let acknowledged = consumer.cached_info().ack_floor.stream_sequence;
    let highest = known.highest();
    if acknowledged <= highest {
        return Ok(None);
    }
    // Messages of other subjects, and those that were deleted, are below that number as well.
    let next = next_raw(client, &plan.stream, highest + 1, &plan.subject).await;
    let next = next.map_err(Trouble::Passing)?.map(|raw| raw.number);
    Ok(next.filter(|number| *number <= acknowledged))
}

/// Deletes a consumer, which is to be made anew at an earlier message.
pub(super) async fn delete(stream: &Stream, name: &str, first: u64) -> Result<(), Trouble> {
    let info = stream.cached_info();
    if info.config.retention != RetentionPolicy::Limits {
        let what = format!(
            "the consumer {name} has acknowledged message {first} of the stream {}, which the job has not read",
            info.config.name
        );
        let error = Error::new(ErrorCode::ReadFailed, what)
            .permanent()
            .because("the job went back to an earlier snapshot, and the stream removes messages that were acknowledged")
            .hint("go on from the latest snapshot, or delete the consumer and accept the loss");
        return Err(Trouble::Final(error));
    }
    let deleted = stream.delete_consumer(name).await;
    deleted.map_err(|error| Trouble::Passing(error.to_string()))?;
    Ok(())
}
