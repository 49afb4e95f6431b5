//! The dead letters of a job.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_query::check_limit;

/// Default number of dead letters of a response.
pub const DEFAULT_DEAD_LETTERS: u32 = 100;
/// Maximum number of dead letters of a response.
pub const MAX_DEAD_LETTERS: u32 = 1_000;

/// The selection of dead letters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLettersQuery {
    /// Only those of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
    /// Maximum number of letters; 100 if not given, at most 1,000.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 1_000))]
    pub limit: Option<u32>,
    /// Position of the page: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A position in the dead letters of a job, as a text in `after` and `next`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct DeadLetterPosition {
    /// Container that has written the next letter.
    pub container: ContainerId,
    /// Number of bytes before the next letter.
    pub bytes: u64,
}

impl DeadLetterPosition {
    fn parse(text: &str) -> Option<Self> {
        let (container, bytes) = text.split_once('-')?;
        Some(DeadLetterPosition {
            container: ContainerId(container.parse().ok()?),
            bytes: bytes.parse().ok()?,
        })
    }

    /// Returns the position as a text.
    pub fn to_text(self) -> String {
        format!("{}-{}", self.container.0, self.bytes)
    }
}

impl DeadLettersQuery {
    /// Validates a query from a client.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) for a limit of zero or above [`MAX_DEAD_LETTERS`], or
    /// an invalid position.
    pub fn check(&self) -> Result<()> {
        check_limit(self.limit, MAX_DEAD_LETTERS)?;
        self.position().map(drop)
    }

    /// Returns the start of the requested page.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) if it is no position.
    pub fn position(&self) -> Result<DeadLetterPosition> {
        let Some(after) = &self.after else {
            return Ok(DeadLetterPosition::default());
        };
        DeadLetterPosition::parse(after).ok_or_else(|| {
            let error = Error::new(
                ErrorCode::BadRequest,
                "after is no position of dead letters",
            );
            error.hint("give the value of next of the page before")
        })
    }

    /// Returns the maximum number of letters in the response.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_DEAD_LETTERS) as usize
    }

    /// Returns true if a letter of this step is selected.
    pub fn selects(&self, vertex: &str) -> bool {
        self.vertex.as_deref().is_none_or(|only| only == vertex)
    }
}

/// A page of dead letters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeadLettersView {
    /// Letters, in the order of their containers and in each container the oldest first.
    pub letters: Vec<DeadLetterView>,
    /// Position of the next page; null if there is none. A page may be empty and have a next one.
    pub next: Option<String>,
}

/// A record that could not be processed. Each container keeps its first letters, up to 16 MiB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetterView {
    /// Number of the container.
    #[schemars(with = "u32")]
    pub container: ContainerId,
    /// Step that could not process the record.
    pub vertex: String,
    /// Origin of the record: a file and line, a peer, a position of an input.
    pub origin: String,
    /// Reason.
    pub reason: String,
    /// Time of the failure, in milliseconds since 1970; null if it is unknown.
    pub at_ms: Option<u64>,
    /// Size of the record in bytes. A record of more than 64 KiB is cut.
    pub bytes: u64,
    /// Record, if it is text.
    pub text: Option<String>,
    /// Record in Base64, if it is no text.
    pub base64: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_others_are_refused() {
        let of = |after: &str| DeadLettersQuery {
            after: Some(after.into()),
            ..DeadLettersQuery::default()
        };
        let position = DeadLetterPosition {
            container: ContainerId(7),
            bytes: 1 << 40,
        };
        assert_eq!(of(&position.to_text()).position().unwrap(), position);
        for wrong in ["", "7", "-1-2", "a-b", "1-99999999999999999999"] {
            assert!(of(wrong).check().is_err(), "{wrong}");
        }
        assert_eq!(DeadLettersQuery::default().limit(), 100);
    }
}
