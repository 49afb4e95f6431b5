//! Compares what a job knows of a stream with the stream that the server has.

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};
use async_nats::jetstream::stream::{Info, RetentionPolicy};

use super::Plan;

/// The knowledge of a job about the stream that it reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// When the stream was created, in nanoseconds since 1970.
    pub created: Option<i64>,
    /// All up to this that are in no run have been read, or were never to be read.
    pub floor: u64,
    /// Messages that have been read, from first to last, in order.
    pub runs: Vec<(u64, u64)>,
}

impl Known {
    /// Returns the highest number that is known to have been read.
    pub fn highest(&self) -> u64 {
        self.runs
            .last()
            .map_or(0, |(_, last)| *last)
            .max(self.floor)
    }

    /// Returns the lowest number above the floor that has not been read.
    fn first_unread(&self) -> u64 {
        let mut next = self.floor + 1;
        for (first, last) in &self.runs {
            if *first > next {
                break;
            }
            next = next.max(last + 1);
        }
        next
    }
}

/// Returns when a stream was created, in nanoseconds since 1970.
pub(crate) fn created(stream: &Info) -> i64 {
    let nanos = stream.created.unix_timestamp_nanos();
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Refuses a stream in which the position of the job does not mean what it meant. Returns the loss
/// that the job goes on with, if any.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the stream was made anew, ends before what was read, or has lost
/// messages that were not read.
pub(crate) fn check(known: &Known, stream: &Info, plan: &Plan) -> Result<Option<String>> {
    let name = &plan.stream;
    if known.created.is_some_and(|then| then != created(stream)) {
        let what = format!("the stream {name} was deleted and made anew since the job has read it");
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .because("its numbers mean other messages now")
            .hint(START_OVER));
    }
    let (highest, last) = (known.highest(), stream.state.last_sequence);
    if highest > last {
        let what = format!(
            "the stream {name} ends at message {last}, and the job has read message {highest}"
        );
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .because("it was made anew, or restored from an earlier copy")
            .hint(START_OVER));
    }
    match highest > 0 && tells_losses(stream, plan) {
        true => check_removed((known.first_unread(), last), stream, plan),
        false => Ok(None),
    }
}

/// Refuses to go on where messages from the first to the last of these were removed before they
/// were read. Returns the loss where the job is to go on all the same.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] with their numbers.
pub(crate) fn check_removed(
    (from, to): (u64, u64),
    stream: &Info,
    plan: &Plan,
) -> Result<Option<String>> {
    let first = stream.state.first_sequence;
    if from >= first || from > to {
        return Ok(None);
    }
    let to = to.min(first - 1);
    let what = format!(
        "messages {from} to {to} of the stream {} were removed before they were read",
        plan.stream
    );
    if plan.on_lost == OnLostPosition::Continue {
        return Ok(Some(what));
    }
    Err(Error::new(ErrorCode::ReadFailed, what)
        .because("the stream keeps no more (its limits of messages, bytes and age), or was purged")
        .hint("raise the limits of the stream, or go on with what is left by `on_lost_position(OnLostPosition::Continue)`"))
}

/// Tells whether a number that is missing at the beginning of a stream is a message that was lost.
/// In others messages go when they are acknowledged, or are of other subjects, or are replaced by
/// later ones of their subject.
pub(crate) fn tells_losses(stream: &Info, plan: &Plan) -> bool {
    stream.config.retention == RetentionPolicy::Limits
        && stream.config.max_messages_per_subject <= 0
        && plan.subject.is_empty()
}

const START_OVER: &str = "bring the stream back, or let the job begin with nothing: recovery.start_over in one process, on a cluster submit it anew";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_that_was_not_read_is_behind_the_runs_that_begin_at_the_floor() {
        let known = |floor, runs: &[(u64, u64)]| Known {
            created: None,
            floor,
            runs: runs.to_vec(),
        };
        assert_eq!(known(0, &[]).first_unread(), 1);
        assert_eq!(known(7, &[(8, 9), (10, 12), (14, 20)]).first_unread(), 13);
        assert_eq!(known(7, &[(9, 9)]).first_unread(), 8);
        assert_eq!(known(20, &[(8, 9)]).first_unread(), 21);
        assert_eq!(known(7, &[(9, 12)]).highest(), 12);
    }
}
