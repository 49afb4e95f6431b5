//! Partitioning of batches by key.

use ardea_core::{Chunk, Error, ErrorCode, Result, Scatter};
use arrow_array::UInt32Array;

use super::KeyColumns;
use crate::batch::{ColumnBatch, append_to};

/// The partitioner of edges that carry [`ColumnBatch`]es: each record goes to the consumer that
/// owns the partition of its key.
#[derive(Clone, Debug)]
pub struct ColumnScatter {
    key: KeyColumns,
}

impl ColumnScatter {
    /// Creates a partitioner by these key columns.
    pub fn new(key: KeyColumns) -> Self {
        ColumnScatter { key }
    }
}

impl Scatter for ColumnScatter {
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], _: usize) -> Result<()> {
        let batch = from.batch::<ColumnBatch>()?;
        if let [only] = to {
            return append_to(only, batch.take());
        }
        let keys = self.key.encode(batch.records())?;
        let consumers = to.len() as u32;
        let mut rows: Vec<Vec<u32>> = to.iter().map(|_| Vec::new()).collect();
        for row in 0..keys.len() {
            let owner = keys.partition(row).owner(consumers) as usize;
            match rows.get_mut(owner) {
                Some(rows) => rows.push(row as u32),
                None => {
                    let what = "a record was routed to a consumer that does not exist";
                    return Err(Error::new(ErrorCode::Internal, what));
                }
            }
        }
        for (rows, to) in rows.into_iter().zip(to) {
            if rows.is_empty() {
                continue;
            }
            append_to(to, batch.take_rows(&UInt32Array::from(rows))?)?;
        }
        batch.take();
        Ok(())
    }
}
