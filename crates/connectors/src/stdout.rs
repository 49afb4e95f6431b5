//! A sink that writes lines or JSON lines to standard output.
//!
//! ```
//! use ardea_connectors::stdout;
//! use ardea_core::Sink;
//!
//! let numbers: Sink<u64> = stdout::lines().build();
//! let pairs: Sink<(String, u64)> = stdout::json_lines().build();
//! ```
//!
//! Standard output is locked once per chunk, so lines of several writers do not mix, and a chunk is
//! written completely before the sink finishes it.
//!
//! In a job with state, the records of an epoch are written before the epoch ends; some are written
//! again after a failure.
//!
//! If the reader closes the pipe (`ardea run … | head`), the job ends with
//! [`ErrorCode::OutputClosed`], since the reader does not want the remaining output. The command
//! line treats this as a normal end.

use std::io::{self, ErrorKind, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ardea_core::{
    Delivery, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, Isolation, Ordinal,
    Outbox, Processor, Progress, Result, Sink,
};

use crate::format::{Encode, JsonLines, Lines, LossyJsonLines, NonFinite};
use crate::record_writer::{OutputBuffer, RecordWriter, Writing, writing_options};

/// Returns a sink that writes each record as a line, formatted with `Display`. A record whose text
/// has newlines is refused. The format [`Lines.multiline()`](Lines::multiline) permits newlines for
/// display: `stdout::write(Lines.multiline())`.
pub fn lines<T: Send + 'static>() -> StdoutSink<T, Lines>
where
    Lines: Encode<T>,
{
    write(Lines)
}

/// Returns a sink that writes each record as a line of JSON.
pub fn json_lines<T: Send + 'static>() -> StdoutSink<T, JsonLines>
where
    JsonLines: Encode<T>,
{
    write(JsonLines)
}

/// Returns a sink that writes records in any format.
pub fn write<T: Send + 'static, E: Encode<T>>(encoder: E) -> StdoutSink<T, E> {
    StdoutSink {
        writing: Writing::new(encoder),
        record: PhantomData,
    }
}

/// A sink that writes to standard output.
#[derive(Debug)]
pub struct StdoutSink<T, E> {
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> StdoutSink<T, E> {
    writing_options!();

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        let writing = self.writing;
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(WriteP::<T, E, Stdout>::new(
                Stdout(io::stdout()),
                &writing,
            )))
        };
        Sink::new("stdout", Arc::new(supply))
            .isolation(Isolation::Thread)
            .with_delivery(Delivery::AtLeastOnce)
    }
}

impl<T: Send + 'static> StdoutSink<T, JsonLines> {
    /// Sets the replacement for NaN and infinite floats, which JSON cannot represent. By default
    /// such a record is refused.
    pub fn non_finite(self, choice: NonFinite) -> StdoutSink<T, LossyJsonLines> {
        StdoutSink {
            writing: self.writing.map(|format| format.non_finite(choice)),
            record: PhantomData,
        }
    }
}

impl<T: Send + 'static, E: Encode<T>> From<StdoutSink<T, E>> for Sink<T> {
    fn from(sink: StdoutSink<T, E>) -> Self {
        sink.build()
    }
}

/// The number of bytes that a ready pipe accepts without blocking (`PIPE_BUF` of pipe(7)).
const PIPE_BUF: usize = 4096;

/// A writer that is locked while a chunk is written.
trait Shared: Write + AsFd + Send {
    /// Calls `work` with exclusive access to the writer.
    fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R;
}

/// Standard output without the standard library's buffer.
struct Stdout(io::Stdout);

impl Shared for Stdout {
    fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let _lock = self.0.lock();
        work(self)
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Stdout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The processor that encodes chunks and writes them in turns.
struct WriteP<T, E, W> {
    writer: W,
    outgo: RecordWriter<T, E>,
    pending: OutputBuffer,
    most: usize,
}

impl<T: Send + 'static, E: Encode<T>, W: Shared> WriteP<T, E, W> {
    fn new(writer: W, writing: &Writing<E>) -> Self {
        let regular = rustix::fs::fstat(&writer)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        let most = if regular { usize::MAX } else { PIPE_BUF };
        WriteP {
            writer,
            outgo: RecordWriter::new(writing),
            pending: OutputBuffer::default(),
            most,
        }
    }

    fn push_out(&mut self) -> Result<bool> {
        if self.pending.is_empty() {
            return Ok(true);
        }
        let WriteP {
            writer,
            pending,
            most,
            ..
        } = self;
        let outcome = writer.alone(|writer| {
            // Output printed earlier by other writers comes first.
            writer.flush()?;
            pending.push_out(writer, *most)
        });
        outcome.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Error::new(
                ErrorCode::OutputClosed,
                "the reader of standard output has gone",
            ),
            _ => Error::new(ErrorCode::WriteFailed, "cannot write to standard output")
                .because(error)
                .hint("check what it was redirected to, and the free space there"),
        })
    }
}

impl<T: Send + 'static, E: Encode<T>, W: Shared> Processor for WriteP<T, E, W> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if self.push_out()? {
            self.outgo.encode_all(inbox, &mut self.pending.bytes)?;
        }
        self.on_wake(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        OutputBuffer::wake_if_pending(self.push_out()?, outbox);
        Ok(())
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.push_out().map(Progress::done_if)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.push_out().map(Progress::done_if)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::{PipeWriter, Read};

    use ardea_testkit::ProcessorTest;

    use super::*;
    use crate::testing::{Fed, eventually};
    use ardea_core::OutboxRuntime;

    impl Shared for File {
        fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
            work(self)
        }
    }

    impl Shared for PipeWriter {
        fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
            work(self)
        }
    }

    fn piped(writer: PipeWriter) -> Fed<u64> {
        let writer = std::sync::Mutex::new(Some(writer));
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let writer = writer.lock().unwrap().take().unwrap();
            Ok(Box::new(WriteP::<u64, _, _>::new(
                writer,
                &Writing::new(Lines),
            )))
        };
        Fed::start(Sink::new("stdout", Arc::new(supply)))
    }

    #[test]
    fn each_chunk_is_out_when_it_is_taken() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut fed = piped(writer);
        fed.feed([1, 2]).unwrap();
        let mut bytes = [0; 4];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"1\n2\n");
        fed.finish().unwrap();
    }

    #[test]
    fn a_reader_that_has_gone_ends_the_job_as_cancelled() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = piped(writer).feed([1]).err().expect("an error");
        assert_eq!(error.code(), ErrorCode::OutputClosed);
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_no_call() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut fed = piped(writer);
        assert!(fed.offer(0..100_000).unwrap(), "the first chunk is encoded");
        assert!(
            !fed.offer([1]).unwrap(),
            "and the next one waits until it is out"
        );
        let read = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).map(|_| all.lines().count())
        });
        eventually("the waiting chunk is taken", || fed.again().unwrap());
        eventually("the rest goes out without more records", || {
            fed.wake().unwrap();
            fed.outbox.take_wake_at().is_none()
        });
        drop(fed);
        assert_eq!(read.join().unwrap().unwrap(), 100_001);
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let make = || {
            let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
            WriteP::<u32, _, _>::new(null, &Writing::new(Lines))
        };
        ProcessorTest::new(make).input::<u32>([1, 2, 3]).run();
    }
}
