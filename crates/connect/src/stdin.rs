//! Standard input: lines, CSV or JSON lines, until it ends.
//!
//! ```no_run
//! use ardea_connect::stdin;
//! use ardea_core::{Bounded, Source};
//!
//! let words: Source<String, Bounded> = stdin::lines().build();
//! ```
//!
//! A process has one standard input, so one source may read it at a time; a second one fails its job at the start.
//! A CSV record may span several lines, as in files.

use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{
    Bounded, Error, ErrorCode, Instance, InstanceContext, Isolation, JobSignals, Ordinal, Outbox,
    Processor, Progress, Result, Source,
};
use serde::de::DeserializeOwned;

use crate::format::{Csv, Decode, JsonLines, Lines};
use crate::intake::{Intake, READ_SIZE, Reading, reading_options};
use crate::ready::{InTurns, not_now};

/// The lines of standard input, as text.
pub fn lines() -> StdinSource<String, Lines> {
    read(Lines)
}

/// The records of standard input, CSV with a header.
pub fn csv<T: DeserializeOwned + Send + 'static>() -> StdinSource<T, Csv> {
    read(Csv::new())
}

/// The records of standard input, one JSON value a line.
pub fn json_lines<T: DeserializeOwned + Send + 'static>() -> StdinSource<T, JsonLines> {
    read(JsonLines)
}

/// The records of standard input, in any format.
pub fn read<T: Send + 'static, D: Decode<T>>(decoder: D) -> StdinSource<T, D> {
    StdinSource {
        reading: Reading::new(decoder),
        record: PhantomData,
    }
}

/// A source that reads standard input until it ends. A last line without newline counts; a job that drains reads no
/// further, and delivers what it has read.
#[derive(Debug)]
pub struct StdinSource<T, D> {
    reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> StdinSource<T, D> {
    reading_options!();

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Bounded> {
        let reading = self.reading;
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            if !instance.owns(0) {
                return Ok(Box::new(StreamP::<T, D, Stdin>::idle(&reading)));
            }
            Ok(Box::new(StreamP::<T, D, Stdin>::new(
                Stdin::claim()?,
                "stdin",
                &reading,
            )))
        };
        Source::new("stdin", Arc::new(supply)).isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<StdinSource<T, D>> for Source<T, Bounded> {
    fn from(source: StdinSource<T, D>) -> Self {
        source.build()
    }
}

static CLAIMED: AtomicBool = AtomicBool::new(false);

/// The right to read standard input, held by one source at a time. Reads past the standard library's own buffer.
struct Stdin(io::Stdin);

impl Stdin {
    fn claim() -> Result<Stdin> {
        if CLAIMED.swap(true, Ordering::AcqRel) {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "standard input is already read by another source of this process",
            )
            .hint("read it once, and branch the stream behind the source"));
        }
        Ok(Stdin(io::stdin()))
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        CLAIMED.store(false, Ordering::Release);
    }
}

impl AsFd for Stdin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

/// Reads one stream that may keep it waiting, until it ends.
struct StreamP<T, D, R> {
    reader: Option<InTurns<R>>,
    ending: bool,
    /// Whether the end of the input was read.
    is_at_end: bool,
    name: &'static str,
    intake: Intake<T, D>,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>, R: Read + AsFd + Send> StreamP<T, D, R> {
    fn new(reader: R, name: &'static str, reading: &Reading<D>) -> Self {
        let mut intake = Intake::new(reading, READ_SIZE);
        intake.begin(name);
        StreamP {
            reader: Some(InTurns(reader)),
            ending: false,
            is_at_end: false,
            name,
            intake,
            signals: Arc::default(),
        }
    }

    /// An instance with nothing to read.
    fn idle(reading: &Reading<D>) -> Self {
        StreamP {
            reader: None,
            ending: true,
            is_at_end: true,
            name: "",
            intake: Intake::new(reading, 1),
            signals: Arc::default(),
        }
    }
}

impl<T: Send + 'static, D: Decode<T>, R: Read + AsFd + Send> Processor for StreamP<T, D, R> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.signals = Arc::clone(&context.signals);
        Ok(())
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // What has been read and not delivered can't be put back.
        self.complete(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if self.signals.is_draining() {
            // As if the input had ended: what was read comes out, half a line too, since it can't be put back.
            self.intake.end();
            self.ending = true;
        }
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        let before = lane.room();
        let emptied = self.intake.deliver(&mut lane)?;
        let Some(reader) = self.reader.as_mut().filter(|_| !self.ending) else {
            return Ok(Progress::done_if(emptied));
        };
        if !emptied || lane.room() < before {
            return Ok(Progress::MADE);
        }
        match self.intake.fill(reader) {
            Ok(0) => {
                self.intake.end();
                self.ending = true;
                self.is_at_end = true;
                Ok(Progress::MADE)
            }
            Ok(_) => Ok(Progress::MADE),
            Err(error) if not_now(&error) => Ok(Progress::NONE),
            Err(error) => {
                let what = format!("cannot read {}", self.name);
                Err(Error::new(ErrorCode::ReadFailed, what)
                    .because(error)
                    .hint("check what it was redirected from"))
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    fn close(&mut self) {
        self.reader = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Write};

    use ardea_testkit::SourceTest;

    use super::*;
    use crate::testing::{Driven, signals};

    fn piped(reader: PipeReader) -> Driven<String> {
        let reader = std::sync::Mutex::new(Some(reader));
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let reader = reader.lock().unwrap().take().unwrap();
            Ok(Box::new(StreamP::new(
                reader,
                "stdin",
                &Reading::new(Lines),
            )))
        };
        Driven::start(Source::<String, Bounded>::new("stdin", Arc::new(supply)))
    }

    #[test]
    fn lines_come_as_they_are_written_and_the_last_needs_no_newline() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut driven = piped(reader);
        writer.write_all(b"a\nb\nc").unwrap();
        driven.run_until_records(2);
        drop(writer);
        assert_eq!(driven.run().unwrap().values(), ["a", "b", "c"]);
    }

    #[test]
    fn a_silent_input_does_not_hold_up_draining_or_cancelling() {
        for drain in [true, false] {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut driven = piped(reader);
            writer.write_all(b"a\nhalf").unwrap();
            driven.run_until_records(1);
            let _ = driven.step().unwrap();
            let signals = signals(&driven.context);
            if drain {
                signals.drain()
            } else {
                signals.cancel()
            }
            driven.run().unwrap();
            assert_eq!(driven.records.len(), if drain { 2 } else { 1 });
        }
    }

    #[test]
    fn a_second_reader_is_refused_until_the_first_is_gone() {
        let first = Stdin::claim().unwrap();
        assert_eq!(Stdin::claim().err().unwrap().code(), ErrorCode::InvalidJob);
        drop(first);
        assert!(Stdin::claim().is_ok());
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let make = || {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"1\n2\nx\n3").unwrap();
            StreamP::<u32, _, _>::new(reader, "stdin", &Reading::new(JsonLines))
        };
        SourceTest::new(make)
            .output::<u32>([1, 2, 3])
            .configure(|test| test.expect_dead_letters(1))
            .run();
    }
}
