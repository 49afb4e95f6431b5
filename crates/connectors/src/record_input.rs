//! The forms in which a sink of bytes receives its records: rows, or batches.

use std::io;

use ardea_core::{BadRecords, Error, ErrorCode, Inbox, InstanceContext, Result};

use crate::files::OutputContent;
use crate::format::{BatchEncode, Encode};
use crate::record_writer::{RecordWriter, Writing};

/// An encoder of the records of an inbox, in one of the forms.
pub(crate) trait InputForm: Send + 'static {
    /// The format.
    type Encoder;

    /// True if an output is complete only after [`finish`](Self::finish).
    const HAS_END: bool;

    fn new(writing: &Writing<Self::Encoder>) -> Self;

    fn attach(&mut self, context: &InstanceContext);

    /// Starts a new output, which needs a header again.
    fn begin(&mut self);

    /// Continues an output.
    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()>;

    /// Appends records of the inbox to `out` and removes them, until the inbox is empty or the
    /// output has grown by `room` bytes.
    fn encode(&mut self, inbox: &mut Inbox, room: u64, out: &mut Vec<u8>) -> Result<()>;

    /// See [`BatchEncode::held_bytes`].
    fn held_bytes(&self) -> u64 {
        0
    }

    /// See [`BatchEncode::seal`].
    fn seal(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    /// See [`BatchEncode::finish`].
    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl<T: Send + 'static, E: Encode<T>> InputForm for RecordWriter<T, E> {
    type Encoder = E;

    const HAS_END: bool = false;

    fn new(writing: &Writing<E>) -> Self {
        RecordWriter::new(writing)
    }

    fn attach(&mut self, context: &InstanceContext) {
        RecordWriter::attach(self, context);
    }

    fn begin(&mut self) {
        RecordWriter::begin(self);
    }

    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()> {
        if !output.is_readable() {
            self.resume();
            return Ok(());
        }
        let resumed = RecordWriter::resume_from(self, &mut output.decompressed());
        resumed.map_err(unreadable)
    }

    fn encode(&mut self, inbox: &mut Inbox, room: u64, out: &mut Vec<u8>) -> Result<()> {
        let most = (out.len() as u64).saturating_add(room);
        self.encode_front(inbox, most, out)
    }
}

/// Returns the error of an output that cannot be read.
pub(crate) fn unreadable(error: io::Error) -> Error {
    let what = "what has been written so far cannot be read";
    Error::new(ErrorCode::ReadFailed, what).because(error)
}

/// An encoder of batches that also handles records which cannot be encoded.
pub(crate) struct BatchWriter<E> {
    encoder: E,
    bad: BadRecords,
}

impl<E: BatchEncode> InputForm for BatchWriter<E> {
    type Encoder = E;

    const HAS_END: bool = E::HAS_END;

    fn new(writing: &Writing<E>) -> Self {
        let mut encoder = writing.encoder.clone();
        encoder.begin();
        BatchWriter {
            encoder,
            bad: BadRecords::new(writing.on_error),
        }
    }

    fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
    }

    fn begin(&mut self) {
        self.encoder.begin();
    }

    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()> {
        self.encoder.resume_from(output)
    }

    fn encode(&mut self, inbox: &mut Inbox, room: u64, out: &mut Vec<u8>) -> Result<()> {
        let position = inbox.position();
        let batch = inbox.batch::<E::Batch>()?;
        let bad = &self.bad;
        let refuse = &mut |row: usize, raw: Vec<u8>, reason: String| {
            let reason = format!("cannot be written in this format: {reason}");
            let record = position.saturating_add(row as u64);
            bad.report(|| format!("record {record}"), || raw, reason)
        };
        self.encoder.encode(batch, room, out, refuse)
    }

    fn held_bytes(&self) -> u64 {
        self.encoder.held_bytes()
    }

    fn seal(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.encoder.seal(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.encoder.finish(out)
    }
}
