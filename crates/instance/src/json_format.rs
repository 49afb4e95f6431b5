//! Records as JSON documents, one per record.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;

use ardea_core::{Inbox, Ordinal, Outbox, PartitionId, Result, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::format::{BatchFormat, BatchLayout, EncodedBatch, RowLayout, UnencodableRecord};
use crate::protocol::{ResultReader, RowBatchWriter, RowFailure, Violation};

/// The maximum length of a result in a message about it, in characters.
const PREVIEW_CHARS: usize = 80;

/// The format `json`: each record is one JSON document.
///
/// `K` appends the canonical bytes of a record's key, and returns its partition.
pub struct JsonFormat<T, Out, K> {
    key: K,
    outputs: VecDeque<(Out, Timestamp)>,
    input: PhantomData<fn(T)>,
}

impl<T, Out, K> JsonFormat<T, Out, K>
where
    K: Fn(&T, &mut Vec<u8>) -> Option<PartitionId> + Send,
{
    /// Creates the format of a keyed step.
    pub fn keyed(key: K) -> Self {
        JsonFormat {
            key,
            outputs: VecDeque::new(),
            input: PhantomData,
        }
    }
}

impl<T, Out> JsonFormat<T, Out, fn(&T, &mut Vec<u8>) -> Option<PartitionId>> {
    /// Creates the format of a step without keys.
    pub fn plain() -> Self {
        JsonFormat {
            key: |_, _| None,
            outputs: VecDeque::new(),
            input: PhantomData,
        }
    }
}

impl<T, Out, K> BatchLayout for JsonFormat<T, Out, K>
where
    Out: Send,
    K: Send,
{
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch {
        RowLayout.slice(batch, rows)
    }

    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8> {
        RowLayout.raw(batch, row)
    }
}

impl<T, Out, K> BatchFormat for JsonFormat<T, Out, K>
where
    T: Serialize + Send + 'static,
    Out: DeserializeOwned + Send + 'static,
    K: Fn(&T, &mut Vec<u8>) -> Option<PartitionId> + Send,
{
    fn name(&self) -> &'static str {
        "json"
    }

    fn encode(
        &mut self,
        inbox: &mut Inbox,
        limit: usize,
        bad: &mut Vec<UnencodableRecord>,
    ) -> Result<Option<EncodedBatch>> {
        let position = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut batch = RowBatchWriter::default();
        let mut taken = 0;
        for (record, time) in rows.iter() {
            let pushed = batch.push(
                time,
                |out| (self.key)(record, out),
                |out| serde_json::to_writer(out, record),
            );
            taken += 1;
            if let Err(error) = pushed {
                // The batch ends here, so that its rows have consecutive positions.
                bad.push((
                    position + taken as u64 - 1,
                    format!("can't be written as JSON: {error}"),
                ));
                break;
            }
            if batch.byte_len() >= limit {
                break;
            }
        }
        rows.discard_front(taken);
        let records = batch.records();
        Ok((records > 0).then(|| EncodedBatch {
            records,
            position,
            payload: batch.finish().into(),
        }))
    }

    fn accept(&mut self, payload: &[u8], rows: u32) -> Result<Vec<RowFailure>, Violation> {
        let result = ResultReader::rows(payload, rows)?;
        let mut failures = result.failures;
        for output in result.outputs {
            match serde_json::from_slice(output.value) {
                Ok(record) => self.outputs.push_back((record, output.time)),
                Err(error) => {
                    let text = String::from_utf8_lossy(output.value);
                    let text: String = text.chars().take(PREVIEW_CHARS).collect();
                    failures.push(RowFailure {
                        row: output.row,
                        reason: format!("its result {text} does not fit the step: {error}"),
                    });
                }
            }
        }
        match failures.first() {
            Some(failure) if rows == 0 => Err(Violation::new(format!(
                "a result of a watermark failed: {}",
                failure.reason
            ))),
            _ => Ok(failures),
        }
    }

    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.outputs.is_empty() {
            let mut lane = outbox.lane::<Out>(Ordinal::FIRST)?;
            let count = lane.room().min(self.outputs.len());
            for (record, time) in self.outputs.drain(..count) {
                lane.push(record, time);
            }
        }
        Ok(self.outputs.is_empty())
    }
}
