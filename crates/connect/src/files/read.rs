//! Reads files to their end.

mod share;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Bounded, Cut, CutWriter, Epoch, FileUse, Instance, InstanceContext, Isolation, JobSignals,
    Ordinal, Outbox, Parallelism, Processor, Progress, RestoredState, Result, Source, StateShape,
};
use serde::de::DeserializeOwned;

use super::follow::FollowSource;
use super::list::{Listing, cannot_read};
use super::open::{self, Input};
use crate::decompressed::{damage, is_damage};
use crate::format::{Csv, Decode, JsonLines, Lines};
use crate::intake::{Intake, READ_SIZE, Reading, reading_options};
use crate::ready::not_now;
use share::{Reached, Share};

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
/// * Gzip and zstd are undone, of pipes as well; if the compressed data is cut off or damaged, all whole lines before that are
///   delivered, the damage is dealt with as [`on_error`](Self::on_error) says, and the next file follows.
/// * A named pipe is waited for until it has a writer, and read until the last writer has closed it.
/// * A job that drains stops reading in the middle of the file. Of a pipe, half a line is then a record too, since what was read
///   of it can't be put back.
/// * A job that keeps its state goes on with the record that comes next. The files are those that were listed when it first started; one that
///   is to read another path by then fails if it has files left of the one before. Where another number of instances goes on, what is left is
///   dealt out anew. A compressed file is unpacked again up to that record. A file that is shorter by then, or has other content right before that
///   record, fails the job; what was changed further ahead is not noticed. Pipes and devices can't be read in such a job.
#[derive(Debug)]
pub struct FileSource<T, D> {
    pub(super) path: PathBuf,
    suffix: Option<String>,
    parallelism: Parallelism,
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
    pub fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Goes on when the end of the file is reached, and waits for it to grow; see [`FollowSource`].
    pub fn follow(self) -> FollowSource<T, D> {
        FollowSource::new(self)
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
            let listed = listing.of(instance);
            Ok(Box::new(ReadP::<T, D>::new(
                (Arc::clone(&listing), listed),
                &reading,
            )))
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
    Reading(PathBuf, Input),
    /// Delivering the last records of a file that ended.
    Ending,
    /// Delivering the last whole lines of a file that can't be decompressed any further.
    Broken(String),
}

/// Reads its files one after the other.
struct ReadP<T, D> {
    listing: Arc<Listing>,
    /// What was listed, until it begins.
    listed: Option<Result<Vec<PathBuf>>>,
    share: Share,
    intake: Intake<T, D>,
    stage: Stage,
    /// The file at hand, until it is read to its end; and whether it is compressed, as far as that is known.
    at_hand: Option<PathBuf>,
    is_packed: bool,
    /// Whether draining has ended a file of which there may have been more.
    is_stopped: bool,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>> ReadP<T, D> {
    fn new((listing, listed): (Arc<Listing>, Result<Vec<PathBuf>>), reading: &Reading<D>) -> Self {
        ReadP {
            listing,
            listed: Some(listed),
            share: Share::new(Instance::ONLY),
            intake: Intake::new(reading, READ_SIZE),
            stage: Stage::Between,
            at_hand: None,
            is_packed: false,
            is_stopped: false,
            signals: Arc::default(),
        }
    }

    /// Takes what was listed, if nothing was remembered.
    fn take_listed(&mut self) -> Result<()> {
        match self.listed.take() {
            None => {}
            Some(Ok(listed)) => self.share.set(listed),
            Some(Err(error)) => {
                // Whoever asks first is not the only one who has to know.
                self.listed = Some(Err(error.clone()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin_next(&mut self) -> Result<bool> {
        let Some((path, reached)) = self.share.begin_next() else {
            return Ok(false);
        };
        let origin = path.display().to_string();
        self.is_packed = false;
        let input = match reached {
            None => {
                self.intake.begin(origin);
                open::open(&path)?
            }
            Some(Reached { is_packed, place }) => {
                let signals = &self.signals;
                let input = open::open_at(&path, is_packed, &place, || !signals.is_cancelled())?;
                let Some(input) = input else {
                    return Ok(false);
                };
                let mut from_beginning = open::open(&path)?.reader;
                let begun = self.intake.begin_at(origin, &place, &mut from_beginning);
                begun.map_err(|error| cannot_read(&path, error))?;
                self.is_packed = is_packed;
                input
            }
        };
        self.at_hand = Some(path.clone());
        self.stage = Stage::Reading(path, input);
        Ok(true)
    }

    /// The file at hand has been read to its end.
    fn end_file(&mut self) {
        self.stage = Stage::Between;
        if let Some(file) = self.at_hand.take() {
            self.share.end(&file);
        }
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for ReadP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.signals = Arc::clone(&context.signals);
        self.share = Share::new(context.instance);
        if context.guarantee.keeps_state() {
            // It may go on in the middle.
            return Ok(());
        }
        // The first file is opened at once, so that one that may not be read fails the job at its start.
        self.take_listed()?;
        self.begin_next().map(|_| ())
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
        self.take_listed()?;
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
            match &mut self.stage {
                Stage::Reading(_, input) if input.may_wait && delivered => {
                    return Ok(Progress::MADE);
                }
                Stage::Reading(_, input) if draining && input.may_wait && !self.is_stopped => {
                    // As if it ended here: half a line can't be put back, nor what is still compressed.
                    self.is_stopped = true;
                    input.reader.halt();
                }
                Stage::Reading(path, input) => match self.intake.fill(&mut input.reader) {
                    Ok(0) => {
                        self.is_packed = input.reader.is_packed();
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
                    Err(error) if is_damage(&error) => {
                        self.is_packed = input.reader.is_packed();
                        self.stage = Stage::Broken(damage(&error));
                    }
                    Err(error) => return Err(cannot_read(path, error)),
                },
                Stage::Ending => self.end_file(),
                Stage::Broken(reason) => {
                    self.intake.break_off(reason, true)?;
                    self.end_file();
                }
                Stage::Between => {
                    if draining || !self.begin_next()? {
                        return Ok(Progress::DONE);
                    }
                }
            }
        }
        Ok(Progress::MADE)
    }

    fn is_at_end(&self) -> bool {
        let has_begun = self.listed.is_none();
        let is_between = matches!(self.stage, Stage::Between);
        has_begun && is_between && self.share.is_empty() && !self.is_stopped
    }

    fn forgets(&self) -> Option<&'static str> {
        match self.listed.as_ref()?.as_ref().ok()?.as_slice() {
            // A directory's are plain files.
            [only] if only.exists() && !only.is_file() => Some(
                "what it has read of a pipe or a device, which can't be read again (have it read a plain file)",
            ),
            _ => None,
        }
    }

    fn states(&self) -> Vec<StateShape> {
        Share::states()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        // Something can be listed only once: also a cut before the first record says what was.
        self.take_listed()?;
        let reached = Reached {
            is_packed: self.is_packed,
            place: self.intake.place(),
        };
        let at_hand = self.at_hand.as_deref().map(|file| (file, &reached));
        self.share.take_cut(cut, at_hand)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.share.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.share.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if self.share.resume()? {
            self.share
                .left()
                .try_for_each(|file| self.listing.check(file))?;
            self.listed = None;
        }
        Ok(Progress::DONE)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.share.commit(epoch);
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.stage = Stage::Between;
    }
}

#[cfg(test)]
mod tests;
