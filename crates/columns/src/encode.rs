//! Records in columns as text: the formats of sinks.

mod csv;
mod json;
mod values;

use std::io::Read;

use ardea_connectors::files::Compression;
use ardea_connectors::format::BatchEncode;
use ardea_core::{Error, ErrorCode, Result};
use arrow_schema::{Schema, SchemaRef};

use crate::batch::ColumnBatch;

pub use csv::CsvEncoder;
pub use json::{JsonEncoder, write_json_lines};

/// A format of sinks of columns, such as [`JsonEncoder`].
///
/// The value given to a sink has no columns. It is bound to those of the stream when the sink is
/// added to a pipeline.
pub trait ColumnEncode: BatchEncode<Batch = ColumnBatch> + Sized {
    /// Returns the encoder of batches with these columns. `compression` is that of the file.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if a column cannot be written in this format.
    fn bind(self, schema: &SchemaRef, compression: Compression) -> Result<Self>;
}

/// The receiver of records that a format cannot represent: the row, its bytes so far, the reason.
pub(crate) type Refuse<'a> = dyn FnMut(usize, Vec<u8>, String) -> Result<()> + 'a;

/// Writes records from the front of a batch, at least one, and removes them. Stops when `out` has
/// grown by `room` bytes.
fn write_rows(
    batch: &mut ColumnBatch,
    room: u64,
    out: &mut Vec<u8>,
    refuse: &mut Refuse<'_>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), String>,
) -> Result<()> {
    let most = (out.len() as u64).saturating_add(room);
    let mut written = 0;
    while written < batch.len() {
        let start = out.len();
        if let Err(reason) = write(written, out) {
            let raw = out.split_off(start);
            refuse(written, raw, reason)?;
        }
        written += 1;
        if out.len() as u64 >= most {
            break;
        }
    }
    batch.take_front(written);
    Ok(())
}

/// Returns the first line of an output that is continued, without its newline.
fn first_line(output: impl Read) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        let what = "what has been written so far cannot be read";
        Error::new(ErrorCode::ReadFailed, what).because(error)
    };
    let mut line = Vec::new();
    for byte in std::io::BufReader::new(output).bytes() {
        match byte.map_err(failed)? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    Ok(line)
}

/// Returns the error of a batch whose columns are not those of the encoder.
#[cold]
pub(crate) fn other_batch(expected: &Schema) -> Error {
    let names = expected.fields().iter().map(|field| field.name().as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let what = format!("a batch has other columns than {names}, which its sink expects");
    Error::new(ErrorCode::Internal, what)
}
