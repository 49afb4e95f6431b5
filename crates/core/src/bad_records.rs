//! What an instance does with records that it can't deal with.

use std::fmt::Display;

use crate::{DeadLetter, InstanceContext, OnError, Result};

/// A policy for bad records, and the instance that meets them: who is named, and who is told.
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
    /// Deals with bad records by `policy`; attached to no job yet.
    pub fn new(policy: OnError) -> Self {
        BadRecords {
            policy,
            context: InstanceContext::detached("detached"),
        }
    }

    /// The policy.
    pub fn policy(&self) -> OnError {
        self.policy
    }

    /// Where the instance runs, as `init` is told.
    pub fn attach(&mut self, context: &InstanceContext) {
        self.context = context.clone();
    }

    /// Where the instance runs.
    pub fn context(&self) -> &InstanceContext {
        &self.context
    }

    /// Counts a bad record and deals with it as the policy says. `origin` and `raw`, where it came from and its bytes, are called
    /// only if somebody will see them.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if the policy is to fail; the dead letters' receiver's own error.
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
