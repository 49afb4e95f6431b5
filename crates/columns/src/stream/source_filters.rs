//! Filters that a source may evaluate before it reads.

use std::sync::{Arc, Mutex, PoisonError};

use crate::expr::Expr;

/// The conditions of the filters directly after a source. The steps still evaluate them; the source
/// may leave out records for which one of them is false or null.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceFilters(Arc<Mutex<Vec<Expr>>>);

impl SourceFilters {
    pub(super) fn add(&self, condition: &Expr) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(condition.clone());
    }

    /// Returns the conditions, once the pipeline is complete.
    #[cfg(feature = "parquet")]
    pub(crate) fn all(&self) -> Vec<Expr> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}
