//! Follows a growing file, over truncation and rotation.

mod followed;
mod kept;
mod late;
mod replaced;
mod trace;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, FileUse, Instance, InstanceContext,
    Isolation, Outbox, Parallelism, Processor, Progress, RestoredState, Result, Source, StateShape,
    Unbounded, instance_state,
};

use super::list::cannot_read;
use super::read::FileSource;
use crate::OnDamage;
use crate::decompressed::Damage;
use crate::format::Decode;
use crate::intake::{BAD_HEADER_HINT, Intake, READ_SIZE, Reading, Turn};
use crate::ready::not_now;
use followed::Followed;
pub(super) use followed::{born, is_missing};
use kept::{Kept, STATE};
use replaced::{Parked, Replaced};

/// How often an unchanged file is looked at, once it has been unchanged for a while.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The time for which a replaced file is held unless the source says otherwise.
const ROTATE_WAIT: Duration = Duration::from_secs(5);

/// A source that reads a file from its beginning and then goes on as it grows, like `tail -F`.
///
/// * A last line without newline is kept until its newline comes, until its file is let go, or
///   until a job without state drains.
/// * When another file has taken the path (rotation), the old one is read to its end first, then the new one from
///   its beginning. While no file has the path, the source waits for one.
/// * The old one is held until it has not grown for five seconds, or as
///   [`rotate_wait`](Self::rotate_wait) says, and lines that its writer still adds come among those
///   of the new one. Sixteen are held at most; the first one of more is let go. A file that came
///   and went between two looks at the path, up to 50 ms apart when all is read, is not known of.
/// * When the file has become shorter than what was read, or has other bytes in the 256 before that place (truncation,
///   also by a writer that has written more since), it is read from its beginning.
/// * One plain file at a time: a directory, or a compressed file, fails the job at its start, and so does a file that isn't there,
///   unless it is to be [waited for](Self::wait_for_file).
/// * The source's `suffix`, `parallelism` and `on_damage(OnDamage::Keep)` fail the job at its
///   start: they mean nothing for such a file.
/// * A job that drains reads no further, and delivers what it has read, an unfinished last line
///   too. In a job that keeps its state such a line stays in the file, and comes when the job goes
///   on.
/// * A job that keeps its state goes on with the line that comes next. A file that was rotated
///   meanwhile is looked for beside its old name, and read to its end before the one that has the
///   name by then; files that came and went in between are not known of, so it must not have been
///   rotated twice. One that is nowhere fails the job; one that was held is a dead letter then. A
///   truncated one is read from its beginning.
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

/// The settings of following.
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

    /// Skips the lines that the file has when the job starts. An unfinished last line counts as new. Files that take its place
    /// later, and one that was [waited for](Self::wait_for_file), are read from their beginning all the same.
    ///
    /// The place in a dead letter then counts lines from where reading began: `app.log from byte 1200:3`. A format that needs the
    /// beginning of the file, such as CSV with a header, fails the job at its start.
    pub fn from_end(mut self) -> Self {
        self.start.from_end = true;
        self
    }

    /// Waits for the file if it isn't there when the job starts, instead of failing the job.
    pub fn wait_for_file(mut self) -> Self {
        self.start.waits = true;
        self
    }

    /// Sets the time without growth after which a file is let go that another has replaced; five
    /// seconds unless set. Set it longer than the writer may take to begin the new file. With zero
    /// it is let go at its end, and what is added to it later is not read.
    ///
    /// The disk space of a held file that was removed is free when it is let go.
    pub fn rotate_wait(mut self, wait: Duration) -> Self {
        self.start.rotate_wait = wait;
        self
    }

    /// The source, for a pipeline.
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

/// The reason why a setting of the source does not fit a followed file.
fn unfit_setting<T, D>(source: &FileSource<T, D>) -> Option<&'static str> {
    if source.suffix.is_some() {
        return Some("one file is followed, and `suffix` chooses among those of a directory");
    }
    if source.parallelism != Parallelism::ONE {
        return Some("one file is followed, which one instance reads");
    }
    (source.reading.on_damage == Some(OnDamage::Keep)).then_some(
        "a followed file has no end, so `on_damage` can't keep what comes before its damage",
    )
}

/// What the reader is doing.
enum Stage {
    /// Waiting for a file to have the path.
    Awaiting,
    /// Reading the file that has the path, as it grows.
    Growing(Followed),
    /// Reading what is left of a file that another has replaced.
    Finishing(Followed),
    /// Reading what came late into a file that was held.
    Late {
        file: Followed,
        /// True if its time is over.
        is_over: bool,
    },
    /// Delivering the last records of a replaced file.
    Ending(Followed),
}

/// Reads one file, and the files that take its place.
struct FollowP<T, D> {
    path: PathBuf,
    start: Start,
    /// A setting that does not fit, and why.
    unfit: Option<&'static str>,
    instance: Instance,
    intake: Intake<T, D>,
    stage: Stage,
    /// The file that has the path, while another one is read.
    at_path: Option<Parked>,
    /// Replaced files.
    replaced: Replaced,
    /// True if the file that has the path is read before those that it has replaced are looked at.
    is_paths_turn: bool,
    pause: Duration,
    /// Whether draining has made what was read last the end of the stream.
    is_ended: bool,
    keeps_state: bool,
    /// Whether it knows where to begin.
    has_begun: bool,
    draft: CutDraft,
    restored: Option<Kept>,
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
            stage: Stage::Awaiting,
            at_path: None,
            replaced: Replaced::new(start.rotate_wait),
            is_paths_turn: false,
            pause: FIRST_PAUSE,
            is_ended: false,
            keeps_state: false,
            has_begun: false,
            draft: CutDraft::default(),
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

    /// What its lines are said to come from, counted from where reading began.
    fn origin(&self, began: u64) -> String {
        let path = self.path.display();
        match began {
            0 => path.to_string(),
            position => format!("{path} from byte {position}"),
        }
    }

    fn grow(&mut self, followed: Followed) {
        self.stage = Stage::Growing(followed);
        self.pause = FIRST_PAUSE;
    }

    /// Begins where it is said to begin, unless it goes on from where it was.
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

    /// Reads on, when all whole lines have been delivered.
    fn advance(&mut self) -> Result<Progress> {
        if let Some(damage) = self.intake.bad_header() {
            let damage = io::Error::other(damage.clone());
            let error = cannot_read(&self.path, damage).permanent();
            return Err(error.hint(BAD_HEADER_HINT));
        }
        if self.turn_to_late()? {
            return Ok(Progress::MADE);
        }
        let path = &self.path;
        let failed = |error| cannot_read(path, error);
        let file = match &mut self.stage {
            Stage::Growing(file) | Stage::Finishing(file) | Stage::Late { file, .. } => file,
            Stage::Awaiting | Stage::Ending(_) => return self.return_to_path(),
        };
        match self.intake.fill(file) {
            Ok(0) => {}
            Ok(_) => {
                self.pause = FIRST_PAUSE;
                return Ok(Progress::MADE);
            }
            Err(error) if not_now(&error) => return Ok(Progress::NONE),
            Err(error) if Damage::of(&error).is_some() => {
                // It was truncated; what it has now is new.
                file.restart();
                self.intake
                    .break_off("the file was truncated in the middle of this line")?;
                self.intake.begin(path.display().to_string());
                return Ok(Progress::MADE);
            }
            Err(error) => return Err(failed(error)),
        }
        match std::mem::replace(&mut self.stage, Stage::Awaiting) {
            Stage::Growing(file) => match fs::metadata(path) {
                // One more read to the end: the writer may have added to it before it let go.
                Ok(now) if !file.identity.has_inode_of(&now) => {
                    self.stage = Stage::Finishing(file);
                    Ok(Progress::MADE)
                }
                Err(error) if !is_missing(&error) => Err(failed(error)),
                Ok(_) | Err(_) => {
                    self.stage = Stage::Growing(file);
                    Ok(self.rest())
                }
            },
            Stage::Finishing(file) => self.leave(file, false),
            Stage::Late { file, is_over } => self.leave(file, is_over),
            Stage::Ending(_) | Stage::Awaiting => self.return_to_path(),
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
                // It may have its name back.
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
                self.stage = Stage::Awaiting;
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
                "its header stands at the beginning, and `from_end` does not read that",
                "follow it from its beginning, or say that there is no header",
            ));
        }
        if self.keeps_state {
            // It may go on in the middle.
            return Ok(());
        }
        self.start()
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.complete(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !self.instance.owns(0) {
            return Ok(Progress::DONE);
        }
        self.start()?;
        match self.intake.turn(outbox)? {
            Turn::Return(progress) => Ok(progress),
            // The rest of a line stays in the file, and comes with the line when the job goes on.
            Turn::End if self.keeps_state => Ok(Progress::DONE),
            Turn::End if self.is_ended => self.end_next(),
            Turn::End => {
                // Half a line comes out as well: the file is not read on from here.
                self.is_ended = true;
                self.intake.end();
                Ok(Progress::MADE)
            }
            Turn::Read => self.advance(),
        }
    }

    fn states(&self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.draft.begin();
        if !self.instance.owns(0) {
            return Ok(());
        }
        // Also a cut before the first record says where that was.
        self.start()?;
        let kept = self.kept();
        instance_state::put(self.draft.begin(), STATE, (0, &[]), &kept)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
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

    fn close(&mut self) {
        self.stage = Stage::Awaiting;
        self.at_path = None;
        self.replaced.clear();
    }
}

#[cfg(test)]
mod late_tests;
#[cfg(test)]
mod tests;
