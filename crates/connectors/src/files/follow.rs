//! Tailing of a growing file across truncation and rotation.

mod follow_state;
mod followed;
mod late;
mod replaced;
mod rotation;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, FileUse, Instance, InstanceContext, Isolation, Outbox,
    Parallelism, Processor, Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest,
    SnapshotWriter, Source, SourceControl, StateShape, Unbounded, instance_state,
};

use super::list::cannot_read;
use super::location::is_bucket;
use super::read::FileSource;
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::fd_poll::not_now;
use crate::format::Decode;
use crate::record_reader::{BAD_HEADER_HINT, Intake, NextAction, READ_SIZE, Reading};
use follow_state::{FollowState, STATE};
use followed::Followed;
pub(super) use followed::{born, is_missing};
use replaced::{PausedFile, ReplacedFiles};

/// The maximum and the initial poll interval of an unchanged file; the interval doubles with each
/// poll.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The default of [`FollowSource::rotate_wait`].
const ROTATE_WAIT: Duration = Duration::from_secs(5);

/// A source that reads a file from its beginning and then tails it as it grows, like `tail -F`.
///
/// * A last line without newline is held back until its newline arrives, until its file is closed,
///   or until a job without state drains.
/// * When another file has taken the path (rotation), the old file is first read to its end, then
///   the new one from its beginning. While no file has the path, the source waits for one.
/// * The old file stays open until it has not grown for five seconds, or for
///   [`rotate_wait`](Self::rotate_wait). Lines still appended to it are emitted between lines of
///   the new file. At most sixteen replaced files are kept open; beyond that the oldest is closed.
///   A file that appears and disappears between two polls of the path, up to 50 ms apart, is not
///   detected.
/// * A truncated file is read from its beginning. Truncation is detected if the file is shorter
///   than the bytes read, or if the last 256 bytes read have changed.
/// * Only one plain file can be followed. A directory or a compressed file fails the job at its
///   start. A missing file fails the job too, unless the source [waits for
///   it](Self::wait_for_file).
/// * The source's `suffix`, `parallelism` and `on_damage(OnDamage::Keep)` do not apply to a
///   followed file and fail the job at its start.
/// * A draining job stops reading and emits the lines read, including an unfinished last line. In a
///   job with state such a line stays in the file and is emitted after a restore.
/// * A restored job continues with the next line. A file rotated meanwhile is searched for in the
///   same directory and read to its end before the file now at the path. A file between the two is
///   not detected, so the file must not have been rotated twice. If the file is not found, the job
///   fails. A replaced file that is not found is only reported as a dead letter. A truncated file
///   is read from its beginning.
///
/// ```
/// use ardea_connectors::files;
/// use ardea_core::{Source, Unbounded};
///
/// let news: Source<String, Unbounded> = files::lines("app.log").follow().from_end().wait_for_file().build();
/// ```
#[derive(Debug)]
pub struct FollowSource<T, D> {
    source: FileSource<T, D>,
    start: Start,
}

/// The settings of a followed file.
#[derive(Clone, Copy, Debug)]
struct Start {
    from_end: bool,
    waits: bool,
    rotate_wait: Duration,
}

impl<T: Send + 'static, D: Decode<T>> FollowSource<T, D> {
    pub(super) fn new(source: FileSource<T, D>) -> Self {
        FollowSource {
            source,
            start: Start {
                from_end: false,
                waits: false,
                rotate_wait: ROTATE_WAIT,
            },
        }
    }

    /// Skips the lines in the file at the start of the job. An unfinished last line counts as new.
    /// Files that replace it later, and a file that the source [waited for](Self::wait_for_file),
    /// are still read from their beginning.
    ///
    /// Positions in dead letters then count lines from the start position: `app.log from byte
    /// 1200:3`. A format that needs the beginning of the file, such as CSV with a header, fails the
    /// job at its start.
    pub fn from_end(mut self) -> Self {
        self.start.from_end = true;
        self
    }

    /// Waits for the file if it does not exist at the start of the job, instead of failing the job.
    pub fn wait_for_file(mut self) -> Self {
        self.start.waits = true;
        self
    }

    /// Sets how long a replaced file may stay unchanged before it is closed; five seconds by
    /// default. `wait` should exceed the time that the writer may take to switch to the new file.
    /// With zero, a replaced file is closed at its end, and bytes appended later are not read.
    ///
    /// The disk space of a removed file is freed when the source closes the file.
    pub fn rotate_wait(mut self, wait: Duration) -> Self {
        self.start.rotate_wait = wait;
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let start = self.start;
        let unfit = unfit_setting(&self.source);
        let FileSource { path, reading, .. } = self.source;
        let name = format!("follow {}", path.display());
        let files = vec![FileUse::Reads(path.clone())];
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(FollowP::<T, D>::new(
                path.clone(),
                (start, unfit),
                instance,
                &reading,
            )))
        };
        Source::new(name, Arc::new(supply))
            .using_files(move |_| files.clone())
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<FollowSource<T, D>> for Source<T, Unbounded> {
    fn from(source: FollowSource<T, D>) -> Self {
        source.build()
    }
}

/// Returns the reason why a setting of the source does not apply to a followed file, if any.
fn unfit_setting<T, D>(source: &FileSource<T, D>) -> Option<&'static str> {
    if source.suffix.is_some() {
        return Some("one file is followed, and `suffix` chooses among those of a directory");
    }
    if !matches!(source.parallelism, None | Some(Parallelism::ONE)) {
        return Some("one file is followed, and one instance reads it");
    }
    if is_bucket(&source.path) {
        return Some("an object does not grow, and only a file of the local file system does");
    }
    (source.reading.on_damage == Some(OnDamage::Keep)).then_some(
        "a followed file has no end, so `on_damage` can't keep the records before its damage",
    )
}

/// The state of the reader.
enum ReaderState {
    /// Waiting for a file at the path.
    Awaiting,
    /// Reading the file at the path as it grows.
    Growing(Followed),
    /// Reading the rest of a replaced file.
    Finishing(Followed),
    /// Reading bytes that were appended to a replaced file.
    Late {
        file: Followed,
        /// True if the file is closed after the appended bytes.
        is_over: bool,
    },
    /// Emitting the last records of a replaced file.
    Ending(Followed),
}

/// The processor that reads one file and the files that replace it.
struct FollowP<T, D> {
    path: PathBuf,
    start: Start,
    /// The reason why a setting of the source does not apply to a followed file, if any.
    unfit: Option<&'static str>,
    instance: Instance,
    intake: Intake<T, D>,
    stage: ReaderState,
    /// The file at the path while another file is read.
    at_path: Option<PausedFile>,
    /// Replaced files.
    replaced: ReplacedFiles,
    /// True if the file at the path is read before the replaced files are polled.
    is_paths_turn: bool,
    pause: Duration,
    /// True if draining has ended the stream at the last bytes read.
    is_ended: bool,
    keeps_state: bool,
    /// True if the start position is known.
    has_begun: bool,
    draft: SmallSnapshot,
    restored: Option<FollowState>,
}

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    fn new(
        path: PathBuf,
        (start, unfit): (Start, Option<&'static str>),
        instance: Instance,
        reading: &Reading<D>,
    ) -> Self {
        FollowP {
            path,
            start,
            unfit,
            instance,
            intake: Intake::new(reading, READ_SIZE),
            stage: ReaderState::Awaiting,
            at_path: None,
            replaced: ReplacedFiles::new(start.rotate_wait),
            is_paths_turn: false,
            pause: FIRST_PAUSE,
            is_ended: false,
            keeps_state: false,
            has_begun: false,
            draft: SmallSnapshot::default(),
            restored: None,
        }
    }

    fn begin(&mut self, followed: Followed) {
        let began = followed.identity.began;
        let origin = self.origin(began);
        match began {
            0 => self.intake.begin(origin),
            _ => self.intake.begin_behind(origin, followed.passed()),
        }
        self.grow(followed);
    }

    /// Returns the origin of lines for error reports. Line numbers count from the byte `began`.
    fn origin(&self, began: u64) -> String {
        let path = self.path.display();
        match began {
            0 => path.to_string(),
            position => format!("{path} from byte {position}"),
        }
    }

    fn grow(&mut self, followed: Followed) {
        self.stage = ReaderState::Growing(followed);
        self.pause = FIRST_PAUSE;
    }

    /// Opens the file at its configured start position, unless the instance was restored.
    fn start(&mut self) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let failed = |error| cannot_read(&self.path, error);
        let mut followed = match Followed::open(&self.path) {
            Err(error) if self.start.waits && is_missing(&error) => {
                self.has_begun = true;
                return Ok(());
            }
            opened => opened.map_err(failed)?.ok_or_else(|| self.not_plain())?,
        };
        if self.start.from_end {
            followed.skip_lines().map_err(failed)?;
        }
        self.has_begun = true;
        self.begin(followed);
        Ok(())
    }

    fn rest(&mut self) -> Progress {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Progress::NONE
    }

    /// Reads the next bytes once all complete lines have been emitted.
    fn advance(&mut self) -> Result<Progress> {
        if let Some(damage) = self.intake.bad_header() {
            let damage = io::Error::other(damage.clone());
            let error = cannot_read(&self.path, damage).permanent();
            return Err(error.hint(BAD_HEADER_HINT));
        }
        if self.switch_to_late()? {
            return Ok(Progress::MADE);
        }
        let path = &self.path;
        let failed = |error| cannot_read(path, error);
        let file = match &mut self.stage {
            ReaderState::Growing(file)
            | ReaderState::Finishing(file)
            | ReaderState::Late { file, .. } => file,
            ReaderState::Awaiting | ReaderState::Ending(_) => return self.return_to_path(),
        };
        match self.intake.fill(file) {
            Ok(0) => {}
            Ok(_) => {
                self.pause = FIRST_PAUSE;
                return Ok(Progress::MADE);
            }
            Err(error) if not_now(&error) => return Ok(Progress::NONE),
            Err(error) if Damage::of(&error).is_some() => {
                // The file was truncated; its present content is new.
                file.restart();
                self.intake
                    .report_partial("the file was truncated in the middle of this line")?;
                self.intake.begin(path.display().to_string());
                return Ok(Progress::MADE);
            }
            Err(error) => return Err(failed(error)),
        }
        match std::mem::replace(&mut self.stage, ReaderState::Awaiting) {
            ReaderState::Growing(file) => match fs::metadata(path) {
                // Reads to the end once more: the writer may have appended bytes before it switched
                // files.
                Ok(now) if !file.identity.has_inode_of(&now) => {
                    self.stage = ReaderState::Finishing(file);
                    Ok(Progress::MADE)
                }
                Err(error) if !is_missing(&error) => Err(failed(error)),
                Ok(_) | Err(_) => {
                    self.stage = ReaderState::Growing(file);
                    Ok(self.rest())
                }
            },
            ReaderState::Finishing(file) => self.leave(file, false),
            ReaderState::Late { file, is_over } => self.leave(file, is_over),
            ReaderState::Ending(_) | ReaderState::Awaiting => self.return_to_path(),
        }
    }

    fn refused(&self, why: &str, hint: &str) -> Error {
        let what = format!("cannot follow {}", self.path.display());
        Error::new(ErrorCode::InvalidConfig, what)
            .because(why)
            .hint(hint)
    }

    fn not_plain(&self) -> Error {
        self.refused(
            "only a single, plain, uncompressed file can be followed",
            "name such a file, or read it once without `follow`",
        )
    }

    fn await_file(&mut self) -> Result<Progress> {
        match Followed::open(&self.path) {
            Ok(Some(followed)) => {
                // A replaced file may have been renamed back.
                match self.replaced.take(&followed.identity) {
                    Some(parked) => {
                        let followed = self.go_on(parked)?;
                        self.grow(followed);
                    }
                    None => self.begin(followed),
                }
                Ok(Progress::MADE)
            }
            Ok(None) => Err(self.not_plain()),
            Err(error) if is_missing(&error) => {
                self.stage = ReaderState::Awaiting;
                Ok(self.rest())
            }
            Err(error) => Err(cannot_read(&self.path, error)),
        }
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for FollowP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.replaced.attach(&context.clock);
        self.keeps_state = context.guarantee.keeps_state();
        if !self.instance.owns(0) {
            return Ok(());
        }
        if let Some(why) = self.unfit {
            return Err(self.refused(why, "leave that setting out"));
        }
        let suffix = self.path.extension().unwrap_or_default();
        if suffix == "gz" || suffix == "zst" {
            return Err(self.not_plain());
        }
        if self.start.from_end && self.intake.needs_beginning() {
            return Err(self.refused(
                "its header is at the beginning, which `from_end` skips",
                "follow it from its beginning, or declare that it has no header",
            ));
        }
        if self.keeps_state {
            // A restore may still set the position.
            return Ok(());
        }
        self.start()
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !self.instance.owns(0) {
            return Ok(Progress::DONE);
        }
        self.start()?;
        match self.intake.turn(outbox)? {
            NextAction::Return(progress) => Ok(progress),
            // The rest of an unfinished line stays in the file and is read after a restore.
            NextAction::End if self.keeps_state => Ok(Progress::DONE),
            NextAction::End if self.is_ended => self.end_next(),
            NextAction::End => {
                // An unfinished line is emitted as well, since the file is not read any further.
                self.is_ended = true;
                self.intake.end();
                Ok(Progress::MADE)
            }
            NextAction::Read => self.advance(),
        }
    }

    fn close(&mut self) {
        self.stage = ReaderState::Awaiting;
        self.at_path = None;
        self.replaced.clear();
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: Send + 'static, D: Decode<T>> Checkpointed for FollowP<T, D> {
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.draft.begin();
        if !self.instance.owns(0) {
            return Ok(());
        }
        // A snapshot before the first record must contain the start position too.
        self.start()?;
        let kept = self.current_state();
        instance_state::put(self.draft.begin(), STATE, (0, &[]), &kept)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.restored = Some(instance_state::value(&entry)?);
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(kept) = self.restored.take().filter(|_| self.instance.owns(0)) {
            self.resume(kept)?;
        }
        Ok(Progress::DONE)
    }
}

impl<T: Send + 'static, D: Decode<T>> SourceControl for FollowP<T, D> {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.complete(outbox)
    }
}

#[cfg(test)]
mod late_tests;
#[cfg(test)]
mod tests;
