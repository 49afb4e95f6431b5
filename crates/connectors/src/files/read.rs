//! Bounded sources that read files to their end.

pub(super) mod block_reader;
pub(super) mod blocks;
mod member_finder;
pub(super) mod packed_blocks;
pub(super) mod splits;
pub(super) mod supply;

use std::fs::{File, Metadata};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Bounded, Checkpointed, Epoch, FileUse, Instance, InstanceContext, Isolation, JobSignals,
    Outbox, Parallelism, Processor, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, Source, SourceControl, StateShape,
};
use serde::de::DeserializeOwned;

use super::fingerprint::Fingerprint;
use super::follow::FollowSource;
use super::list::{Listing, cannot_read};
use super::location::{Location, is_bucket};
use super::open::{FileOpener, Input, Resumption};
use super::part_file::Compression;
use super::watch::WatchSource;
use crate::decompressed::{Damage, MemberIndex, damage, has_several_members};
use crate::fd_poll::not_now;
use crate::format::{BatchDecode, Csv, Decode, Framing, JsonLines, Lines};
use crate::record_output::{AsBatches, AsRows, OutputForm, RecordOutput};
use crate::record_reader::{Intake, READ_SIZE, Reading, reading_options};
use blocks::BLOCK_BYTES;
use splits::FilePosition;
use supply::{InitialListing, Next, Supply};

/// Returns a source of the lines of a file, or of a directory's files, as text.
pub fn lines(path: impl AsRef<Path>) -> FileSource<String, Lines> {
    read(path, Lines)
}

/// Returns a source of the records of CSV files with a header; see [`Csv`]. For other delimiters
/// use [`read`] with a custom `Csv`.
pub fn csv<T: DeserializeOwned + Send + 'static>(path: impl AsRef<Path>) -> FileSource<T, Csv> {
    read(path, Csv::new())
}

/// Returns a source of the records of files with one JSON value per line.
pub fn json_lines<T>(path: impl AsRef<Path>) -> FileSource<T, JsonLines>
where
    T: DeserializeOwned + Send + 'static,
{
    read(path, JsonLines)
}

/// Returns a source of the records of files in any format.
pub fn read<T, D>(path: impl AsRef<Path>, decoder: D) -> FileSource<T, D>
where
    T: Send + 'static,
    D: Decode<T>,
{
    FileSource {
        path: path.as_ref().to_path_buf(),
        suffix: None,
        parallelism: None,
        block_bytes: None,
        reading: Reading::new(decoder),
        record: PhantomData,
    }
}

/// A source that reads a file, or the files of a directory in the order of their names, to the end.
///
/// * A large plain file whose records are lines is read by all instances, in blocks of 1 MiB. It
///   has at least two blocks per instance. A line belongs to the block that contains its first
///   byte. Each instance emits its records in the order of the file. Such a file is read up to the
///   length it had at the start of the job. On a cluster it must not change until all instances
///   have started.
/// * So is a large compressed file of several members, such as one of `bgzip`, of concatenated gzip
///   files, of `pzstd`, or of the sinks. The first member must end within the first block, or
///   within 160 KiB. A member belongs to the block that contains its first byte. Files of one
///   member, such as those of `gzip`, are not shared.
/// * Other files are read by one instance from beginning to end: small and other compressed files,
///   pipes, and files of records that may contain newlines ([`Framing::Quoted`]). The instances
///   share several files.
/// * By default there is one instance per core, or one if the decoder's records may contain
///   newlines, or the path is a compressed file that cannot be shared.
/// * The address of an object or of a prefix in a bucket, such as `s3://bucket/prefix`, takes the
///   place of a path (feature `s3`). Its objects are read as files. A store that does not answer is
///   waited for. An object that is replaced while it is read is damaged. Bad records name the byte
///   of a shared object, and not the line; if it is compressed, a byte of the content from a member
///   on.
/// * A missing file or directory, or a directory without a matching file, fails the job at its
///   start.
/// * Gzip and zstd are decompressed, from pipes as well.
/// * A file that cannot be read to its end fails the job, unless [`on_damage`](Self::on_damage) is
///   `Keep`. Reasons are truncated or corrupt compressed data, a file that shrinks or is rewritten
///   meanwhile, a read error, or an unreadable header. All complete lines before the damage are
///   emitted first. With `Keep` the source continues with the next file.
/// * A named pipe is waited for until it has a writer, and read until the last writer closes it.
/// * A draining job stops reading in the middle of a file. A partial line read from a pipe then
///   becomes a record, since a pipe cannot be read again.
/// * A restored job continues with the next record. It reads the files listed when the job first
///   started. If the configured path has changed and files of the old path are unfinished, the job
///   fails. After a rescale the remaining files are redistributed.
/// * A compressed file is decompressed again up to the restored position. The job fails if the file
///   was replaced: it is shorter than when first opened, or differs in the 256 bytes before the
///   position or in one of sixteen samples. A job with state cannot read pipes and devices.
#[derive(Debug)]
pub struct FileSource<T, D> {
    pub(super) path: PathBuf,
    pub(super) suffix: Option<String>,
    pub(super) parallelism: Option<Parallelism>,
    block_bytes: Option<u64>,
    pub(super) reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> FileSource<T, D> {
    reading_options!();

    /// Reads only the files of the directory whose names end in `suffix`, such as `".csv"`.
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = Some(suffix.into());
        self
    }

    /// Sets the number of instances, which share the input.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = Some(parallelism.into());
        self
    }

    /// Reads all records in order, with one instance. A job needs this if its result depends on the
    /// order of the records of different lines, beyond their event times.
    pub fn in_order(self) -> Self {
        self.parallelism(Parallelism::ONE)
    }

    /// Sets the size of the blocks of files that instances share; 1 MiB by default, and 4 MiB in a
    /// bucket.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = Some(bytes.max(1));
        self
    }

    /// Returns true if instances can share a file: its records are lines.
    fn is_divisible(&self) -> bool {
        self.reading.decoder.framing() == Framing::Lines
    }

    /// Returns the number of instances: by default one per core if the file can be shared, or if
    /// there may be several.
    fn instances(&self) -> Parallelism {
        let path = Location::plain_path(&self.path);
        // An object is not opened here.
        let is_open = Compression::of_name(&path) == Compression::None || is_bucket(&self.path);
        let is_shared = self.is_divisible() && (is_open || is_shareable(&path));
        match self.parallelism {
            Some(parallelism) => parallelism,
            None if is_shared => Parallelism::Auto,
            None => Parallelism::ONE,
        }
    }

    /// Tails the file after its end; see [`FollowSource`].
    pub fn follow(self) -> FollowSource<T, D> {
        FollowSource::new(self)
    }

    /// Continues with files that are added to the directory later; see [`WatchSource`].
    pub fn watch(self) -> WatchSource<T, D> {
        WatchSource::new(self)
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Bounded> {
        self.build_as::<AsRows<T, D>, T>().repeatable()
    }

    fn build_as<F, R>(self) -> Source<R, Bounded>
    where
        F: OutputForm<Record = T, Decoder = D>,
    {
        let name = format!("read {}", Location::plain_path(&self.path).display());
        let (parallelism, is_divisible) = (self.instances(), self.is_divisible());
        let block_bytes = self.block_bytes.unwrap_or(match is_bucket(&self.path) {
            true => OBJECT_BLOCK_BYTES,
            false => BLOCK_BYTES,
        });
        let listing = Location::of(&self.path).map(|location| {
            let listing = Listing::new(location, self.suffix);
            Arc::new(match is_divisible {
                true => listing.shared(block_bytes),
                false => listing,
            })
        });
        let listed = listing.clone();
        let files = move |_: u32| {
            let listed = listed.iter().flat_map(|listing| listing.now());
            listed.map(FileUse::Reads).collect()
        };
        let reading = self.reading;
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let listing = listing.clone()?;
            // An error of the listing is reported later: a restored job does not use the present
            // listing.
            let listed = listing.of(instance);
            let listed = InitialListing::new(listing, listed);
            Ok(Box::new(ReadP::<F, _>::new(listed, &reading)))
        };
        Source::new(name, Arc::new(supply))
            .using_files(files)
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<D: BatchDecode> FileSource<(), D> {
    /// Builds a source of the batches of the decoder. `R` is the type of a record in the pipeline.
    pub fn build_batches<R>(self) -> Source<R, Bounded> {
        self.build_as::<AsBatches<D>, R>()
    }
}

impl<T: Send + 'static, D: Decode<T>> From<FileSource<T, D>> for Source<T, Bounded> {
    fn from(source: FileSource<T, D>) -> Self {
        source.build()
    }
}

/// Returns true if a local compressed file has several members.
fn is_shareable(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let length = file.metadata().ok().filter(Metadata::is_file);
    length.is_some_and(|of| are_several(&file, of.len(), BLOCK_BYTES))
}

/// Returns true if a local compressed file of `length` bytes has several members, of which the
/// first one says where it ends, or ends within the first block.
pub(super) fn are_several(file: &File, length: u64, block_bytes: u64) -> bool {
    let read_at = |buffer: &mut [u8], offset| file.read_at(buffer, offset);
    let head = |count: u64| -> std::io::Result<Vec<u8>> {
        let mut head = vec![0; usize::try_from(count).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut head, 0)?;
        Ok(head)
    };
    MemberIndex::has_several(read_at, length).unwrap_or(false)
        || has_several_members(head, length, block_bytes).unwrap_or(false)
}

/// The default size of the blocks of shared objects.
const OBJECT_BLOCK_BYTES: u64 = 4 << 20;

/// The maximum number of reads without a record before a call returns to check for signals.
const READS_PER_CALL: usize = 32;

/// The state of the reader.
enum ReaderState {
    /// Between two files.
    Between,
    /// Reading a file to its end.
    Reading(Box<Input>),
    /// Emitting the last records of a file.
    Ending,
    /// Emitting the last complete lines of a file that cannot be read any further.
    Broken(Damage),
}

/// The processor that reads the files of its supply one after the other.
pub(super) struct ReadP<F: OutputForm, S> {
    supply: S,
    intake: Intake<F::Record, F::Decoder>,
    stage: ReaderState,
    /// The current file until it is read to its end. `is_packed` is true once the file is known to
    /// be compressed.
    at_hand: Option<PathBuf>,
    is_packed: bool,
    /// The identity of the current file, in a job with state.
    fingerprint: Option<Fingerprint>,
    keeps_state: bool,
    opener: FileOpener,
    /// True if draining has stopped reading before the end of a file.
    is_stopped: bool,
    signals: Arc<JobSignals>,
}

impl<F: OutputForm, S: Supply> ReadP<F, S> {
    pub fn new(supply: S, reading: &Reading<F::Decoder>) -> Self {
        ReadP {
            supply,
            intake: Intake::new(reading, READ_SIZE),
            stage: ReaderState::Between,
            at_hand: None,
            is_packed: false,
            fingerprint: None,
            keeps_state: false,
            opener: FileOpener::local(),
            is_stopped: false,
            signals: Arc::default(),
        }
    }

    /// Opens the next file, if there is one. Does not wait for a file if the present call has
    /// `delivered` records.
    fn begin_next(&mut self, delivered: bool) -> Result<Progress> {
        match self.open_next(delivered) {
            // An object that was waited for.
            Err(_) if self.signals.is_cancelled() => Ok(Progress::DONE),
            progress => progress,
        }
    }

    fn open_next(&mut self, delivered: bool) -> Result<Progress> {
        let (path, reached) = match self.supply.next()? {
            Next::File(path, reached) => (path, reached),
            Next::Wait(_) if delivered => return Ok(Progress::MADE),
            Next::Wait(pause) => {
                std::thread::sleep(pause);
                return Ok(Progress::NONE);
            }
            Next::End => return Ok(Progress::DONE),
        };
        let origin = path.display().to_string();
        self.is_packed = false;
        let opener = &self.opener;
        let input = match reached {
            None => {
                self.intake.begin(origin);
                opener.open(&path, self.keeps_state)?
            }
            Some(FilePosition {
                blocks: Some(blocks),
                file,
                ..
            }) => {
                let (input, positions) =
                    opener.open_blocks(&path, blocks, file.as_ref(), self.keeps_state)?;
                let mut from_beginning = opener.blocking(opener.open(&path, false)?.reader);
                let intake = &mut self.intake;
                let begun = intake.begin_blocks(origin, positions, &mut from_beginning);
                begun.map_err(|error| cannot_read(&path, error))?;
                input
            }
            Some(FilePosition {
                is_packed,
                place,
                file,
                ..
            }) => {
                let resumption = Resumption {
                    is_packed,
                    place: &place,
                    fingerprint: file,
                };
                let Some(input) = opener.open_at(&path, &resumption)? else {
                    return Ok(Progress::DONE);
                };
                let mut from_beginning = opener.blocking(opener.open(&path, false)?.reader);
                let begun = self.intake.begin_at(origin, &place, &mut from_beginning);
                begun.map_err(|error| cannot_read(&path, error))?;
                self.is_packed = is_packed;
                input
            }
        };
        self.fingerprint = input.fingerprint;
        self.supply.begun(input.mark);
        self.at_hand = Some(path);
        self.stage = ReaderState::Reading(Box::new(input));
        Ok(Progress::MADE)
    }

    /// Finishes the current file, which was read to its end.
    fn end_file(&mut self) {
        self.stage = ReaderState::Between;
        if let Some(file) = self.at_hand.take() {
            self.supply.end(&file);
        }
    }

    /// Reads records into the output until it is full or the input is exhausted.
    fn read(&mut self, mut output: F::Output<'_>) -> Result<Progress> {
        let draining = self.signals.is_draining();
        let before = output.room();
        for _ in 0..READS_PER_CALL {
            if !self.intake.deliver(&mut output)? {
                return Ok(Progress::MADE);
            }
            let delivered = output.room() < before;
            if let Some(damage) = self.intake.bad_header() {
                self.stage = ReaderState::Broken(damage.clone());
            }
            match &mut self.stage {
                ReaderState::Reading(input) if input.may_wait && delivered => {
                    return Ok(Progress::MADE);
                }
                ReaderState::Reading(input) if draining && input.may_wait && !self.is_stopped => {
                    // Treated as the end: a partial line and buffered compressed bytes cannot be
                    // put back.
                    self.is_stopped = true;
                    input.reader.halt();
                }
                ReaderState::Reading(input) => match self.intake.fill(&mut input.reader) {
                    Ok(0) => {
                        self.is_packed = input.reader.is_packed();
                        self.supply.stopped(input, true);
                        self.intake.end();
                        self.stage = ReaderState::Ending;
                    }
                    // This read only checked for more data, which stays in the file.
                    Ok(_) | Err(_) if draining && !input.may_wait => {
                        self.is_stopped = true;
                        return Ok(Progress::DONE);
                    }
                    Ok(_) => self.is_packed = input.reader.is_packed(),
                    Err(error) if not_now(&error) => {
                        return Ok(match input.may_wait {
                            true => Progress::NONE,
                            false => Progress::MADE,
                        });
                    }
                    Err(error) => {
                        self.is_packed = input.reader.is_packed();
                        self.supply.stopped(input, false);
                        self.stage = ReaderState::Broken(damage(&error));
                    }
                },
                ReaderState::Ending => self.end_file(),
                // The records before the damage are emitted first.
                ReaderState::Broken(_) if delivered => return Ok(Progress::MADE),
                ReaderState::Broken(damage) => {
                    self.intake.damage(damage)?;
                    self.end_file();
                }
                ReaderState::Between if draining => return Ok(Progress::DONE),
                ReaderState::Between => {
                    let progress = self.begin_next(delivered)?;
                    if self.at_hand.is_none() {
                        return Ok(progress);
                    }
                }
            }
        }
        Ok(Progress::MADE)
    }
}

impl<F: OutputForm, S: Supply> Processor for ReadP<F, S> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.signals = Arc::clone(&context.signals);
        self.keeps_state = context.guarantee.keeps_state();
        self.supply.init(context);
        self.opener = FileOpener {
            store: self.supply.store(),
            signals: Arc::clone(&context.signals),
        };
        if self.keeps_state {
            // A restore may still set the position.
            return Ok(());
        }
        // Opens the first file now, so that an unreadable one fails the job at its start.
        self.supply.start()?;
        self.begin_next(true).map(|_| ())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        self.supply.start()?;
        let Some(output) = F::begin(outbox, self.intake.decoder())? else {
            return Ok(Progress::NONE);
        };
        let progress = self.read(output)?;
        F::finish(outbox, self.intake.decoder())?;
        Ok(progress)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.supply.forgets()
    }

    fn close(&mut self) {
        self.stage = ReaderState::Between;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<F: OutputForm, S: Supply> Checkpointed for ReadP<F, S> {
    fn states(&mut self) -> Vec<StateShape> {
        self.supply.states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        // The listing must not change after the first snapshot, even one before the first record.
        self.supply.start()?;
        let reached = FilePosition {
            is_packed: self.is_packed,
            place: self.intake.place(),
            file: self.fingerprint,
            blocks: self.intake.unread_blocks(),
        };
        let at_hand = self.at_hand.as_deref().map(|file| (file, &reached));
        self.supply.take_snapshot(snapshot, at_hand)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.supply.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.supply.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.supply.on_restored()?;
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.supply.commit(epoch);
        Ok(Progress::DONE)
    }
}

impl<F: OutputForm, S: Supply> SourceControl for ReadP<F, S> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // Bytes already read from a pipe cannot be put back.
        self.complete(outbox)
    }

    fn is_at_end(&self) -> bool {
        let is_between = matches!(self.stage, ReaderState::Between);
        is_between && self.supply.is_at_end() && !self.is_stopped
    }
}

#[cfg(test)]
mod block_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod tests;
