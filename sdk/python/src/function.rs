//! The interface of steps that call functions of another language.

use arrow_array::RecordBatch;

use crate::failure::Traceback;

/// A function on batches of records.
///
/// A function is called in the interpreter of this process: that of the job, or one of its own.
pub(crate) trait BatchFunction: Send {
    /// Calls the function with a batch.
    ///
    /// # Errors
    /// The failure that ends the job.
    fn call(&mut self, batch: &RecordBatch) -> Result<FunctionResult, Traceback>;
}

/// The results of a function for a batch.
pub(crate) struct FunctionResult {
    /// The records.
    pub records: RecordBatch,
    /// The row of the input from which each record comes; `None` if they are the same rows.
    pub rows: Option<Vec<u32>>,
    /// The rows on which the function failed, with the reasons.
    pub failures: Vec<(u32, String)>,
}
