//! Handling of records that an instance cannot process.

use std::fmt::Display;

use crate::{DeadLetter, InstanceContext, OnError, Result};

/// A policy for bad records, bound to the instance that reports them.
///
/// ```
/// use ardea_core::{BadRecords, InstanceContext, OnError};
///
/// let context = InstanceContext::detached("parse");
/// let mut bad = BadRecords::new(OnError::DeadLetter);
/// bad.attach(&context);
/// bad.report(|| "in.csv:7".to_string(), || b"1;2".to_vec(), "one field is missing")?;
/// assert_eq!(context.dead_letters.sample()[0].origin, "in.csv:7");
/// assert_eq!(context.metrics.snapshot().bad, 1);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BadRecords {
    policy: OnError,
    context: InstanceContext,
}

impl BadRecords {
    /// Creates a handler with `policy` that is not attached to an instance yet.
    pub fn new(policy: OnError) -> Self {
        BadRecords {
            policy,
            context: InstanceContext::detached("detached"),
        }
    }

    /// Returns the policy.
    pub fn policy(&self) -> OnError {
        self.policy
    }

    /// Attaches the instance; to be called from `init`.
    pub fn attach(&mut self, context: &InstanceContext) {
        self.context = context.clone();
    }

    /// Returns the context of the attached instance.
    pub fn context(&self) -> &InstanceContext {
        &self.context
    }

    /// Counts a bad record and handles it by the policy. `origin` and `raw` return its origin and
    /// bytes; they are called only if the record is retained or reported.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if the policy is to fail; an error of
    /// the dead letters' receiver.
    #[cold]
    pub fn report(
        &self,
        origin: impl FnOnce() -> String,
        raw: impl FnOnce() -> Vec<u8>,
        reason: impl Display,
    ) -> Result<()> {
        let context = &self.context;
        context.metrics.count_bad(1);
        context.dead_letters.handle(self.policy, || DeadLetter {
            vertex: context.vertex.to_string(),
            origin: origin(),
            raw: raw(),
            reason: reason.to_string(),
        })
    }
}
