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

    /// Returns the numbers that have not been read, from first to last, up to `last`. Those below
    /// the first message that came are none, as a consumer may
    /// begin anywhere.
    fn unread(&self, last: u64) -> impl Iterator<Item = (u64, u64)> {
        let first_run = self.runs.first().map(|(first, _)| *first);
        let mut next = match (self.floor, first_run) {
            (0, Some(first)) => first,
            (floor, _) => floor + 1,
        };
        let behind = last.saturating_add(1);
        let runs = self.runs.iter().copied().chain([(behind, behind)]);
        runs.filter_map(move |(first, last)| {
            let gap = (next, first.saturating_sub(1));
            next = next.max(last.saturating_add(1));
            (gap.0 <= gap.1).then_some(gap)
        })
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
            .permanent()
            .because("its numbers mean other messages now")
            .hint(START_OVER));
    }
    let (highest, last) = (known.highest(), stream.state.last_sequence);
    if highest > last {
        let what = format!(
            "the stream {name} ends at message {last}, and the job has read message {highest}"
        );
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .permanent()
            .because("it was made anew, or restored from an earlier copy")
            .hint(START_OVER));
    }
    let mut losses = Vec::new();
    if highest > 0 && tells_losses(stream, plan) {
        for unread in known.unread(last) {
            losses.extend(check_removed(unread, stream, plan)?);
        }
    }
    Ok((!losses.is_empty()).then(|| losses.join("; ")))
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
        .permanent()
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

    fn unread(floor: u64, runs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let known = Known {
            created: None,
            floor,
            runs: runs.to_vec(),
        };
        known.unread(30).collect()
    }

    #[test]
    fn what_was_not_read_lies_between_the_runs_and_behind_them() {
        let runs = [(8, 9), (10, 12), (14, 20)];
        assert_eq!(unread(7, &runs), [(13, 13), (21, 30)]);
        assert_eq!(unread(6, &runs), [(7, 7), (13, 13), (21, 30)]);
        assert_eq!(unread(20, &runs), [(21, 30)]);
        assert_eq!(unread(25, &[]), [(26, 30)]);
        assert_eq!(unread(7, &[(8, 30)]), []);
    }

    #[test]
    fn what_lies_below_the_first_message_that_came_was_never_to_be_read() {
        assert_eq!(unread(0, &[(20, 25)]), [(26, 30)]);
        assert_eq!(unread(0, &[(1, 4), (6, 25)]), [(5, 5), (26, 30)]);
    }
}
