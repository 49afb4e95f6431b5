//! Reads files to their end.

pub(super) mod share;
pub(super) mod supply;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Bounded, Cut, CutWriter, Epoch, FileUse, Instance, InstanceContext, Isolation, JobSignals,
    Ordinal, Outbox, Parallelism, Processor, Progress, RestoredState, Result, Source, StateShape,
};
use serde::de::DeserializeOwned;

use super::fingerprint::Fingerprint;
use super::follow::FollowSource;
use super::list::{Listing, cannot_read};
use super::open::{self, Input, Resumption};
use super::watch::WatchSource;
use crate::decompressed::{Damage, damage};
use crate::format::{Csv, Decode, JsonLines, Lines};
use crate::intake::{Intake, READ_SIZE, Reading, reading_options};
use crate::ready::not_now;
use share::Reached;
use supply::{Listed, Next, Supply};

/// The lines of a file, or of a directory's files, as text.
pub fn lines(path: impl AsRef<Path>) -> FileSource<String, Lines> {
    read(path, Lines)
}

/// The records of CSV files with a header; see [`Csv`]. For other delimiters use [`read`] with a `Csv` of your own.
pub fn csv<T: DeserializeOwned + Send + 'static>(path: impl AsRef<Path>) -> FileSource<T, Csv> {
    read(path, Csv::new())
}

/// The records of files with one JSON value a line.
pub fn json_lines<T>(path: impl AsRef<Path>) -> FileSource<T, JsonLines>
where
    T: DeserializeOwned + Send + 'static,
{
    read(path, JsonLines)
}

/// The records of files in any format.
pub fn read<T, D>(path: impl AsRef<Path>, decoder: D) -> FileSource<T, D>
where
    T: Send + 'static,
    D: Decode<T>,
{
    FileSource {
        path: path.as_ref().to_path_buf(),
        suffix: None,
        parallelism: Parallelism::ONE,
        reading: Reading::new(decoder),
        record: PhantomData,
    }
}

/// A source that reads a file, or the files of a directory in the order of their names, to the end.
///
/// * Each file is read by one instance, from its beginning to its end; several instances share the files of a directory.
/// * A file or directory that isn't there, or a directory without a fitting file, fails the job at its start.
/// * Gzip and zstd are undone, of pipes as well.
/// * A file that can't be read to its end fails the job, unless [`on_damage`](Self::on_damage) has it keep what could be read:
///   compressed data that is cut off or damaged, a file that shrinks or is rewritten while it is read, a read that fails, a
///   header that can't be read. All whole lines before the damage are delivered first. With `Keep` the next file follows.
/// * A named pipe is waited for until it has a writer, and read until the last writer has closed it.
/// * A job that drains stops reading in the middle of the file. Of a pipe, half a line is then a record too, since what was read
///   of it can't be put back.
/// * A job that keeps its state goes on with the record that comes next. The files are those that were listed when it first started; one that
///   is to read another path by then fails if it has files left of the one before. Where another number of instances goes on, what is left is
///   dealt out anew. A compressed file is unpacked again up to that record. Another file of the same name fails the job: one that is shorter
///   than when it was opened first, or differs in the 256 bytes before that record, or in one of sixteen pieces that are compared. Pipes and devices can't be read in such a job.
#[derive(Debug)]
pub struct FileSource<T, D> {
    pub(super) path: PathBuf,
    pub(super) suffix: Option<String>,
    pub(super) parallelism: Parallelism,
    pub(super) reading: Reading<D>,
    record: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, D: Decode<T>> FileSource<T, D> {
    reading_options!();

    /// Reads only those files of the directory whose names end so, such as `".csv"`.
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = Some(suffix.into());
        self
    }

    /// Sets how many instances share the files of a directory.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Goes on when the end of the file is reached, and waits for it to grow; see [`FollowSource`].
    pub fn follow(self) -> FollowSource<T, D> {
        FollowSource::new(self)
    }

    /// Goes on when all files of the directory have been read, and waits for others to appear; see [`WatchSource`].
    pub fn watch(self) -> WatchSource<T, D> {
        WatchSource::new(self)
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Bounded> {
        let name = format!("read {}", self.path.display());
        let listing = Arc::new(Listing::new(self.path, self.suffix));
        let listed = Arc::clone(&listing);
        let files = move |_: u32| listed.now().into_iter().map(FileUse::Reads).collect();
        let reading = self.reading;
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            // What a job reads that goes on where it was is not what there is now.
            let listed = Listed::new(Arc::clone(&listing), listing.of(instance));
            Ok(Box::new(ReadP::<T, D, _>::new(listed, &reading)))
        };
        Source::new(name, Arc::new(supply))
            .using_files(files)
            .parallelism(self.parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<FileSource<T, D>> for Source<T, Bounded> {
    fn from(source: FileSource<T, D>) -> Self {
        source.build()
    }
}

/// How many reads without a record one call may do before it looks at the job's signals again.
const READS_PER_CALL: usize = 32;

/// What the reader is doing.
enum Stage {
    /// Looking for the next file.
    Between,
    /// Reading a file until its end.
    Reading(Box<Input>),
    /// Delivering the last records of a file that ended.
    Ending,
    /// Delivering the last whole lines of a file that can't be read any further.
    Broken(Damage),
}

/// Reads the files that it is given, one after the other.
pub(super) struct ReadP<T, D, S> {
    supply: S,
    intake: Intake<T, D>,
    stage: Stage,
    /// The file at hand, until it is read to its end; and whether it is compressed, as far as that is known.
    at_hand: Option<PathBuf>,
    is_packed: bool,
    /// The identity of the file at hand, in a job that keeps its state.
    fingerprint: Option<Fingerprint>,
    keeps_state: bool,
    /// Whether draining has ended a file of which there may have been more.
    is_stopped: bool,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>, S: Supply> ReadP<T, D, S> {
    pub fn new(supply: S, reading: &Reading<D>) -> Self {
        ReadP {
            supply,
            intake: Intake::new(reading, READ_SIZE),
            stage: Stage::Between,
            at_hand: None,
            is_packed: false,
            fingerprint: None,
            keeps_state: false,
            is_stopped: false,
            signals: Arc::default(),
        }
    }

    /// Opens the next file, if there is one by now. Records that were `delivered` in this call do not wait for it.
    fn begin_next(&mut self, delivered: bool) -> Result<Progress> {
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
        let input = match reached {
            None => {
                self.intake.begin(origin);
                open::open(&path, self.keeps_state)?
            }
            Some(Reached {
                is_packed,
                place,
                file,
            }) => {
                let signals = &self.signals;
                let resumption = Resumption {
                    is_packed,
                    place: &place,
                    fingerprint: file,
                };
                let input = open::open_at(&path, &resumption, || !signals.is_cancelled())?;
                let Some(input) = input else {
                    return Ok(Progress::DONE);
                };
                let mut from_beginning = open::open(&path, false)?.reader;
                let begun = self.intake.begin_at(origin, &place, &mut from_beginning);
                begun.map_err(|error| cannot_read(&path, error))?;
                self.is_packed = is_packed;
                input
            }
        };
        self.fingerprint = input.fingerprint;
        self.supply.begun(input.mark);
        self.at_hand = Some(path);
        self.stage = Stage::Reading(Box::new(input));
        Ok(Progress::MADE)
    }

    /// The file at hand has been read to its end.
    fn end_file(&mut self) {
        self.stage = Stage::Between;
        if let Some(file) = self.at_hand.take() {
            self.supply.end(&file);
        }
    }
}

impl<T: Send + 'static, D: Decode<T>, S: Supply> Processor for ReadP<T, D, S> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.signals = Arc::clone(&context.signals);
        self.keeps_state = context.guarantee.keeps_state();
        self.supply.init(context);
        if self.keeps_state {
            // It may go on in the middle.
            return Ok(());
        }
        // The first file is opened at once, so that one that may not be read fails the job at its start.
        self.supply.start()?;
        self.begin_next(true).map(|_| ())
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // What has been read and not delivered can't be put back.
        self.complete(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let draining = self.signals.is_draining();
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        self.supply.start()?;
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        let before = lane.room();
        for _ in 0..READS_PER_CALL {
            if !self.intake.deliver(&mut lane)? {
                return Ok(Progress::MADE);
            }
            let delivered = lane.room() < before;
            if let Some(damage) = self.intake.bad_header() {
                self.stage = Stage::Broken(damage.clone());
            }
            match &mut self.stage {
                Stage::Reading(input) if input.may_wait && delivered => {
                    return Ok(Progress::MADE);
                }
                Stage::Reading(input) if draining && input.may_wait && !self.is_stopped => {
                    // As if it ended here: half a line can't be put back, nor what is still compressed.
                    self.is_stopped = true;
                    input.reader.halt();
                }
                Stage::Reading(input) => match self.intake.fill(&mut input.reader) {
                    Ok(0) => {
                        self.is_packed = input.reader.is_packed();
                        self.supply.stopped(input, true);
                        self.intake.end();
                        self.stage = Stage::Ending;
                    }
                    // That was to see whether there is more. There is, and it stays in the file.
                    Ok(_) | Err(_) if draining && !input.may_wait => {
                        self.is_stopped = true;
                        return Ok(Progress::DONE);
                    }
                    Ok(_) => self.is_packed = input.reader.is_packed(),
                    Err(error) if not_now(&error) => return Ok(Progress::NONE),
                    Err(error) => {
                        self.is_packed = input.reader.is_packed();
                        self.supply.stopped(input, false);
                        self.stage = Stage::Broken(damage(&error));
                    }
                },
                Stage::Ending => self.end_file(),
                // The records before it come out first.
                Stage::Broken(_) if delivered => return Ok(Progress::MADE),
                Stage::Broken(damage) => {
                    self.intake.damage(damage)?;
                    self.end_file();
                }
                Stage::Between if draining => return Ok(Progress::DONE),
                Stage::Between => {
                    let progress = self.begin_next(delivered)?;
                    if self.at_hand.is_none() {
                        return Ok(progress);
                    }
                }
            }
        }
        Ok(Progress::MADE)
    }

    fn is_at_end(&self) -> bool {
        let is_between = matches!(self.stage, Stage::Between);
        is_between && self.supply.is_at_end() && !self.is_stopped
    }

    fn forgets(&self) -> Option<&'static str> {
        self.supply.forgets()
    }

    fn states(&self) -> Vec<StateShape> {
        self.supply.states()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        // Something can be listed only once: also a cut before the first record says what was.
        self.supply.start()?;
        let reached = Reached {
            is_packed: self.is_packed,
            place: self.intake.place(),
            file: self.fingerprint,
        };
        let at_hand = self.at_hand.as_deref().map(|file| (file, &reached));
        self.supply.take_cut(cut, at_hand)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.supply.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.supply.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.supply.on_restored()?;
        Ok(Progress::DONE)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.supply.commit(epoch);
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.stage = Stage::Between;
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
