//! The way out: records of an inbox become bytes, and bytes go out in turns.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::time::Duration;

use ardea_core::{BadRecords, Inbox, InstanceContext, OnError, Outbox, RecordGuard, Result};

use crate::format::Encode;
use crate::ready::{TURN, not_now, writable};

/// How a sink encodes: the part of its settings that every byte sink has.
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

/// Declares the builder method that every byte sink has; the builder keeps a `writing: Writing<E>`.
macro_rules! writing_options {
    () => {
        /// Sets what becomes of a record that the format can't hold: kept aside with its position and the reason (the
        /// default), dropped and counted, or the job fails.
        pub fn on_error(mut self, on_error: ardea_core::OnError) -> Self {
            self.writing.on_error = on_error;
            self
        }
    };
}
pub(crate) use writing_options;

/// Encodes records, and deals with those that can't be.
pub(crate) struct Outgo<T, E> {
    encoder: E,
    bad: BadRecords,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> Outgo<T, E> {
    pub fn new(writing: &Writing<E>) -> Self {
        let mut encoder = writing.encoder.clone();
        encoder.begin();
        Outgo {
            encoder,
            bad: BadRecords::new(writing.on_error),
            record: PhantomData,
        }
    }

    pub fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
    }

    /// A new output begins: a header is due again.
    pub fn begin(&mut self) {
        self.encoder.begin();
    }

    /// An output goes on whose header is there already.
    pub fn resume(&mut self) {
        self.encoder.resume();
    }

    /// An output goes on, which `output` reads from its beginning.
    pub fn resume_from(&mut self, output: &mut impl Read) -> io::Result<()> {
        self.encoder.resume_from(output)
    }

    /// Appends one record to `out`; nothing if it can't be encoded.
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
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        for (position, record) in (first..).zip(rows.values()) {
            self.encode(record, position, out)?;
            guard.advance();
        }
        rows.clear();
        Ok(())
    }
}

/// Bytes on their way to a pipe or socket that takes them when it can.
#[derive(Default)]
pub(crate) struct Pending {
    pub bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Writes for at most one turn, `most` bytes at a time, and says whether all is out. `most` is what `writer`
    /// takes without blocking once it is ready.
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

    /// Has a sink called again at once as long as not all is out: the rest goes out as soon as it can, whether more records come or
    /// not.
    pub fn rest_later(is_out: bool, outbox: &mut Outbox) {
        if !is_out {
            outbox.wake_at(Duration::ZERO);
        }
    }

    /// Goes back to the start of the line that was being written, to write it again whole.
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
        let mut pending = Pending {
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
        let mut pending = Pending {
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
