//! Encoding of the records of an inbox, and writing of the bytes in short turns.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::time::Duration;

use ardea_core::{BadRecords, Inbox, InstanceContext, OnError, Outbox, RecordGuard, Result};

use crate::fd_poll::{TURN, not_now, writable};
use crate::format::Encode;

/// The encoding settings common to all byte sinks.
#[derive(Clone, Debug)]
pub(crate) struct Writing<E> {
    pub encoder: E,
    pub on_error: OnError,
}

impl<E> Writing<E> {
    pub fn new(encoder: E) -> Self {
        Writing {
            encoder,
            on_error: OnError::default(),
        }
    }

    /// Returns the same settings with another encoder.
    pub fn map<F>(self, encoder: impl FnOnce(E) -> F) -> Writing<F> {
        Writing {
            encoder: encoder(self.encoder),
            on_error: self.on_error,
        }
    }
}

/// Declares the builder method common to all byte sinks; the builder has a field `writing:
/// Writing<E>`.
macro_rules! writing_options {
    () => {
        /// Sets the treatment of a record that the format cannot represent. By default such a
        /// record becomes a dead letter with its position and the reason.
        pub fn on_error(mut self, on_error: ardea_core::OnError) -> Self {
            self.writing.on_error = on_error;
            self
        }
    };
}
pub(crate) use writing_options;

/// An encoder of records that also handles records which cannot be encoded.
pub(crate) struct RecordWriter<T, E> {
    encoder: E,
    bad: BadRecords,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> RecordWriter<T, E> {
    pub fn new(writing: &Writing<E>) -> Self {
        let mut encoder = writing.encoder.clone();
        encoder.begin();
        RecordWriter {
            encoder,
            bad: BadRecords::new(writing.on_error),
            record: PhantomData,
        }
    }

    pub fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
    }

    /// Starts a new output, which needs a header again.
    pub fn begin(&mut self) {
        self.encoder.begin();
    }

    /// Continues an output that already has a header.
    pub fn resume(&mut self) {
        self.encoder.resume();
    }

    /// Continues an output, which `output` reads from its beginning.
    pub fn resume_from(&mut self, output: &mut impl Read) -> io::Result<()> {
        self.encoder.resume_from(output)
    }

    /// Appends one record to `out`. Handles a record that cannot be encoded and appends nothing.
    #[inline]
    pub fn encode(&mut self, record: &T, position: u64, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let Err(reason) = self.encoder.encode(record, out) else {
            return Ok(());
        };
        let reason = format!("cannot be written in this format: {reason}");
        let outcome = self.bad.report(
            || format!("record {position}"),
            || out[start..].to_vec(),
            reason,
        );
        out.truncate(start);
        outcome
    }

    /// Appends all records of the inbox to `out` and removes them.
    pub fn encode_all(&mut self, inbox: &mut Inbox, out: &mut Vec<u8>) -> Result<()> {
        self.encode_front(inbox, u64::MAX, out)
    }

    /// Appends records of the inbox to `out` and removes them, until the inbox is empty or `out`
    /// has `most` bytes.
    pub fn encode_front(&mut self, inbox: &mut Inbox, most: u64, out: &mut Vec<u8>) -> Result<()> {
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        let mut taken = 0;
        for (position, record) in (first..).zip(rows.values()) {
            self.encode(record, position, out)?;
            guard.advance();
            taken += 1;
            if out.len() as u64 >= most {
                break;
            }
        }
        match taken == rows.len() {
            true => rows.clear(),
            false => rows.discard_front(taken),
        }
        Ok(())
    }
}

/// A buffer of bytes to be written to a pipe or socket without blocking.
#[derive(Default)]
pub(crate) struct OutputBuffer {
    pub bytes: Vec<u8>,
    written: usize,
}

impl OutputBuffer {
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes for at most one [`TURN`](crate::fd_poll::TURN), at most `most` bytes at a time;
    /// returns true if all bytes are written. `most` is the number of bytes that `writer` accepts
    /// without blocking once it is ready.
    pub fn push_out(&mut self, writer: &mut (impl Write + AsFd), most: usize) -> io::Result<bool> {
        while !self.is_empty() {
            if !writable(writer, TURN)? {
                return Ok(false);
            }
            let end = self.bytes.len().min(self.written.saturating_add(most));
            match writer.write(&self.bytes[self.written..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if not_now(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(true)
    }

    /// Schedules an immediate wake-up of the sink if bytes are left, so that they are written even
    /// if no more records arrive.
    pub fn wake_if_pending(is_out: bool, outbox: &mut Outbox) {
        if !is_out {
            outbox.wake_at(Duration::ZERO);
        }
    }

    /// Moves back to the start of the present line, so that all of it is written again.
    pub fn rewind_line(&mut self) {
        let line_start = memchr::memrchr(b'\n', &self.bytes[..self.written]).map_or(0, |at| at + 1);
        self.bytes.drain(..line_start);
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_takes_the_rest_later_without_blocking() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let sent: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        let mut pending = OutputBuffer {
            bytes: sent.clone(),
            written: 0,
        };
        assert!(
            !pending.push_out(&mut writer, 4096).unwrap(),
            "a pipe holds 64 KiB"
        );
        let received = std::thread::spawn(move || {
            let mut all = Vec::new();
            io::Read::read_to_end(&mut reader, &mut all).map(|_| all)
        });
        crate::testing::eventually("all out", || pending.push_out(&mut writer, 4096).unwrap());
        drop(writer);
        assert_eq!(received.join().unwrap().unwrap(), sent);
    }

    #[test]
    fn a_broken_line_is_written_again_whole() {
        let mut pending = OutputBuffer {
            bytes: b"one\ntwo\nthree\n".to_vec(),
            written: 6,
        };
        pending.rewind_line();
        assert_eq!(
            (pending.bytes.as_slice(), pending.written),
            (&b"two\nthree\n"[..], 0)
        );
    }
}
