//! Decoding of the bytes of a stream into records.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    BadRecords, Error, ErrorCode, InstanceContext, JobSignals, OnError, Ordinal, OriginLine,
    OriginRun, Outbox, Progress, RecordGuard, Result,
};

use crate::OnDamage;
use crate::decompressed::Damage;
use crate::files::{BlockPositions, FileBlocks};
use crate::format::Decode;
use crate::framer::{BYTE_ORDER_MARK, Framer, Limits};
use crate::record_output::RecordOutput;
use crate::stream_position::{StreamPosition, TrailingBytes};

/// The default maximum length of a frame: 16 MiB.
pub(crate) const DEFAULT_MAX_LINE: usize = 16 << 20;

/// The default maximum length of a quoted field that spans lines: 1 MiB.
const DEFAULT_MAX_QUOTED: usize = 1 << 20;

/// The size of a read from files and standard input.
pub(crate) const READ_SIZE: usize = 256 << 10;

/// The decoding settings common to all byte sources.
#[derive(Clone, Debug)]
pub(crate) struct Reading<D> {
    pub decoder: D,
    pub on_error: OnError,
    /// The setting for damage; `None` for the source's own default.
    pub on_damage: Option<OnDamage>,
    pub max_line: usize,
    pub max_quoted: usize,
}

impl<D> Reading<D> {
    pub fn new(decoder: D) -> Self {
        Reading {
            decoder,
            on_error: OnError::default(),
            on_damage: None,
            max_line: DEFAULT_MAX_LINE,
            max_quoted: DEFAULT_MAX_QUOTED,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            frame: self.max_line,
            quoted: self.max_quoted,
        }
    }

    pub fn decode<E>(self, decoder: E) -> Reading<E> {
        Reading {
            decoder,
            on_error: self.on_error,
            on_damage: self.on_damage,
            max_line: self.max_line,
            max_quoted: self.max_quoted,
        }
    }
}

/// Declares the builder methods common to all byte sources; the builder has a field `reading:
/// Reading<D>`.
macro_rules! reading_options {
    () => {
        /// Sets the treatment of a record that cannot be decoded. By default such a record becomes
        /// a dead letter with its position, bytes and reason.
        pub fn on_error(mut self, on_error: ardea_core::OnError) -> Self {
            self.reading.on_error = on_error;
            self
        }

        /// Sets the treatment of an input that cannot be read to its end: the job fails, or the
        /// records before the damage are retained. See [`OnDamage`](crate::OnDamage).
        pub fn on_damage(mut self, on_damage: crate::OnDamage) -> Self {
            self.reading.on_damage = Some(on_damage);
            self
        }

        /// Sets the maximum line length, in bytes without the newline. A longer line is a bad
        /// record: its first 4 KiB are retained for the dead letter, and reading continues after
        /// its newline.
        pub fn max_line(mut self, bytes: usize) -> Self {
            self.reading.max_line = bytes;
            self
        }

        /// Sets the maximum length in bytes of a quoted CSV field that spans lines; 1 MiB by
        /// default, and at most [`max_line`](Self::max_line). A longer quoted field counts as one
        /// with a stray quote: its record becomes a bad record, and reading continues with the next
        /// plausible line.
        pub fn max_quoted(mut self, bytes: usize) -> Self {
            self.reading.max_quoted = bytes;
            self
        }
    };
}
pub(crate) use reading_options;

/// The next action of a source that reads one stream, after it has emitted its records.
pub(crate) enum NextAction {
    /// Return the contained progress: records were emitted, or the job is being cancelled.
    Return(Progress),
    /// End: the job is draining, and all complete records were emitted.
    End,
    /// Read more bytes.
    Read,
}

/// The lines from which the emitted records were decoded.
#[derive(Default)]
struct LineOrigins {
    /// The number of emitted records.
    emitted: u64,
    /// The number of the line that would continue the latest run of consecutive lines.
    next_line: u64,
    /// The runs not yet reported to the downstream operators.
    runs: Vec<OriginRun>,
}

impl LineOrigins {
    #[inline]
    fn note(&mut self, stream: &Arc<str>, line: u64, number: impl FnOnce() -> OriginLine) {
        if line != self.next_line {
            self.runs.push(OriginRun {
                position: self.emitted,
                stream: Arc::clone(stream),
                line: number(),
            });
        }
        self.next_line = line + 1;
        self.emitted += 1;
    }
}

/// The hint for an invalid header.
pub(crate) const BAD_HEADER_HINT: &str = "the header has to be a line in UTF-8, and lines have to end in LF or CR LF: convert the input, or leave it out: on_damage(OnDamage::Keep)";

/// Returns the damage of an invalid header.
fn bad_header(line: u64, reason: &str) -> Damage {
    Damage::permanent(format!(
        "its header, in line {line}, can't be read: {reason}"
    ))
}

/// An invalid header, after which nothing can be decoded.
struct BadHeader {
    damage: Damage,
    raw: Vec<u8>,
}

/// The input of a source: splits the bytes of a stream into frames, decodes them, and tracks their
/// positions.
pub(crate) struct Intake<T, D> {
    framer: Framer,
    decoder: D,
    bad: BadRecords,
    /// Dead letters for damage; unaffected by the setting for single records.
    damaged: BadRecords,
    on_damage: OnDamage,
    /// The invalid header of the stream, if any.
    bad_header: Option<BadHeader>,
    signals: Arc<JobSignals>,
    /// The name of the stream: a path or a peer.
    origin: Arc<str>,
    trail: Option<LineOrigins>,
    /// The number of the next line, from one. If the stream consists of blocks of a file, only the
    /// first line of the file has the number one, and [`BlockPositions`] has the others.
    line: u64,
    /// The positions in the file of a stream that consists of blocks of this file.
    blocks: Option<Arc<BlockPositions>>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> Intake<T, D> {
    pub fn new(reading: &Reading<D>, read_size: usize) -> Self {
        let decoder = reading.decoder.clone();
        Intake {
            framer: Framer::new(decoder.framing(), reading.limits(), read_size),
            decoder,
            bad: BadRecords::new(reading.on_error),
            damaged: BadRecords::new(OnError::DeadLetter),
            on_damage: reading.on_damage.unwrap_or_default(),
            bad_header: None,
            signals: Arc::default(),
            origin: Arc::from(""),
            trail: None,
            line: 1,
            blocks: None,
            record: PhantomData,
        }
    }

    pub fn attach(&mut self, context: &InstanceContext) {
        self.bad.attach(context);
        self.damaged.attach(context);
        self.signals = Arc::clone(&context.signals);
    }

    /// Like [`attach`](Self::attach), for the only intake of an instance: downstream operators can
    /// then look up the origin of a record.
    pub fn attach_only(&mut self, context: &InstanceContext) {
        self.attach(context);
        self.trail = Some(LineOrigins::default());
    }

    pub fn decoder(&mut self) -> &mut D {
        &mut self.decoder
    }

    /// Returns the number of blocks of a file whose records have not all been emitted, and the
    /// memory for bytes of the stream.
    #[cfg(test)]
    pub fn in_flight(&self) -> (usize, usize) {
        let blocks = self.blocks.as_ref().map_or(0, |blocks| blocks.in_flight());
        (blocks, self.framer.room())
    }

    /// Starts a new stream.
    pub fn begin(&mut self, origin: impl Into<Arc<str>>) {
        self.origin = origin.into();
        if let Some(trail) = &mut self.trail {
            trail.next_line = 0;
        }
        self.line = 1;
        self.blocks = None;
        self.bad_header = None;
        self.framer.begin();
        self.decoder.begin();
    }

    /// Starts a new stream in the middle of a file, after the bytes `before`.
    pub fn begin_behind(&mut self, origin: impl Into<Arc<str>>, before: &TrailingBytes) {
        self.begin(origin);
        self.framer.begin_behind(before);
    }

    /// Continues a stream at the position `place` of an earlier attempt. If the format needs the
    /// beginning, the decoder first receives the frames that `reader` reads from there, up to the
    /// first record.
    pub fn begin_at(
        &mut self,
        origin: impl Into<Arc<str>>,
        place: &StreamPosition,
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

    /// Starts the stream of an instance's blocks of a file. `reader` reads the file from its
    /// beginning, as in [`begin_at`](Self::begin_at).
    pub fn begin_blocks(
        &mut self,
        origin: impl Into<Arc<str>>,
        blocks: Arc<BlockPositions>,
        reader: &mut (impl Read + ?Sized),
    ) -> io::Result<()> {
        let place = StreamPosition {
            offset: blocks.start(),
            line: if blocks.start() == 0 { 1 } else { 2 },
            before: Vec::new(),
        };
        self.begin_at(origin, &place, reader)?;
        self.blocks = Some(blocks);
        Ok(())
    }

    /// Passes the first frames of a stream before `end` to the decoder, up to the first record.
    fn prime(&mut self, end: u64, reader: &mut (impl Read + ?Sized)) -> io::Result<()> {
        let mut is_all = false;
        loop {
            while self.framer.offset() < end
                && let Some(frame) = self.framer.next()
            {
                let line = self.line;
                self.line += frame.lines;
                if frame.fault.is_none() {
                    match self.decoder.decode_beginning(content(frame.bytes, line)) {
                        Ok(false) => {}
                        Err(reason) if self.decoder.awaits_header() => {
                            return Err(io::Error::other(bad_header(line, &reason)));
                        }
                        Ok(true) | Err(_) => return Ok(()),
                    }
                }
                self.framer.expect_fields(self.decoder.fields());
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

    /// Returns the position of the next record. All records before it were emitted or reported.
    pub fn place(&self) -> StreamPosition {
        if self.bad_header.is_some() {
            // The bad header was removed from the framer but not handled: the stream restarts.
            return TrailingBytes::default().place(1);
        }
        self.framer.place(self.line)
    }

    /// Returns the blocks after the last emitted record, if the stream consists of blocks.
    pub fn unread_blocks(&self) -> Option<FileBlocks> {
        let place = self.place();
        Some(self.blocks.as_ref()?.unread(place.offset, &place.before))
    }

    /// Returns true if the format can only be decoded from the beginning of a stream.
    pub fn needs_beginning(&self) -> bool {
        self.decoder.needs_beginning()
    }

    /// Reads once from `reader`; called when [`deliver`](Self::deliver) returns true. Returns the
    /// number of bytes, zero at the end of the stream.
    pub fn fill(&mut self, reader: &mut (impl Read + ?Sized)) -> io::Result<usize> {
        if let Some(blocks) = &self.blocks {
            blocks.advance(self.framer.offset());
            // The next line may be in another block.
            if let Some(trail) = &mut self.trail {
                trail.next_line = 0;
            }
        }
        self.framer.fill(reader)
    }

    /// Marks the orderly end of the stream: a last line without newline is emitted too.
    pub fn end(&mut self) {
        self.framer.end();
    }

    /// Emits the available records and returns the next action. Sources call this method first in
    /// `complete` and in `on_drain`, since data already read cannot be put back.
    pub fn turn(&mut self, outbox: &mut Outbox) -> Result<NextAction> {
        if self.signals.is_cancelled() {
            return Ok(NextAction::Return(Progress::DONE));
        }
        let is_draining = self.signals.is_draining();
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(NextAction::Return(Progress::NONE));
        }
        let before = lane.room();
        let emptied = self.deliver(&mut lane)?;
        Ok(match (emptied, is_draining) {
            (false, _) => NextAction::Return(Progress::MADE),
            (true, true) => NextAction::End,
            // Emitted records must not wait for the next read.
            (true, false) if lane.room() < before => NextAction::Return(Progress::MADE),
            (true, false) => NextAction::Read,
        })
    }

    /// Decodes frames into the output while it has room. Returns true when no complete frame is
    /// left: more bytes are needed, unless the [header](Self::bad_header) is invalid.
    pub fn deliver(&mut self, output: &mut impl RecordOutput<T>) -> Result<bool> {
        let emptied = self.decode(output);
        if let Some(trail) = self.trail.as_mut().filter(|trail| !trail.runs.is_empty()) {
            let context = self.bad.context();
            let runs = trail.runs.drain(..);
            context.origins.add(&context.vertex, context.instance, runs);
        }
        emptied
    }

    fn decode(&mut self, output: &mut impl RecordOutput<T>) -> Result<bool> {
        let mut room = output.room();
        let mut guard = RecordGuard::new();
        if self.bad_header.is_some() {
            return Ok(true);
        }
        while room > 0 {
            let offset = self.framer.offset();
            let Some(frame) = self.framer.next() else {
                return Ok(true);
            };
            let line = self.line;
            self.line += frame.lines;
            let reason = match frame.fault {
                None => match self.decoder.decode(content(frame.bytes, line)) {
                    Ok(Some(record)) => {
                        output.push(record);
                        if let Some(trail) = &mut self.trail {
                            trail.note(&self.origin, line, || match &self.blocks {
                                None => OriginLine::Number(line),
                                Some(blocks) => blocks.origin_line(offset),
                            });
                        }
                        room -= 1;
                        guard.advance();
                        continue;
                    }
                    Ok(None) => {
                        self.framer.expect_fields(self.decoder.fields());
                        continue;
                    }
                    Err(reason) => reason,
                },
                Some(fault) => fault.to_string(),
            };
            if self.decoder.awaits_header() {
                self.line = line;
                self.bad_header = Some(BadHeader {
                    damage: bad_header(line, &reason),
                    raw: frame.bytes.to_vec(),
                });
                return Ok(true);
            }
            let location = || match &self.blocks {
                None => format!("{}:{line}", self.origin),
                Some(blocks) => blocks.location(&self.origin, offset),
            };
            self.bad.report(location, || frame.bytes.to_vec(), reason)?;
        }
        Ok(false)
    }

    /// Returns the damage of an invalid header; nothing after it is decoded.
    pub fn bad_header(&self) -> Option<&Damage> {
        self.bad_header.as_ref().map(|header| &header.damage)
    }

    /// Returns true if there are bytes after the last complete record.
    pub fn has_partial(&self) -> bool {
        self.bad_header.is_some() || self.framer.has_partial()
    }

    fn take_partial(&mut self) -> Option<Vec<u8>> {
        let partial = self.framer.take_partial();
        match self.bad_header.take() {
            Some(header) => Some(header.raw),
            None => partial,
        }
    }

    /// Reports the incomplete record at the end of the stream, if any, as a bad record.
    pub fn report_partial(&mut self, reason: &str) -> Result<()> {
        let Some(partial) = self.take_partial() else {
            return Ok(());
        };
        let (origin, line) = (&self.origin, self.line);
        self.bad
            .report(|| format!("{origin}:{line}"), || partial, reason)
    }

    /// Reports that a part of an input is not read, independent of the present stream.
    pub fn report_loss(&self, origin: &str, reason: String) -> Result<()> {
        // Standard error may be closed; the dead letter has the same text.
        let _ = writeln!(io::stderr().lock(), "ardea: {origin}: {reason}");
        self.damaged.report(|| origin.to_string(), Vec::new, reason)
    }

    /// Handles damage after all complete frames before it were emitted.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if damage fails the job.
    pub fn damage(&mut self, damage: &Damage) -> Result<()> {
        let reason = &damage.reason;
        let (origin, offset, line) = (Arc::clone(&self.origin), self.framer.offset(), self.line);
        let (location, read) = match &self.blocks {
            None => (
                format!("{origin}:{line}"),
                format!("{} lines had been read, {offset} bytes", line - 1),
            ),
            Some(blocks) => {
                let reached = blocks.file_offset(offset);
                let read = format!(
                    "the lines of one of several instances up to byte {reached} had been read"
                );
                (blocks.location(&origin, offset), read)
            }
        };
        if self.on_damage == OnDamage::Fail {
            let what = format!("cannot read {origin} to its end");
            let hint = match self.bad_header {
                Some(_) => BAD_HEADER_HINT,
                None => {
                    "restore the input, or keep the records before the damage: on_damage(OnDamage::Keep)"
                }
            };
            let error = Error::new(ErrorCode::ReadFailed, what)
                .because(format!("{reason}; {read}"))
                .hint(hint);
            return Err(match damage.is_permanent {
                true => error.permanent(),
                false => error,
            });
        }
        // Standard error may be closed; the dead letter has the same text.
        let _ = writeln!(
            io::stderr().lock(),
            "ardea: {origin} can't be read to its end: {reason}; {read}, and are kept"
        );
        let partial = self.take_partial();
        self.damaged.report(
            || location,
            || partial.unwrap_or_default(),
            format!("{reason}; {read}"),
        )
    }
}

/// Returns a frame without the byte order mark of the stream and the carriage return of the line.
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
    use crate::format::{Csv, JsonLines, Lines};

    /// Decodes a stream byte by byte, polling for records after each byte.
    fn byte_by_byte<T: Send + 'static, D: Decode<T>>(decoder: D, bytes: &[u8]) -> Vec<T> {
        let mut intake = Intake::new(&Reading::new(decoder), 64);
        intake.begin("x");
        let mut outbox = Outbox::new(1, 10);
        let mut lane = outbox.lane(Ordinal::FIRST).unwrap();
        for byte in bytes {
            intake.fill(&mut &[*byte][..]).unwrap();
            assert!(intake.deliver(&mut lane).unwrap());
        }
        intake.end();
        assert!(intake.deliver(&mut lane).unwrap());
        assert!(intake.bad_header().is_none());
        assert_eq!(intake.bad.context().metrics.snapshot().bad, 0);
        let count = lane.rows().len();
        lane.rows()
            .drain_front(count)
            .map(|(value, _)| value)
            .collect()
    }

    #[test]
    fn a_byte_order_mark_that_comes_byte_by_byte_is_left_out_and_one_alone_is_no_record() {
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct Row {
            a: u8,
        }
        let marked = |text: &str| format!("\u{feff}{text}").into_bytes();
        assert_eq!(byte_by_byte(Lines, &marked("a\n")), ["a"]);
        assert_eq!(
            byte_by_byte::<Row, _>(JsonLines, &marked("{\"a\":1}")),
            [Row { a: 1 }]
        );
        for text in [
            "a,b\n1,2\n",
            "\"a\",\"b\"\n1,2",
            "\"a\",\"b\nc\"\r\n1,\"2\"\r\n",
        ] {
            assert_eq!(
                byte_by_byte::<Row, _>(Csv::new(), &marked(text)),
                [Row { a: 1 }],
                "{text}"
            );
        }
        for alone in [&b""[..], &marked("")] {
            assert!(byte_by_byte(Lines, alone).is_empty());
            assert!(byte_by_byte::<Row, _>(JsonLines, alone).is_empty());
            assert!(byte_by_byte::<Row, _>(Csv::new(), alone).is_empty());
        }
        assert_eq!(byte_by_byte(Lines, &marked("\n")), [""]);
    }

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
