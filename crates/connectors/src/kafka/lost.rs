//! Lost positions: offsets that no longer refer to the same record.

use std::fmt;

use ardea_core::{Error, ErrorCode};

use crate::kafka::identity::Replaced;
use crate::kafka::topics::PartitionId;

/// A lost position.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LostPosition {
    pub partition: PartitionId,
    /// Next offset to read.
    pub next: i64,
    /// Start and end offsets of the log, if the partition exists.
    pub log: Option<(i64, i64)>,
    pub why: LossReason,
}

/// Reason why a position was lost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LossReason {
    /// The topic has another id.
    Replaced(Replaced),
    /// The partition's leader epoch has decreased.
    EpochWentBack { was: i32, is: i32 },
    /// The topic has too few partitions.
    NoPartition { count: i32 },
    /// The topic no longer exists.
    NoTopic,
    /// The log ends before the position.
    BeyondEnd,
    /// The log ends before the end offset of a bounded source.
    EndIsGone { end: i64 },
    /// The log starts after the position.
    BelowStart,
    /// A different record is at the offset of the last record read.
    OtherRecord { offset: i64 },
    /// The client reported the loss.
    Reported(String),
}

impl LossReason {
    /// Returns true if the log is still the one that was read, so that its offsets remain valid.
    pub fn is_of_same_log(&self) -> bool {
        match self {
            LossReason::BeyondEnd
            | LossReason::EndIsGone { .. }
            | LossReason::BelowStart
            | LossReason::Reported(_) => true,
            LossReason::Replaced(_)
            | LossReason::EpochWentBack { .. }
            | LossReason::NoPartition { .. }
            | LossReason::NoTopic
            | LossReason::OtherRecord { .. } => false,
        }
    }
}

impl LostPosition {
    /// Converts to the job's failure.
    pub fn into_error(self) -> Error {
        let LostPosition {
            partition, next, ..
        } = &self;
        let what = format!("cannot resume the Kafka topic {partition} at offset {next}");
        let hint = "`on_lost_position(OnLostPosition::Continue)` continues at the oldest record; a job started without its checkpoint begins at `start`";
        let error = Error::new(ErrorCode::ReadFailed, what)
            .because(self.to_string())
            .hint(hint);
        error.permanent()
    }
}

impl fmt::Display for LostPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            LossReason::Replaced(Replaced { was, is }) => write!(
                f,
                "the topic was deleted and created again (its id was {was}, and is {is})"
            )?,
            LossReason::EpochWentBack { was, is } => write!(
                f,
                "the topic was created again or restored (the leader epoch was {was}, and is {is})"
            )?,
            LossReason::NoPartition { count } => {
                write!(f, "the topic has {count} partitions, and not this one")?;
            }
            LossReason::NoTopic => f.write_str("the topic was deleted")?,
            LossReason::BeyondEnd => f.write_str("the log ends before that offset")?,
            LossReason::EndIsGone { end } => write!(
                f,
                "the log was to be read up to offset {end}, and ends before it"
            )?,
            LossReason::BelowStart => {
                let start = self.log.map_or(self.next, |(start, _)| start);
                let gone = start.saturating_sub(self.next);
                write!(f, "{gone} offsets were removed before they were read")?;
            }
            LossReason::OtherRecord { offset } => write!(
                f,
                "another record is at offset {offset} than the one that was read there: the log was truncated or the topic created again"
            )?,
            LossReason::Reported(reason) => f.write_str(reason)?,
        }
        match self.log {
            Some((start, end)) if start == end => {
                write!(f, "; the log is empty now, at offset {end}")
            }
            Some((start, end)) => write!(f, "; the log has the offsets {start} to {} now", end - 1),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_what_was_remembered_what_there_is_and_what_to_do() {
        let lost = |why, log| LostPosition {
            partition: PartitionId::new("flights", 3),
            next: 70,
            log,
            why,
        };
        let error = lost(LossReason::BelowStart, Some((100, 150))).into_error();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        let text = error.to_string();
        for part in [
            "flights[3]",
            "offset 70",
            "30 offsets",
            "100 to 149",
            "on_lost_position",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let replaced = Replaced {
            was: "A".into(),
            is: "B".into(),
        };
        let text = lost(LossReason::Replaced(replaced), Some((0, 0))).to_string();
        assert!(
            text.contains("created again") && text.contains("empty"),
            "{text}"
        );
        let text = lost(LossReason::NoPartition { count: 2 }, None).to_string();
        assert_eq!(text, "the topic has 2 partitions, and not this one");
    }
}
