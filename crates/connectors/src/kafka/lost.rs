//! Positions that do not mean any more what they meant.

use std::fmt;

use ardea_core::{Error, ErrorCode};

use crate::kafka::identity::Replaced;
use crate::kafka::topics::PartitionId;

/// A position that was lost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lost {
    pub partition: PartitionId,
    /// The offset that was to come next.
    pub next: i64,
    /// The start and the end of the log, if there is one.
    pub log: Option<(i64, i64)>,
    pub why: Why,
}

/// The reason why a position was lost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Why {
    /// The topic has another id.
    Replaced(Replaced),
    /// The leader epoch of the partition is less than it was.
    EpochWentBack { was: i32, is: i32 },
    /// The topic has fewer partitions.
    NoPartition { count: i32 },
    /// There is no such topic any more.
    NoTopic,
    /// The log ends before the position.
    BeyondEnd,
    /// The log ends before the offset up to which it was to be read.
    EndIsGone { end: i64 },
    /// The log begins behind the position.
    BelowStart,
    /// Another record is in the place of the one that was read last.
    OtherRecord { offset: i64 },
    /// What the client says.
    Reported(String),
}

impl Why {
    /// Returns whether the log is the one that was read: offsets mean in it what they meant.
    pub fn is_of_same_log(&self) -> bool {
        match self {
            Why::BeyondEnd | Why::EndIsGone { .. } | Why::BelowStart | Why::Reported(_) => true,
            Why::Replaced(_)
            | Why::EpochWentBack { .. }
            | Why::NoPartition { .. }
            | Why::NoTopic
            | Why::OtherRecord { .. } => false,
        }
    }
}

impl Lost {
    /// The job's failure.
    pub fn into_error(self) -> Error {
        let Lost {
            partition, next, ..
        } = &self;
        let what = format!("cannot go on in the Kafka topic {partition} at offset {next}");
        let hint = "`on_lost_position(OnLostPosition::Continue)` goes on at the oldest record; a job that begins without its state begins at `start`";
        let error = Error::new(ErrorCode::ReadFailed, what)
            .because(self.to_string())
            .hint(hint);
        error.permanent()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Replaced(Replaced { was, is }) => write!(
                f,
                "the topic was deleted and made anew (its id was {was}, and is {is})"
            )?,
            Why::EpochWentBack { was, is } => write!(
                f,
                "the topic was made anew or restored (the leader epoch was {was}, and is {is})"
            )?,
            Why::NoPartition { count } => {
                write!(f, "the topic has {count} partitions, and not this one")?;
            }
            Why::NoTopic => f.write_str("the topic was deleted")?,
            Why::BeyondEnd => f.write_str("the log ends before that offset")?,
            Why::EndIsGone { end } => write!(
                f,
                "the log was to be read up to offset {end}, and ends before it"
            )?,
            Why::BelowStart => {
                let start = self.log.map_or(self.next, |(start, _)| start);
                let gone = start.saturating_sub(self.next);
                write!(f, "{gone} offsets that had not been read were removed")?;
            }
            Why::OtherRecord { offset } => write!(
                f,
                "another record is at offset {offset} than the one that was read there: the log was truncated or the topic made anew"
            )?,
            Why::Reported(reason) => f.write_str(reason)?,
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
        let lost = |why, log| Lost {
            partition: PartitionId::new("flights", 3),
            next: 70,
            log,
            why,
        };
        let error = lost(Why::BelowStart, Some((100, 150))).into_error();
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
        let text = lost(Why::Replaced(replaced), Some((0, 0))).to_string();
        assert!(
            text.contains("made anew") && text.contains("empty"),
            "{text}"
        );
        let text = lost(Why::NoPartition { count: 2 }, None).to_string();
        assert_eq!(text, "the topic has 2 partitions, and not this one");
    }
}
