//! The first records of a file.

use std::io::Read;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};

use super::InferredSchema;
use crate::files::unpacked;
use crate::format::{Csv, Decode, Framing};
use crate::framer::{Framer, Limits};

/// The format of a file whose schema is inferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InferredFormat {
    /// A JSON object per line.
    JsonLines,
    /// CSV with a header and this delimiter.
    Csv(u8),
}

impl InferredFormat {
    /// Returns the format that the name of a file says; `None` if it says none. The suffix of a
    /// compression is left out.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "json" | "jsonl" | "ndjson" => Some(InferredFormat::JsonLines),
            "csv" => Some(InferredFormat::Csv(b',')),
            "tsv" => Some(InferredFormat::Csv(b'\t')),
            _ => None,
        }
    }
}

/// The limits of the sampled records.
const LIMITS: Limits = Limits {
    frame: 64 << 20,
    quoted: 1 << 20,
};

const READ_BYTES: usize = 256 << 10;

/// Infers the schema of a file from its first `records`. Gzip and zstd are decompressed.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the file cannot be read, or if none of the records is well-formed.
pub fn infer_file(path: &Path, format: InferredFormat, records: usize) -> Result<InferredSchema> {
    let schema = match format {
        InferredFormat::JsonLines => {
            let frames = first_frames(path, Framing::Lines, records)?;
            InferredSchema::of_json(frames.iter().map(Vec::as_slice))
        }
        InferredFormat::Csv(delimiter) => {
            let csv = Csv::new().delimiter(delimiter);
            let framing = Decode::<super::kinds::TextFields>::framing(&csv);
            let frames = first_frames(path, framing, records.saturating_add(1))?;
            InferredSchema::of_csv(csv, frames.iter().map(Vec::as_slice))
        }
    };
    if schema.records() > 0 {
        return Ok(schema);
    }
    let what = match schema.bad_records() {
        0 => format!("{} has no record", path.display()),
        bad => format!(
            "none of the first {bad} records of {} is well-formed",
            path.display()
        ),
    };
    Err(Error::new(ErrorCode::ReadFailed, what).hint("give the format with --format json or csv"))
}

fn first_frames(path: &Path, framing: Framing, most: usize) -> Result<Vec<Vec<u8>>> {
    let mut reader = unpacked(path)?;
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorCode::ReadFailed,
            format!("cannot read {}", path.display()),
        )
        .because(error)
    };
    let mut framer = Framer::new(framing, LIMITS, READ_BYTES);
    let mut frames = Vec::new();
    let mut has_ended = false;
    while frames.len() < most {
        if let Some(frame) = framer.next() {
            frames.push(frame.bytes.to_vec());
        } else if has_ended {
            break;
        } else if framer.fill(&mut reader as &mut dyn Read).map_err(failed)? == 0 {
            framer.end();
            has_ended = true;
        }
    }
    Ok(frames)
}
