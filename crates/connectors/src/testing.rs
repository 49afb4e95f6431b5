//! Drivers that run a source or sink step by step under adverse schedules, for the tests of this
//! crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, Epoch, Guarantee, Inbox, Instance, InstanceContext, Marker, Ordinal, Outbox,
    OutboxRuntime, Processor, Progress, RestoredState, Result, Rows, Sink, SnapshotRequest,
    SnapshotWriter, Source, StateChunk, Timestamp, Watermark,
};

/// The timeout of waiting in tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn context(name: &str) -> InstanceContext {
    InstanceContext::detached(name)
}

/// Returns an instance context of a job with state.
pub(crate) fn stateful_context(index: u32, parallelism: u32) -> InstanceContext {
    InstanceContext {
        instance: Instance { index, parallelism },
        guarantee: Guarantee::ExactlyOnce,
        ..context("kept")
    }
}

/// Takes and returns a complete snapshot of a processor.
fn snapshot_of(processor: &mut dyn Processor, snapshot: SnapshotRequest) -> Result<StateChunk> {
    processor.state().take_snapshot(snapshot)?;
    let mut chunk = StateChunk::default();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let limit = chunk.byte_len() + 50;
        if processor
            .state()
            .write_snapshot(&mut SnapshotWriter::new(&mut chunk, limit))?
            .done
        {
            return Ok(chunk);
        }
        assert!(Instant::now() < deadline, "the snapshot is never written");
    }
}

/// Restores a processor from the snapshots of all instances, taken at the end of an epoch.
fn restore_snapshot(
    processor: &mut dyn Processor,
    instance: Instance,
    epoch: Epoch,
    chunks: &[StateChunk],
) -> Result<()> {
    for chunk in chunks {
        let mut position = 0;
        while position < chunk.byte_len() {
            let mut state = RestoredState::new(chunk, &mut position, instance, 3);
            processor.state().restore(&mut state)?;
        }
    }
    while !processor.state().on_restored(epoch)?.done {}
    Ok(())
}

/// Polls `condition` until it holds; fails the test if it never does.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub(crate) fn named_pipe(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Returns a member as `bgzip` writes it: with its size in an extra field. The content is stored,
/// at most 65,000 bytes.
pub(crate) fn bgzip_member(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let stored = [
        &[1][..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        content,
    ]
    .concat();
    let size = u16::try_from(18 + stored.len() + 8 - 1).unwrap();
    let extra = [&b"BC\x02\0"[..], &size.to_le_bytes()].concat();
    let head = [
        &[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255][..],
        &6u16.to_le_bytes(),
    ]
    .concat();
    let tail = [crc.sum().to_le_bytes(), u32::from(length).to_le_bytes()].concat();
    [head, extra, stored, tail].concat()
}

pub(crate) fn zstd(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A source being driven: every third call has a full outbox, the others have room for one record
/// and for many.
pub(crate) struct Driven<T> {
    processor: Box<dyn Processor>,
    pub context: InstanceContext,
    outbox: Outbox,
    calls: usize,
    pub records: Vec<(T, Timestamp)>,
    pub watermarks: Vec<Watermark>,
    pub done: bool,
}

impl<T: Send + 'static> Driven<T> {
    pub fn new<B>(source: impl Into<Source<T, B>>, context: InstanceContext) -> Result<Self> {
        let (_, supplier, _, _) = source.into().into_parts();
        let mut processor = supplier.supply(context.instance)?;
        processor.init(&context)?;
        Ok(Driven {
            processor,
            context,
            outbox: Outbox::new(1, 64),
            calls: 0,
            records: Vec::new(),
            watermarks: Vec::new(),
            done: false,
        })
    }

    pub fn start<B>(source: impl Into<Source<T, B>>) -> Self {
        Driven::new(source, context("source")).unwrap()
    }

    pub fn step(&mut self) -> Result<Progress> {
        let budget = [64, 0, 1][self.calls % 3];
        self.calls += 1;
        self.outbox.set_budget(budget);
        let progress = self.processor.complete(&mut self.outbox)?;
        if let Some(mut chunk) = self.outbox.take_chunk(0, Chunk::default) {
            let rows = chunk.rows::<T>()?;
            assert!(
                rows.len() <= budget,
                "{} records where {budget} had room",
                rows.len()
            );
            let count = rows.len();
            self.records.extend(rows.drain_front(count));
        }
        while let Some(marker) = self.outbox.take_marker(0) {
            if let Marker::Watermark(watermark) = marker {
                self.watermarks.push(watermark);
            }
        }
        self.done = progress.done;
        Ok(progress)
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    pub fn run(&mut self) -> Result<&mut Self> {
        self.run_until(|driven| driven.done)?;
        Ok(self)
    }

    pub fn run_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !condition(self) {
            assert!(!self.done, "the source ended first");
            assert!(Instant::now() < deadline, "the source never gets there");
            let _ = self.step()?;
        }
        Ok(())
    }

    pub fn run_until_records(&mut self, count: usize) -> &mut Self {
        self.run_until(|driven| driven.records.len() >= count)
            .unwrap();
        self
    }

    /// Steps until the source has nothing more to read for now.
    pub fn until_quiet(&mut self) {
        let mut quiet = 0;
        while quiet < 4 {
            let made = self.step().unwrap().made;
            quiet = if made { 0 } else { quiet + 1 };
        }
    }

    /// Steps until the source has ended or has nothing more to read for now.
    pub fn until_quiet_or_done(&mut self) {
        let mut quiet = 0;
        while quiet < 4 && !self.done {
            let made = self.step().unwrap().made;
            quiet = if made { 0 } else { quiet + 1 };
        }
    }

    /// Returns a full snapshot; the records emitted so far count as delivered.
    pub fn snapshot(&mut self) -> Result<StateChunk> {
        self.cut_as(SnapshotRequest::full(Epoch(1)))
    }

    /// Ends an epoch and takes the requested snapshot.
    pub fn cut_as(&mut self, snapshot: SnapshotRequest) -> Result<StateChunk> {
        while !self
            .processor
            .on_epoch(snapshot.epoch, &mut self.outbox)?
            .done
        {}
        snapshot_of(&mut *self.processor, snapshot)
    }

    pub fn commit(&mut self, epoch: Epoch) -> Result<()> {
        while !self.processor.state().on_checkpoint_committed(epoch)?.done {}
        Ok(())
    }

    pub fn give_back(&mut self, chunk: &StateChunk) -> Result<()> {
        self.give_back_all(std::slice::from_ref(chunk))
    }

    /// Restores the instance from the snapshots of all instances of an earlier attempt.
    pub fn give_back_all(&mut self, chunks: &[StateChunk]) -> Result<()> {
        restore_snapshot(
            &mut *self.processor,
            self.context.instance,
            Epoch(1),
            chunks,
        )
    }

    pub fn values(&self) -> Vec<&T> {
        self.records.iter().map(|(value, _)| value).collect()
    }

    /// Returns origin and reason of each dead letter.
    pub fn letters(&self) -> Vec<(String, String)> {
        let letters = self.context.dead_letters.sample();
        letters
            .into_iter()
            .map(|letter| (letter.origin, letter.reason))
            .collect()
    }
}

impl<T> Drop for Driven<T> {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// A sink being driven.
pub(crate) struct Fed<T> {
    processor: Box<dyn Processor>,
    pub context: InstanceContext,
    inbox: Inbox,
    pub outbox: Outbox,
    record: std::marker::PhantomData<fn(T)>,
}

impl<T: Send + 'static> Fed<T> {
    pub fn new(sink: impl Into<Sink<T>>, context: InstanceContext) -> Result<Self> {
        let (_, supplier, _, _) = sink.into().into_parts();
        let mut processor = supplier.supply(context.instance)?;
        processor.init(&context)?;
        Ok(Fed {
            processor,
            context,
            inbox: Inbox::default(),
            outbox: Outbox::new(0, 64),
            record: std::marker::PhantomData,
        })
    }

    pub fn start(sink: impl Into<Sink<T>>) -> Self {
        Fed::new(sink, context("sink")).unwrap()
    }

    pub fn one_of(sink: impl Into<Sink<T>>, index: u32, parallelism: u32) -> Self {
        let mut context = context("sink");
        context.instance = Instance { index, parallelism };
        Fed::new(sink, context).unwrap()
    }

    /// Passes one chunk to the sink; returns false if the sink has left records in the inbox.
    pub fn offer(&mut self, records: impl IntoIterator<Item = T>) -> Result<bool> {
        let rows: Rows<T> = records
            .into_iter()
            .map(|value| (value, Timestamp::MIN))
            .collect();
        self.inbox.fill(Chunk::new(rows));
        self.again()
    }

    pub fn again(&mut self) -> Result<bool> {
        if !self.inbox.is_empty() {
            self.processor
                .process(Ordinal::FIRST, &mut self.inbox, &mut self.outbox)?;
        }
        Ok(self.inbox.is_empty())
    }

    /// Passes one chunk to the sink until all of it is consumed.
    pub fn feed(&mut self, records: impl IntoIterator<Item = T>) -> Result<&mut Self> {
        let deadline = Instant::now() + TIMEOUT;
        let mut taken = self.offer(records)?;
        while !taken {
            assert!(
                Instant::now() < deadline,
                "the sink never takes its records"
            );
            taken = self.again()?;
        }
        Ok(self)
    }

    pub fn wake(&mut self) -> Result<()> {
        self.processor.on_wake(&mut self.outbox)
    }

    /// Returns true if the sink has requested a call, which is then forgotten.
    pub fn is_to_be_woken(&mut self) -> bool {
        self.outbox.take_wake_at().is_some()
    }

    /// Ends an epoch by one call; returns false if the call must be repeated.
    pub fn end_epoch(&mut self, epoch: Epoch) -> Result<bool> {
        Ok(self.processor.on_epoch(epoch, &mut self.outbox)?.done)
    }

    /// Ends an epoch and takes a complete snapshot.
    pub fn snapshot(&mut self, snapshot: SnapshotRequest) -> Result<StateChunk> {
        if !snapshot.is_last {
            while !self.end_epoch(snapshot.epoch)? {}
        }
        snapshot_of(&mut *self.processor, snapshot)
    }

    pub fn give_back(&mut self, epoch: Epoch, chunk: &StateChunk) -> Result<()> {
        let chunks = std::slice::from_ref(chunk);
        restore_snapshot(&mut *self.processor, self.context.instance, epoch, chunks)
    }

    pub fn commit(&mut self, epoch: Epoch) -> Result<()> {
        while !self.processor.state().on_checkpoint_committed(epoch)?.done {}
        Ok(())
    }

    pub fn awaits_commit(&mut self) -> bool {
        self.processor.state().awaits_commit()
    }

    pub fn finish(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.processor.complete(&mut self.outbox)?.done {
            assert!(Instant::now() < deadline, "the sink never ends");
        }
        Ok(())
    }
}

impl<T> Drop for Fed<T> {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// Returns true if the text of `error` contains all of `parts`.
pub(crate) fn error_contains(error: &ardea_core::Error, parts: &[&str]) -> bool {
    let text = error.to_string();
    parts.iter().all(|part| text.contains(part))
}

/// Returns a second handle on the signals of a context.
pub(crate) fn signals(context: &InstanceContext) -> Arc<ardea_core::JobSignals> {
    Arc::clone(&context.signals)
}
