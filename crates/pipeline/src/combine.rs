//! The place of a keyed aggregate relative to the exchange of records by key.

use ardea_core::{Error, ErrorCode, Result};

/// The place at which an aggregate combines the records of a key.
///
/// See [`KeyedStream::combine`](crate::KeyedStream::combine).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Combine {
    /// Before the exchange by key if the aggregate allows it and the step may have several
    /// instances.
    #[default]
    Auto,
    /// Before the exchange: each instance of the input aggregates its own records, and sends one
    /// partial result per key, and per slice of a window.
    BeforeExchange,
    /// After the exchange: all records are sent to the owner of their key.
    AfterExchange,
}

impl Combine {
    /// Returns true if the step `name` combines records before the exchange. `obstacle` is the
    /// reason why its aggregate does not allow it. `is_single` is true if the step has one
    /// instance.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if this requires what the aggregate does not allow.
    pub(crate) fn is_before(
        self,
        name: &str,
        obstacle: Option<&str>,
        is_single: bool,
    ) -> Result<bool> {
        match (self, obstacle) {
            (Combine::Auto, obstacle) => Ok(obstacle.is_none() && !is_single),
            (Combine::BeforeExchange, None) => Ok(true),
            (Combine::BeforeExchange, Some(obstacle)) => {
                let what = "records cannot be combined before their exchange";
                Err(Error::new(ErrorCode::InvalidJob, what)
                    .because(obstacle)
                    .hint("leave out `combine`, or use Combine::AfterExchange")
                    .in_vertex(name, 0))
            }
            (Combine::AfterExchange, _) => Ok(false),
        }
    }
}
