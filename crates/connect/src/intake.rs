//! The way in: bytes of one stream become records on a lane.

use std::io::{self, Read};
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, InstanceContext, JobSignals, Lane, OnError, Ordinal, OriginRun, Outbox, Progress,
    RecordGuard, Result, Timestamp,
};

use crate::format::Decode;
use crate::framer::{Fault, Framer};
use crate::place::Place;

/// The longest frame that is taken unless the source says otherwise: 16 MiB.
pub(crate) const DEFAULT_MAX_LINE: usize = 16 << 20;

/// How much is read at a time from files and standard input.
pub(crate) const READ_SIZE: usize = 256 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a source decodes: the part of its settings that every byte source has.
#[derive(Clone, Debug)]
pub(crate) struct Reading<D> {
    pub decoder: D,
    pub on_error: OnError,
    pub max_line: usize,
}

impl<D> Reading<D> {
    pub fn new(decoder: D) -> Self {
        Reading {
            decoder,
            on_error: OnError::default(),
            max_line: DEFAULT_MAX_LINE,
        }
    }

    pub fn decode<E>(self, decoder: E) -> Reading<E> {
        Reading {
            decoder,
            on_error: self.on_error,
            max_line: self.max_line,
        }
    }
}

/// Declares the builder methods that every byte source has; the builder keeps a `reading: Reading<D>`.
macro_rules! reading_options {
    () => {
        /// Sets what becomes of a record that can't be decoded: kept aside with its position, bytes and reason
        /// (the default), dropped and counted, or the job fails.
        pub fn on_error(mut self, on_error: ardea_core::OnError) -> Self {
            self.reading.on_error = on_error;
            self
        }

        /// Sets the longest line taken, in bytes without the newline. A longer one is treated as undecodable: its
        /// first 4 KiB are kept for its dead letter, memory stays bounded, and reading goes on behind its newline.
        pub fn max_line(mut self, bytes: usize) -> Self {
            self.reading.max_line = bytes;
            self
        }
    };
}
pub(crate) use reading_options;

/// What a source that reads one stream is to do in a call, once it has delivered what it has.
pub(crate) enum Turn {
    /// Return this: its records come first, or the job is being cancelled.
    Return(Progress),
    /// End: the job drains, and all whole records are out.
    End,
    /// Read on.
    Read,
}

/// Which lines the records came from that have been emitted.
#[derive(Default)]
struct Trail {
    /// How many.
    emitted: u64,
    /// The line that continues the run at hand.
    next_line: u64,
    /// Those that are not known to the steps behind.
    runs: Vec<OriginRun>,
}

impl Trail {
    #[inline]
    fn note(&mut self, stream: &Arc<str>, line: u64) {
        if line != self.next_line {
            self.runs.push(OriginRun {
                position: self.emitted,
                stream: Arc::clone(stream),
                line,
            });
        }
        self.next_line = line + 1;
        self.emitted += 1;
    }
}

/// Cuts the bytes of one stream into frames, decodes them, and knows where each came from.
pub(crate) struct Intake<T, D> {
    framer: Framer,
    decoder: D,
    bad: BadRecords,
    signals: Arc<JobSignals>,
    /// The stream's name: a path, a peer.
    origin: Arc<str>,
    trail: Option<Trail>,
    /// The number of the line that comes next, from one.
    line: u64,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> Intake<T, D> {
    pub fn new(reading: &Reading<D>, read_size: usize) -> Self {
        let decoder = reading.decoder.clone();
        Intake {
            framer: Framer::new(decoder.framing(), reading.max_line, read_size),
            decoder,
            bad: BadRecords::new(reading.on_error),
            signals: Arc::default(),
            origin: Arc::from(""),
            trail: None,
            line: 1,
            record: PhantomData,
        }
    }

    pub fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
        self.signals = Arc::clone(&context.signals);
    }

    /// As [`attach`](Self::attach), for the only intake of a source: the steps behind it can learn where a record came from.
    pub fn attach_only(&mut self, context: &InstanceContext) {
        self.attach(context);
        if context.instance.parallelism == 1 {
            self.trail = Some(Trail::default());
        }
    }

    /// A new stream begins.
    pub fn begin(&mut self, origin: impl Into<Arc<str>>) {
        self.origin = origin.into();
        if let Some(trail) = &mut self.trail {
            trail.next_line = 0;
        }
        self.line = 1;
        self.framer.begin();
        self.decoder.begin();
    }

    /// A stream goes on that an earlier life has read up to this place; `reader` reads it from its beginning. Where the format needs that, it
    /// is given what it had been given up to its first record.
    pub fn begin_at(
        &mut self,
        origin: impl Into<Arc<str>>,
        place: &Place,
        reader: &mut (impl Read + ?Sized),
    ) -> io::Result<()> {
        self.begin(origin);
        if self.needs_beginning() {
            self.prime(place.offset, reader)?;
        }
        self.framer.begin_at(place);
        self.line = place.line;
        Ok(())
    }

    /// Gives the decoder the frames of a stream's beginning, before `end`, up to the first that is a record.
    fn prime(&mut self, end: u64, reader: &mut (impl Read + ?Sized)) -> io::Result<()> {
        let mut is_all = false;
        loop {
            while self.framer.offset() < end
                && let Some(frame) = self.framer.next()
            {
                let line = self.line;
                self.line += frame.lines;
                let is_bad = frame.fault.is_some();
                if !is_bad && !matches!(self.decoder.decode(content(frame.bytes, line)), Ok(None)) {
                    return Ok(());
                }
            }
            if is_all || self.framer.offset() >= end {
                return Ok(());
            }
            is_all = self.framer.fill(reader)? == 0;
            if is_all {
                self.framer.end();
            }
        }
    }

    /// Where the next record begins: all before it have been delivered, or dealt with otherwise.
    pub fn place(&self) -> Place {
        self.framer.place(self.line)
    }

    /// Whether the format can only be read from a stream's beginning.
    pub fn needs_beginning(&self) -> bool {
        self.decoder.needs_beginning()
    }

    /// Reads once; for when [`deliver`](Self::deliver) wants more. Zero means the end.
    pub fn fill(&mut self, reader: &mut (impl Read + ?Sized)) -> io::Result<usize> {
        self.framer.fill(reader)
    }

    /// The stream has ended in good order: a last line without newline is delivered too.
    pub fn end(&mut self) {
        self.framer.end();
    }

    /// Delivers what is there, and says how to go on: the beginning of a source's `complete`, and of its `on_drain`, as what has been
    /// read and not delivered can't be put back.
    pub fn turn(&mut self, outbox: &mut Outbox) -> Result<Turn> {
        if self.signals.is_cancelled() {
            return Ok(Turn::Return(Progress::DONE));
        }
        let is_draining = self.signals.is_draining();
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Turn::Return(Progress::NONE));
        }
        let before = lane.room();
        let emptied = self.deliver(&mut lane)?;
        Ok(match (emptied, is_draining) {
            (false, _) => Turn::Return(Progress::MADE),
            (true, true) => Turn::End,
            // What came out is not to wait for the next read.
            (true, false) if lane.room() < before => Turn::Return(Progress::MADE),
            (true, false) => Turn::Read,
        })
    }

    /// Decodes frames into the lane while it has room. True once no whole frame is left: more bytes are wanted.
    pub fn deliver(&mut self, lane: &mut Lane<'_, T>) -> Result<bool> {
        let emptied = self.decode(lane);
        if let Some(trail) = self.trail.as_mut().filter(|trail| !trail.runs.is_empty()) {
            let context = self.bad.context();
            context.origins.add(&context.vertex, trail.runs.drain(..));
        }
        emptied
    }

    fn decode(&mut self, lane: &mut Lane<'_, T>) -> Result<bool> {
        let mut room = lane.room();
        let mut guard = RecordGuard::new();
        while room > 0 {
            let Some(frame) = self.framer.next() else {
                return Ok(true);
            };
            let line = self.line;
            self.line += frame.lines;
            let reason = match frame.fault {
                None => match self.decoder.decode(content(frame.bytes, line)) {
                    Ok(Some(record)) => {
                        lane.push(record, Timestamp::MIN);
                        if let Some(trail) = &mut self.trail {
                            trail.note(&self.origin, line);
                        }
                        room -= 1;
                        guard.advance();
                        continue;
                    }
                    Ok(None) => continue,
                    Err(reason) => reason,
                },
                Some(Fault::Unclosed) => "a quoted field is not closed".to_string(),
                Some(Fault::Overlong(bytes)) => {
                    format!("a line of {bytes} bytes is over the limit (`max_line`)")
                }
            };
            let origin = &self.origin;
            self.bad.report(
                || format!("{origin}:{line}"),
                || frame.bytes.to_vec(),
                reason,
            )?;
        }
        Ok(false)
    }

    /// The stream broke off, when all whole frames have been delivered: half a line is a bad record. If there is none,
    /// the break itself is reported only if `always`.
    pub fn break_off(&mut self, reason: &str, always: bool) -> Result<()> {
        let partial = self.framer.take_partial();
        if partial.is_none() && !always {
            return Ok(());
        }
        let (origin, line) = (&self.origin, self.line);
        self.bad.report(
            || format!("{origin}:{line}"),
            || partial.unwrap_or_default(),
            reason,
        )
    }
}

/// A frame as the decoder sees it: without the byte order mark of the stream and the line's carriage return.
#[inline]
fn content(mut frame: &[u8], line: u64) -> &[u8] {
    if line == 1 {
        frame = frame.strip_prefix(BYTE_ORDER_MARK).unwrap_or(frame);
    }
    frame.strip_suffix(b"\r").unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Lines;

    #[test]
    fn marks_and_carriage_returns_are_not_part_of_the_text() {
        let mut intake = Intake::new(&Reading::new(Lines), 64);
        intake.begin("x");
        intake
            .fill(&mut &b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\n\xff\n"[..])
            .unwrap();
        let mut outbox = Outbox::new(1, 10);
        let mut lane = outbox.lane(Ordinal::FIRST).unwrap();
        assert!(intake.deliver(&mut lane).unwrap());
        assert_eq!(lane.rows().values(), ["a", "\u{feff}b"]);
        assert_eq!(intake.line, 4);
    }
}
