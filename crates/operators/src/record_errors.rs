//! Records that user code can't deal with: set aside, counted or fatal, as the job says.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ardea_core::{
    BadRecords, InstanceContext, OnError, Ordinal, Result, panic_message, take_failed_index,
};

/// What a dead letter keeps of a record: text and bytes as they are, any other type as its [`Debug`] text.
///
/// ```
/// use ardea_operators::raw_of;
///
/// assert_eq!(raw_of(&Some(3)), b"Some(3)");
/// assert_eq!(raw_of(&"a \"b\"".to_string()), b"a \"b\"");
/// ```
pub fn raw_of<T: Debug + 'static>(record: &T) -> Vec<u8> {
    let any: &dyn Any = record;
    if let Some(text) = any.downcast_ref::<String>() {
        text.as_bytes().to_vec()
    } else if let Some(text) = any.downcast_ref::<&str>() {
        text.as_bytes().to_vec()
    } else if let Some(bytes) = any.downcast_ref::<Vec<u8>>() {
        bytes.clone()
    } else {
        format!("{record:?}").into_bytes()
    }
}

/// A panic of user code on a single record.
pub(crate) struct RecordPanic {
    /// The index of the record in the batch that was given to [`RecordErrors::catch`].
    pub(crate) index: usize,
    /// The reason, for a dead letter.
    pub(crate) reason: String,
}

/// What an operator does with records that its user code returns an error for.
#[derive(Debug)]
pub(crate) struct RecordErrors<T> {
    bad: BadRecords,
    raw: fn(&T) -> Vec<u8>,
}

impl<T> RecordErrors<T> {
    /// Deals with bad records by `policy`; `raw` makes the bytes that a dead letter keeps of one.
    pub(crate) fn new(policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        RecordErrors {
            bad: BadRecords::new(policy),
            raw,
        }
    }

    /// Where the operator runs: who is named, and who is told.
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
    }

    /// Runs `batch`, which follows its records with a [`RecordGuard`](ardea_core::RecordGuard) from
    /// zero on. Returns its result, or the panic of user code that ended it: the caller sets that
    /// record aside and goes on behind it.
    ///
    /// A policy to fail leaves panics alone. They cost nothing unless there is one.
    pub(crate) fn catch<R>(
        &self,
        batch: impl FnOnce() -> Result<R>,
    ) -> Result<std::result::Result<R, RecordPanic>> {
        if self.bad.policy() == OnError::Fail {
            return batch().map(Ok);
        }
        let payload = match catch_unwind(AssertUnwindSafe(batch)) {
            Ok(done) => return done.map(Ok),
            Err(payload) => payload,
        };
        let Some(index) = take_failed_index() else {
            resume_unwind(payload);
        };
        let reason = format!("panicked: {}", panic_message(&*payload));
        Ok(Err(RecordPanic { index, reason }))
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
        let origin = || place(self.bad.context(), ordinal, position);
        self.bad
            .report(origin, || (self.raw)(record), reason)
            .map_err(|error| error.at_record(ordinal.index(), position))
    }
}

/// Where a record came from, as far as a step in the middle of a job can know: the file and line if it came straight from a source
/// that knows them, else how many came before it, and from which step.
fn place(context: &InstanceContext, ordinal: Ordinal, position: u64) -> String {
    // Only then do all records of the producer come here, in its order.
    let is_only = context.instance.parallelism == 1;
    if let Some(producer) = context.inputs.get(ordinal.index()).filter(|_| is_only)
        && let Some(origin) = context.origins.of(producer, position)
    {
        return origin;
    }
    let from = match context.inputs.get(ordinal.index()) {
        Some(producer) => format!("from {producer:?}"),
        None => format!("of input {}", ordinal.index()),
    };
    match context.instance.parallelism {
        1 => format!("record {position} {from}"),
        _ => format!(
            "record {position} {from} to instance {}",
            context.instance.index
        ),
    }
}
