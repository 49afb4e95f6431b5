//! A source that reads standard input: lines, CSV or JSON lines, until it ends.
//!
//! ```no_run
//! use ardea_connectors::stdin;
//! use ardea_core::{Bounded, Source};
//!
//! let words: Source<String, Bounded> = stdin::lines().build();
//! ```
//!
//! A process has one standard input, which one source at a time may read; a second source fails its
//! job at the start. A CSV record may span several lines, as in files, and gzip and zstd are
//! detected by the first bytes.

use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{
    Bounded, Error, ErrorCode, Instance, InstanceContext, Isolation, JobSignals, Ordinal, Outbox,
    Processor, Progress, Result, Source, SourceControl,
};
use serde::de::DeserializeOwned;

use crate::decompressed::{Damage, Decompressed, damage};
use crate::fd_poll::{CancellablePoll, not_now};
use crate::format::{Csv, Decode, JsonLines, Lines};
use crate::record_reader::{Intake, READ_SIZE, Reading, reading_options};

/// Returns a source of the lines of standard input, as text.
pub fn lines() -> StdinSource<String, Lines> {
    read(Lines)
}

/// Returns a source of the records of standard input: CSV with a header.
pub fn csv<T: DeserializeOwned + Send + 'static>() -> StdinSource<T, Csv> {
    read(Csv::new())
}

/// Returns a source of the records of standard input: one JSON value per line.
pub fn json_lines<T: DeserializeOwned + Send + 'static>() -> StdinSource<T, JsonLines> {
    read(JsonLines)
}

/// Returns a source of the records of standard input in any format.
pub fn read<T: Send + 'static, D: Decode<T>>(decoder: D) -> StdinSource<T, D> {
    StdinSource {
        reading: Reading::new(decoder),
        record: PhantomData,
    }
}

/// A source that reads standard input until it ends.
///
/// * A last line without newline counts.
/// * Gzip and zstd are decompressed. If the compressed data is truncated or corrupt, all complete
///   lines before the damage are emitted; then the job fails, unless [`on_damage`](Self::on_damage)
///   is `Keep`.
/// * A draining job stops reading and emits the data already read.
/// * A job with state cannot use this source, since the data cannot be read again.
#[derive(Debug)]
pub struct StdinSource<T, D> {
    reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> StdinSource<T, D> {
    reading_options!();

    /// Builds the source for a pipeline.
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

/// Returns true if a source of this process reads standard input. The program must then not read
/// user input from it.
pub fn is_claimed() -> bool {
    CLAIMED.load(Ordering::Acquire)
}

/// Exclusive access to standard input for one source at a time. Bypasses the standard library's
/// buffer.
struct Stdin(io::Stdin);

impl Stdin {
    fn claim() -> Result<Stdin> {
        if CLAIMED.swap(true, Ordering::AcqRel) {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "standard input is already read by another source of this process",
            )
            .hint("read it once, and branch the stream after the source"));
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

/// The state of the reader.
enum ReaderState {
    /// Reading until the end.
    Reading,
    /// Emitting the last complete lines of an input that cannot be read any further.
    Broken(Damage),
    /// Emitting the last records.
    Ending,
}

/// The processor that reads one stream, whose reads may wait, until it ends.
struct StreamP<T, D, R: Read + AsFd> {
    reader: Option<Decompressed<CancellablePoll<R>>>,
    stage: ReaderState,
    /// True if the end of the input was read; false if reading stopped because the job drained.
    is_at_end: bool,
    intake: Intake<T, D>,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>, R: Read + AsFd + Send> StreamP<T, D, R> {
    fn new(reader: R, name: &'static str, reading: &Reading<D>) -> Self {
        let mut intake = Intake::new(reading, READ_SIZE);
        intake.begin(name);
        StreamP {
            reader: Some(Decompressed::new(CancellablePoll(reader))),
            stage: ReaderState::Reading,
            is_at_end: false,
            intake,
            signals: Arc::default(),
        }
    }

    /// Creates an instance that reads nothing.
    fn idle(reading: &Reading<D>) -> Self {
        StreamP {
            reader: None,
            stage: ReaderState::Ending,
            is_at_end: true,
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

    fn unsaved_state(&self) -> Option<&'static str> {
        // An instance with nothing to read loses no data.
        self.reader.as_ref().map(|_| {
            "data read from standard input, which can't be read again (write it to a file first, and read that)"
        })
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let draining = self.signals.is_draining();
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        let before = lane.room();
        if !self.intake.deliver(&mut lane)? || lane.room() < before {
            return Ok(Progress::MADE);
        }
        if let Some(damage) = self.intake.bad_header() {
            self.stage = ReaderState::Broken(damage.clone());
        }
        let reader = match (&mut self.stage, &mut self.reader) {
            (ReaderState::Reading, Some(reader)) => reader,
            (ReaderState::Broken(damage), _) => {
                self.intake.damage(damage)?;
                return Ok(Progress::DONE);
            }
            (ReaderState::Ending, _) | (_, None) => return Ok(Progress::DONE),
        };
        if draining {
            // Treated as the end of the input: even a partial line is emitted, since it cannot be
            // put back.
            reader.halt();
        }
        match self.intake.fill(reader) {
            Ok(0) => {
                self.intake.end();
                self.stage = ReaderState::Ending;
                self.is_at_end = !draining;
            }
            Ok(_) => {}
            Err(error) if not_now(&error) => return Ok(Progress::NONE),
            Err(error) => {
                self.stage = ReaderState::Broken(damage(&error));
                self.is_at_end = !draining;
            }
        }
        Ok(Progress::MADE)
    }

    fn close(&mut self) {
        self.reader = None;
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: Send + 'static, D: Decode<T>, R: Read + AsFd + Send> SourceControl for StreamP<T, D, R> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // Data already read cannot be put back.
        self.complete(outbox)
    }

    fn is_at_end(&self) -> bool {
        self.is_at_end
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Write};

    use ardea_testkit::SourceTest;

    use super::*;
    use crate::OnDamage;
    use crate::testing::{Driven, gzip, signals, zstd};

    fn piped(reader: PipeReader) -> Driven<String> {
        reading(reader, OnDamage::Keep)
    }

    fn reading(reader: PipeReader, on_damage: OnDamage) -> Driven<String> {
        let reader = std::sync::Mutex::new(Some(reader));
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let reader = reader.lock().unwrap().take().unwrap();
            let reading = Reading {
                on_damage: Some(on_damage),
                ..Reading::new(Lines)
            };
            Ok(Box::new(StreamP::new(reader, "stdin", &reading)))
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

    fn piped_bytes(bytes: Vec<u8>) -> Driven<String> {
        let (reader, mut writer) = io::pipe().unwrap();
        let driven = piped(reader);
        // More than a pipe buffers, so it must be written while it is read.
        std::thread::spawn(move || writer.write_all(&bytes));
        driven
    }

    fn numbers() -> Vec<String> {
        let number = |n: u64| format!("line {n} {}", n * 7919 % 104_729);
        (0..50_000).map(number).collect()
    }

    #[test]
    fn what_comes_compressed_is_known_by_its_first_bytes_and_unpacked() {
        let lines = numbers();
        let text = lines.join("\n").into_bytes();
        for bytes in [gzip(&text), zstd(&text), text] {
            let mut driven = piped_bytes(bytes);
            assert!(driven.run().unwrap().values().into_iter().eq(&lines));
            assert!(driven.letters().is_empty());
        }
    }

    #[test]
    fn an_input_of_hardly_a_byte_is_plain_unless_it_is_a_whole_magic() {
        let cases: [(&[u8], &[&str], usize); 7] = [
            (b"", &[], 0),
            (b"a", &["a"], 0),
            (b"\n", &[""], 0),
            (b"ab", &["ab"], 0),
            (&[0x1f], &["\u{1f}"], 0),
            (&[0x1f, 0x8b], &[], 1),
            (&[0x28, 0xb5], &[], 1),
        ];
        for (bytes, expected, letters) in cases {
            let mut driven = piped_bytes(bytes.to_vec());
            assert_eq!(driven.run().unwrap().values(), expected, "{bytes:?}");
            assert_eq!(driven.letters().len(), letters, "{bytes:?}");
        }
    }

    #[test]
    fn of_compressed_input_that_is_cut_short_its_whole_lines_can_be_kept() {
        let lines = numbers();
        let text = lines.join("\n").into_bytes();
        for packed in [gzip(&text), zstd(&text)] {
            let mut driven = piped_bytes(packed[..packed.len() / 2].to_vec());
            driven.run().unwrap();
            let got = driven.values();
            assert!(got.len() > 1000, "{} lines", got.len());
            assert!(got.iter().copied().eq(&lines[..got.len()]));
            let letters = driven.letters();
            assert_eq!(letters.len(), 1, "{letters:?}");
            assert_eq!(letters[0].0, format!("stdin:{}", got.len() + 1));
            assert!(letters[0].1.contains("cut off"), "{letters:?}");

            let (reader, mut writer) = io::pipe().unwrap();
            let mut strict = reading(reader, OnDamage::Fail);
            std::thread::spawn(move || writer.write_all(&packed[..packed.len() / 2]));
            let error = strict.run().err().expect("an error");
            assert_eq!(error.code(), ErrorCode::ReadFailed);
            assert!(error.to_string().contains("lines had been read"), "{error}");
        }
    }

    #[test]
    fn draining_ends_compressed_input_in_good_order_with_what_was_read_of_it() {
        let lines = numbers();
        let text = lines.join("\n").into_bytes();
        for packed in [gzip(&text), zstd(&text)] {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut driven = piped(reader);
            // The pipe stays open: this is not the end.
            writer.write_all(&packed[..60_000]).unwrap();
            driven.run_until_records(1);
            signals(&driven.context).drain();
            driven.run().unwrap();
            let got = driven.values();
            let whole = &got[..got.len() - 1];
            assert!(whole.iter().copied().eq(&lines[..whole.len()]));
            assert!(lines[whole.len()].starts_with(got[whole.len()].as_str()));
            assert!(driven.letters().is_empty(), "{:?}", driven.letters());
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
