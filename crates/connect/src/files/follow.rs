//! Follows a growing file, over truncation and rotation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Error, ErrorCode, Instance, InstanceContext, Isolation, JobSignals, Lane, Ordinal, Outbox,
    Processor, Progress, Result, Source, Unbounded,
};

use super::list::cannot_read;
use super::read::FileSource;
use crate::format::Decode;
use crate::intake::{Intake, READ_SIZE, Reading};
use crate::ready::not_now;

/// How often an unchanged file is looked at, once it has been unchanged for a while.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A source that reads a file from its beginning and then goes on as it grows, like `tail -F`.
///
/// * A last line without newline is kept until its newline comes.
/// * When another file has taken the path (rotation), the old one is read to its end first, then the new one from
///   its beginning. While no file has the path, the source waits for one.
/// * When the file has become shorter than what was read (truncation), it is read from its beginning. A file that
///   is truncated and grows past that point between two looks (50 ms) is not noticed.
/// * One plain file at a time: a directory, or a compressed file, fails the job at its start.
/// * A job that drains reads no further; an unfinished line stays where it is, in the file.
#[derive(Debug)]
pub struct FollowSource<T, D>(FileSource<T, D>);

impl<T: Send + 'static, D: Decode<T>> FollowSource<T, D> {
    pub(super) fn new(source: FileSource<T, D>) -> Self {
        FollowSource(source)
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let FileSource { path, reading, .. } = self.0;
        let name = format!("follow {}", path.display());
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(FollowP::<T, D>::new(
                path.clone(),
                instance,
                &reading,
            )))
        };
        Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<FollowSource<T, D>> for Source<T, Unbounded> {
    fn from(source: FollowSource<T, D>) -> Self {
        source.build()
    }
}

/// The file being read, with what tells it from another of the same name.
struct Followed {
    file: File,
    device: u64,
    inode: u64,
    position: u64,
}

impl Followed {
    fn open(path: &Path) -> io::Result<Followed> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Followed {
            device: metadata.dev(),
            inode: metadata.ino(),
            file,
            position: 0,
        })
    }

    fn is(&self, other: &fs::Metadata) -> bool {
        (self.device, self.inode) == (other.dev(), other.ino())
    }
}

impl Read for Followed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

/// What the reader is doing.
enum Stage {
    /// Waiting for a file to have the path.
    Awaiting,
    /// Reading the file that has the path, as it grows.
    Growing(Followed),
    /// Reading what is left of a file that another has replaced.
    Finishing(Followed),
    /// Delivering the last records of a replaced file.
    Ending,
}

/// Reads one file, and the files that take its place.
struct FollowP<T, D> {
    path: PathBuf,
    instance: Instance,
    intake: Intake<T, D>,
    stage: Stage,
    pause: Duration,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>> FollowP<T, D> {
    fn new(path: PathBuf, instance: Instance, reading: &Reading<D>) -> Self {
        FollowP {
            path,
            instance,
            intake: Intake::new(reading, READ_SIZE),
            stage: Stage::Awaiting,
            pause: FIRST_PAUSE,
            signals: Arc::default(),
        }
    }

    fn begin(&mut self, followed: Followed) {
        self.intake.begin(self.path.display().to_string());
        self.stage = Stage::Growing(followed);
        self.pause = FIRST_PAUSE;
    }

    fn rest(&mut self) -> Progress {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Progress::NONE
    }

    /// Reads on, when all whole lines have been delivered.
    fn advance(&mut self) -> Result<Progress> {
        let path = &self.path;
        let failed = |error| cannot_read(path, error);
        let file = match &mut self.stage {
            Stage::Growing(file) | Stage::Finishing(file) => file,
            Stage::Awaiting | Stage::Ending => return self.await_file(),
        };
        match self.intake.fill(file) {
            Ok(0) => {}
            Ok(_) => {
                self.pause = FIRST_PAUSE;
                return Ok(Progress::MADE);
            }
            Err(error) if not_now(&error) => return Ok(Progress::NONE),
            Err(error) => return Err(failed(error)),
        }
        if file.file.metadata().map_err(failed)?.len() < file.position {
            file.file.seek(SeekFrom::Start(0)).map_err(failed)?;
            file.position = 0;
            self.intake
                .break_off("the file was truncated in the middle of this line", false)?;
            self.intake.begin(path.display().to_string());
            return Ok(Progress::MADE);
        }
        match std::mem::replace(&mut self.stage, Stage::Ending) {
            Stage::Growing(file) => match fs::metadata(path) {
                // One more read to the end: the writer may have added to it before it let go.
                Ok(now) if !file.is(&now) => {
                    self.stage = Stage::Finishing(file);
                    Ok(Progress::MADE)
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                Ok(_) | Err(_) => {
                    self.stage = Stage::Growing(file);
                    Ok(self.rest())
                }
            },
            Stage::Finishing(_) | Stage::Ending | Stage::Awaiting => {
                self.intake.end();
                Ok(Progress::MADE)
            }
        }
    }

    fn await_file(&mut self) -> Result<Progress> {
        match Followed::open(&self.path) {
            Ok(followed) => {
                self.begin(followed);
                Ok(Progress::MADE)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.stage = Stage::Awaiting;
                Ok(self.rest())
            }
            Err(error) => Err(cannot_read(&self.path, error)),
        }
    }

    fn deliver(&mut self, lane: &mut Lane<'_, T>, draining: bool) -> Result<Progress> {
        let before = lane.room();
        let emptied = self.intake.deliver(lane)?;
        if !emptied || (lane.room() < before && !draining) {
            return Ok(Progress::MADE);
        }
        if draining {
            return Ok(Progress::DONE);
        }
        self.advance()
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for FollowP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach(context);
        self.signals = Arc::clone(&context.signals);
        if !self.instance.owns(0) {
            return Ok(());
        }
        let followed =
            Followed::open(&self.path).map_err(|error| cannot_read(&self.path, error))?;
        let suffix = self.path.extension().unwrap_or_default();
        let plain = followed
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.is_file());
        if !plain || suffix == "gz" || suffix == "zst" {
            let what = format!("cannot follow {}", self.path.display());
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .because("only a single, plain, uncompressed file can be followed")
                .hint("name such a file, or read it once without `follow`"));
        }
        self.begin(followed);
        Ok(())
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // What has been read and not delivered can't be put back.
        self.complete(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let draining = self.signals.is_draining();
        if !self.instance.owns(0) || self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        self.deliver(&mut lane, draining)
    }

    fn close(&mut self) {
        self.stage = Stage::Awaiting;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    use ardea_testkit::SourceTest;

    use super::*;
    use crate::files::lines;
    use crate::testing::{Driven, context, signals};

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn following(path: &Path) -> Driven<String> {
        Driven::start(lines(path).follow())
    }

    /// Steps until the source finds nothing more to read.
    fn until_quiet(driven: &mut Driven<String>) {
        let mut quiet = 0;
        while quiet < 4 {
            quiet = if driven.step().unwrap().made {
                0
            } else {
                quiet + 1
            };
        }
    }

    #[test]
    fn a_partial_line_is_kept_until_its_newline_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "one\ntw");
        let mut driven = following(&path);
        driven.run_until_records(1);
        until_quiet(&mut driven);
        assert_eq!(driven.values(), ["one"]);
        append(&path, "o\nthree\n");
        driven.run_until_records(3);
        assert_eq!(driven.values(), ["one", "two", "three"]);
    }

    #[test]
    fn a_rotated_file_is_finished_before_the_new_one_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "1\n2\n");
        let mut driven = following(&path);
        driven.run_until_records(1);
        append(&path, "3\nlast");
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        until_quiet(&mut driven);
        append(&dir.path().join("log.1"), " words");
        append(&path, "4\n");
        driven.run_until_records(5);
        assert_eq!(driven.values(), ["1", "2", "3", "last words", "4"]);
        assert!(driven.letters().is_empty());
    }

    #[test]
    fn a_truncated_file_is_read_from_its_beginning_and_half_a_line_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "first\nhalf a li");
        let mut driven = following(&path);
        driven.run_until_records(1);
        until_quiet(&mut driven);
        fs::write(&path, "new\n").unwrap();
        driven.run_until_records(2);
        assert_eq!(driven.values(), ["first", "new"]);
        assert!(
            driven.letters()[0].0.ends_with("log:2"),
            "{:?}",
            driven.letters()
        );
    }

    #[test]
    fn draining_and_cancelling_end_it_while_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "a\nhalf");
        for drain in [true, false] {
            let mut driven = following(&path);
            let signals = signals(&driven.context);
            driven.run_until_records(1);
            if drain {
                signals.drain()
            } else {
                signals.cancel()
            }
            driven.run().unwrap();
            assert_eq!(driven.values(), ["a"]);
        }
    }

    #[test]
    fn what_cannot_be_followed_fails_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x.gz"), "").unwrap();
        for path in [
            dir.path().to_path_buf(),
            dir.path().join("x.gz"),
            dir.path().join("none"),
        ] {
            let error = Driven::new(lines(&path).follow(), context("s"))
                .err()
                .expect("an error");
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
        }
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, "1\n2\n3\nhalf");
        let (_, supplier, ..) = lines(&path).follow().build().into_parts();
        let expected = ["1", "2", "3"].map(String::from);
        SourceTest::supplied(supplier)
            .output::<String>(expected)
            .drain_after(3)
            .run();
    }
}
