//! Error handling for records on which user code fails: dead letter, skip or fail, by policy.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ardea_core::{
    BadRecords, InstanceContext, OnError, Ordinal, Result, UpstreamVertex, panic_message,
    take_failed_index,
};

/// Returns the bytes of a record for a dead letter: text and bytes unchanged, other types as their
/// [`Debug`] text.
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
    /// The index of the record in the batch passed to [`RecordErrors::catch`].
    pub(crate) index: usize,
    /// The reason, for a dead letter.
    pub(crate) reason: String,
}

/// The handler of an operator for records on which its user code fails.
#[derive(Debug)]
pub struct RecordErrors<T> {
    bad: BadRecords,
    raw: fn(&T) -> Vec<u8>,
}

impl<T> RecordErrors<T> {
    /// Creates a handler with `policy`. `raw` returns the bytes of a record for a dead letter.
    pub fn new(policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        RecordErrors {
            bad: BadRecords::new(policy),
            raw,
        }
    }

    /// Sets the instance. Errors name this instance, and its dead-letter output and metrics are
    /// used.
    pub fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
    }

    /// Runs `batch`, which must track its records with a [`RecordGuard`](ardea_core::RecordGuard)
    /// from zero. Returns the result of `batch`, or the panic of user code that ended it. The
    /// caller then sets that record aside and continues after it.
    ///
    /// With [`OnError::Fail`], panics are not caught.
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

    /// Handles one bad record, at `position` of the input `ordinal`.
    ///
    /// # Errors
    /// `BadRecord` with the record's position if the policy is [`OnError::Fail`]; an error of the
    /// dead-letter output.
    #[cold]
    pub fn handle(
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

/// Returns the origin of a record: file and line if the record came directly from a source that
/// provides them, otherwise the producing step and the record's position.
fn place(context: &InstanceContext, ordinal: Ordinal, position: u64) -> String {
    let input = context.inputs.get(ordinal.index());
    // Only then does this instance receive all records of one instance in order.
    let is_ordered =
        |input: &&UpstreamVertex| input.is_forward || context.instance.parallelism == 1;
    if let Some(producer) = input.filter(is_ordered)
        && let Some(origin) = context
            .origins
            .of(&producer.name, context.instance, position)
    {
        return origin;
    }
    let from = match input {
        Some(producer) => format!("from {:?}", producer.name),
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
