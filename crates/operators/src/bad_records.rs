//! Records that user code can't deal with: set aside, counted or fatal, as the job says.

use std::fmt::{Debug, Display};

use ardea_core::{DeadLetter, InstanceContext, OnError, Ordinal, Result};

/// The record as its [`Debug`] text, for dead letters of records that have no bytes of their own.
///
/// ```
/// assert_eq!(ardea_operators::debug_bytes(&Some(3)), b"Some(3)");
/// ```
pub fn debug_bytes<T: Debug>(record: &T) -> Vec<u8> {
    format!("{record:?}").into_bytes()
}

/// What an operator does with records that its user code returns an error for.
#[derive(Debug)]
pub(crate) struct BadRecords<T> {
    policy: OnError,
    raw: fn(&T) -> Vec<u8>,
    context: InstanceContext,
}

impl<T> BadRecords<T> {
    /// Deals with bad records by `policy`; `raw` makes the bytes that a dead letter keeps of one.
    pub(crate) fn new(policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        BadRecords {
            policy,
            raw,
            context: InstanceContext::detached("detached"),
        }
    }

    /// Where the operator runs: who is named, and who is told.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.context = context.clone();
    }

    /// Deals with one record, the `position`th of the input `ordinal`.
    ///
    /// # Errors
    /// `BadRecord` if the policy is to fail, with the record's position; the dead-letter output's own error if it fails.
    #[cold]
    pub(crate) fn handle(
        &self,
        ordinal: Ordinal,
        position: u64,
        record: &T,
        reason: impl Display,
    ) -> Result<()> {
        let context = &self.context;
        context.metrics.count_bad(1);
        let letter = || DeadLetter {
            vertex: context.vertex.to_string(),
            origin: format!(
                "input {}, instance {}, record {position}",
                ordinal.index(),
                context.instance.index
            ),
            raw: (self.raw)(record),
            reason: reason.to_string(),
        };
        context
            .dead_letters
            .handle(self.policy, letter)
            .map_err(|error| error.at_record(ordinal.index(), position))
    }
}
