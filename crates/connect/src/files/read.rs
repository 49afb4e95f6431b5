//! Reads files to their end.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Bounded, FileUse, Instance, InstanceContext, Isolation, JobSignals, Ordinal, Outbox,
    Parallelism, Processor, Progress, Result, Source,
};
use serde::de::DeserializeOwned;

use super::follow::FollowSource;
use super::list::{Listing, cannot_read};
use super::open::{self, Input};
use crate::decompressed::{damage, is_damage};
use crate::format::{Csv, Decode, JsonLines, Lines};
use crate::intake::{Intake, READ_SIZE, Reading, reading_options};
use crate::ready::not_now;

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
            Ok(Box::new(ReadP::<T, D>::new(
                listing.of(instance)?,
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
    files: VecDeque<PathBuf>,
    intake: Intake<T, D>,
    stage: Stage,
    /// Whether draining has ended a file of which there may have been more.
    is_stopped: bool,
    signals: Arc<JobSignals>,
}

impl<T: Send + 'static, D: Decode<T>> ReadP<T, D> {
    fn new(files: Vec<PathBuf>, reading: &Reading<D>) -> Self {
        ReadP {
            files: files.into(),
            intake: Intake::new(reading, READ_SIZE),
            stage: Stage::Between,
            is_stopped: false,
            signals: Arc::default(),
        }
    }

    fn begin_next(&mut self) -> Result<bool> {
        let Some(path) = self.files.pop_front() else {
            return Ok(false);
        };
        let input = open::open(&path)?;
        self.intake.begin(path.display().to_string());
        self.stage = Stage::Reading(path, input);
        Ok(true)
    }
}

impl<T: Send + 'static, D: Decode<T>> Processor for ReadP<T, D> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.attach_only(context);
        self.signals = Arc::clone(&context.signals);
        // The first file is opened at once, so that one that may not be read fails the job at its start.
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
                        self.intake.end();
                        self.stage = Stage::Ending;
                    }
                    // That was to see whether there is more. There is, and it stays in the file.
                    Ok(_) | Err(_) if draining && !input.may_wait => {
                        self.is_stopped = true;
                        return Ok(Progress::DONE);
                    }
                    Ok(_) => {}
                    Err(error) if not_now(&error) => return Ok(Progress::NONE),
                    Err(error) if is_damage(&error) => {
                        self.stage = Stage::Broken(damage(&error));
                    }
                    Err(error) => return Err(cannot_read(path, error)),
                },
                Stage::Ending => self.stage = Stage::Between,
                Stage::Broken(reason) => {
                    self.intake.break_off(reason, true)?;
                    self.stage = Stage::Between;
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
        matches!(self.stage, Stage::Between) && self.files.is_empty() && !self.is_stopped
    }

    fn close(&mut self) {
        self.stage = Stage::Between;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use ardea_core::{ErrorCode, OnError};
    use ardea_testkit::SourceTest;
    use serde::Deserialize;

    use super::*;
    use crate::testing::{Driven, context, gzip, says, signals};

    #[derive(Deserialize, Debug, PartialEq)]
    struct Flight {
        carrier: String,
        delay: Option<i32>,
    }

    fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    fn numbers(count: usize) -> String {
        (0..count)
            .map(|n| format!("line {n} {}\n", n * 7919 % 104729))
            .collect()
    }

    #[test]
    fn a_directory_is_read_in_order_and_split_over_instances() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), "3\n4").unwrap();
        fs::write(dir.path().join("a"), "1\n2\n").unwrap();
        let mut driven = Driven::start(lines(dir.path()));
        assert_eq!(driven.run().unwrap().values(), ["1", "2", "3", "4"]);
        let mut second = context("s");
        second.instance = Instance {
            index: 1,
            parallelism: 2,
        };
        let mut driven: Driven<String> = Driven::new(lines(dir.path()), second).unwrap();
        assert_eq!(driven.run().unwrap().values(), ["3", "4"]);
    }

    #[test]
    fn compressed_files_are_known_by_their_first_bytes() {
        let text = numbers(3000);
        let twice = [gzip(text.as_bytes()), gzip(b"more\n")].concat();
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for (content, count) in [(twice, 3001), (zstd, 3000)] {
            let (_dir, path) = file("data", content);
            let mut driven = Driven::start(lines(path));
            assert_eq!(driven.run().unwrap().records.len(), count);
        }
    }

    #[test]
    fn a_compressed_file_cut_short_yields_its_whole_lines_and_one_letter() {
        let text = numbers(20_000);
        let whole: Vec<&str> = text.lines().collect();
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for (name, content) in [("x.gz", gzip(text.as_bytes())), ("x.zst", zstd)] {
            // A cut in the middle loses what no longer unpacks; one just before the checksum loses no line.
            for cut in [content.len() / 2, content.len() - 3] {
                let (_dir, path) = file(name, &content[..cut]);
                let mut driven = Driven::start(lines(&path));
                driven.run().unwrap();
                let got = driven.values();
                assert_eq!(got, whole[..got.len()], "{name}");
                assert!(got.len() > 1000, "{name}: {} lines", got.len());
                let letters = driven.letters();
                assert_eq!(letters.len(), 1, "{letters:?}");
                assert!(
                    letters[0].0.ends_with(&format!("{name}:{}", got.len() + 1)),
                    "{letters:?}"
                );
                assert!(letters[0].1.contains("cut off"), "{letters:?}");

                let mut strict = Driven::start(lines(&path).on_error(OnError::Fail));
                assert_eq!(
                    strict.run().err().expect("an error").code(),
                    ErrorCode::BadRecord
                );
            }
        }
    }

    #[test]
    fn an_empty_file_named_gz_is_damage_and_the_next_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.gz"), "").unwrap();
        fs::write(dir.path().join("b"), "x").unwrap();
        let mut driven = Driven::start(lines(dir.path()));
        assert_eq!(driven.run().unwrap().values(), ["x"]);
        assert_eq!(driven.letters().len(), 1);
    }

    #[test]
    fn invalid_text_goes_where_the_policy_says_with_its_place() {
        let (_dir, path) = file("in", b"good\nb\xffd\nalso good\n");
        let mut driven = Driven::start(lines(&path));
        assert_eq!(driven.run().unwrap().values(), ["good", "also good"]);
        let letter = &driven.context.dead_letters.sample()[0];
        assert_eq!(letter.raw, b"b\xffd");
        assert_eq!(letter.origin, format!("{}:2", path.display()));
        assert_eq!(letter.reason, "not UTF-8 from byte 1 on");

        let mut dropping = Driven::start(lines(&path).on_error(OnError::Drop));
        dropping.run().unwrap();
        assert_eq!(dropping.context.dead_letters.dropped(), 1);
        assert_eq!(dropping.context.metrics.snapshot().bad, 1);

        let mut failing = Driven::start(lines(&path).on_error(OnError::Fail));
        assert!(says(&failing.run().err().unwrap(), &["in:2", "UTF-8"]));
    }

    #[test]
    fn long_lines_pass_and_longer_ones_than_the_limit_do_not() {
        let long = "x".repeat(10 << 20);
        let (_dir, path) = file("in", format!("a\n{long}\n{}\nb\n", "y".repeat(17 << 20)));
        let mut driven = Driven::start(lines(&path));
        driven.run().unwrap();
        assert_eq!(driven.values(), ["a", &long, "b"]);
        let letter = &driven.context.dead_letters.sample()[0];
        assert!(
            letter.origin.ends_with("in:3") && letter.reason.contains("17825792"),
            "{letter:?}"
        );
        assert_eq!(letter.raw.len(), 4096);
    }

    #[test]
    fn csv_reads_into_types_and_sets_malformed_records_aside() {
        let text = "delay,carrier\r\n5,\"A\nA\"\r\n,UA\nlate,UA\n1\n\n-3,B6";
        let (_dir, path) = file("in.csv", text);
        let mut driven = Driven::start(csv::<Flight>(path));
        let flight = |carrier: &str, delay| Flight {
            carrier: carrier.into(),
            delay,
        };
        assert_eq!(
            driven.run().unwrap().values(),
            [
                &flight("A\nA", Some(5)),
                &flight("UA", None),
                &flight("B6", Some(-3))
            ]
        );
        let places: Vec<_> = driven
            .letters()
            .into_iter()
            .map(|(origin, _)| origin)
            .collect();
        assert!(
            places[0].ends_with(":5") && places[1].ends_with(":6"),
            "{places:?}"
        );
    }

    #[test]
    fn malformed_json_is_set_aside_line_by_line() {
        let (_dir, path) = file("in", "{\"carrier\":\"UA\"}\n{\"carrier\":\n\n[]\n");
        let mut driven = Driven::start(json_lines::<Flight>(path));
        assert_eq!(driven.run().unwrap().records.len(), 1);
        assert_eq!(driven.letters().len(), 2);
    }

    #[test]
    fn it_says_which_files_it_would_read_now() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let used = |source: FileSource<String, Lines>| source.build().into_parts().1.files(1);
        let reads = |names: &[&str]| -> Vec<FileUse> {
            names.iter().map(|name| FileUse::Reads(at(name))).collect()
        };
        let all = || lines(dir.path());
        assert_eq!(used(all().suffix(".csv")), []);
        for name in ["b.csv", "a.csv", ".c.csv", "d.csv.part", "report.json"] {
            fs::write(at(name), "").unwrap();
        }
        assert_eq!(used(all().suffix(".csv")), reads(&["a.csv", "b.csv"]));
        assert_eq!(used(all()), reads(&["a.csv", "b.csv", "report.json"]));
        assert_eq!(used(lines(at("later"))), reads(&["later"]));
    }

    #[test]
    fn a_missing_file_fails_the_start_and_is_named() {
        let error = Driven::<String>::new(lines("/no/such/file"), context("s"))
            .err()
            .unwrap();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        assert!(says(&error, &["/no/such/file", "check that it exists"]));
    }

    #[test]
    fn draining_ends_it_in_the_middle_with_what_was_read() {
        let (_dir, path) = file("in", numbers(200_000));
        let mut driven = Driven::start(lines(path));
        driven.run_until_records(10);
        signals(&driven.context).drain();
        driven.run().unwrap();
        assert!(driven.records.len() < 200_000);
    }

    #[test]
    fn drained_behind_its_last_byte_it_has_come_to_its_end_and_before_it_not() {
        for (count, is_all) in [(2, true), (200_000, false)] {
            let (_dir, path) = file("in", numbers(count).trim_end());
            let mut reader = ReadP::new(vec![path], &Reading::new(Lines));
            let context = context("s");
            reader.init(&context).unwrap();
            let mut outbox = Outbox::new(1, count + 1);
            outbox.set_budget(1);
            // It has read the first 256 KiB, and delivered a line of them.
            assert!(!reader.complete(&mut outbox).unwrap().done);
            outbox.set_budget(count + 1);
            context.signals.drain();
            while !reader.on_drain(&mut outbox).unwrap().done {}
            assert_eq!(reader.is_at_end(), is_all);
            let mut lane = outbox.lane::<String>(Ordinal::FIRST).unwrap();
            assert_eq!(lane.rows().len() == count, is_all);
        }
    }

    #[test]
    fn a_pipe_hands_on_what_it_has_and_waits_for_more() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let mut driven = Driven::start(lines(path));
        writer.write_all(b"a\nb").unwrap();
        driven.run_until_records(1);
        drop(writer);
        drop(reader);
        assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
    }

    #[test]
    fn draining_delivers_half_a_line_that_was_read_from_a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        let mut driven = Driven::start(lines(&path));
        let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"a\nhalf").unwrap();
        driven.run_until_records(1);
        signals(&driven.context).drain();
        assert_eq!(driven.run().unwrap().values(), ["a", "half"]);
    }

    #[test]
    fn what_comes_compressed_through_a_named_pipe_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        for packed in [gzip(b"a\nb"), crate::testing::zstd(b"a\nb")] {
            let mut driven = Driven::start(lines(&path));
            let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(&packed).unwrap();
            drop(writer);
            assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
        }
    }

    #[test]
    fn a_named_pipe_without_a_writer_holds_up_neither_start_nor_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        crate::testing::named_pipe(&path);
        for drain in [true, false] {
            let mut driven: Driven<String> = Driven::start(lines(&path));
            assert!(!driven.step().unwrap().done, "it waits for a writer");
            let signals = signals(&driven.context);
            if drain {
                signals.drain()
            } else {
                signals.cancel()
            }
            driven.run().unwrap();
        }
        let mut driven = Driven::start(lines(&path));
        let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"a\nb\n").unwrap();
        driven.run_until_records(2);
        drop(writer);
        assert_eq!(driven.run().unwrap().values(), ["a", "b"]);
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let (_dir, path) = file("in", "1\n2\nnot a number\n3\n");
        let (_, supplier, ..) = json_lines::<u32>(path).build().into_parts();
        SourceTest::supplied(supplier)
            .output::<u32>([1, 2, 3])
            .configure(|test| test.expect_dead_letters(1))
            .run();
    }
}
