//! Comparison of a stream's restored state with the server's stream.

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};
use async_nats::jetstream::stream::{Info, RetentionPolicy};

use super::NatsSourceConfig;

/// Known state of the stream that a job reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Creation time of the stream, in nanoseconds since 1970.
    pub created: Option<i64>,
    /// All messages up to this number that are in no range of `runs` have been read, or precede the
    /// start of the source.
    pub floor: u64,
    /// Ranges of messages read, first to last, in order.
    pub runs: Vec<(u64, u64)>,
}

impl Known {
    /// Returns the highest message number known to be read.
    pub fn highest(&self) -> u64 {
        self.runs
            .last()
            .map_or(0, |(_, last)| *last)
            .max(self.floor)
    }

    /// Returns the ranges of numbers up to `last` that have not been read, each as first and last
    /// number. Numbers before the first message received do not count, because a consumer may start
    /// anywhere.
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

/// Returns the creation time of a stream, in nanoseconds since 1970.
pub(crate) fn created(stream: &Info) -> i64 {
    let nanos = stream.created.unix_timestamp_nanos();
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Checks that the job's position is valid in a stream. If messages were lost and the job accepts
/// the loss, returns its description.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the stream was created again, ends before the last message read, or
/// has lost unread messages.
pub(crate) fn check(
    known: &Known,
    stream: &Info,
    plan: &NatsSourceConfig,
) -> Result<Option<String>> {
    let name = &plan.stream;
    if known.created.is_some_and(|then| then != created(stream)) {
        let what = format!("the stream {name} was deleted and created again since the job read it");
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .permanent()
            .because("its sequence numbers now refer to other messages")
            .hint(START_OVER));
    }
    let (highest, last) = (known.highest(), stream.state.last_sequence);
    if highest > last {
        let what = format!(
            "the stream {name} ends at message {last}, and the job has read message {highest}"
        );
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .permanent()
            .because("it was created again, or restored from an earlier copy")
            .hint(START_OVER));
    }
    let mut losses = Vec::new();
    if highest > 0 && detects_losses(stream, plan) {
        for unread in known.unread(last) {
            losses.extend(check_removed(unread, stream, plan)?);
        }
    }
    Ok((!losses.is_empty()).then(|| losses.join("; ")))
}

/// Checks whether messages in the range were removed before they were read. If the job accepts the
/// loss, returns its description.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] with the numbers of the removed messages.
pub(crate) fn check_removed(
    (from, to): (u64, u64),
    stream: &Info,
    plan: &NatsSourceConfig,
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
        .because("the stream's limits (messages, bytes or age) removed them, or it was purged")
        .hint("raise the limits of the stream, or continue with the remaining messages by `on_lost_position(OnLostPosition::Continue)`"))
}

/// Returns true if a number missing at the start of the stream means a lost message. It does not if
/// the stream removes acknowledged messages or limits messages per subject, or if a subject filter
/// is set.
pub(crate) fn detects_losses(stream: &Info, plan: &NatsSourceConfig) -> bool {
    stream.config.retention == RetentionPolicy::Limits
        && stream.config.max_messages_per_subject <= 0
        && plan.subject.is_empty()
}

const START_OVER: &str = "restore the stream, or start the job without its checkpoint: recovery.start_over in one process, on a cluster submit it again";

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
