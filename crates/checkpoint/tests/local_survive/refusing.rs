//! Tests with a disk that is full for some time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RecoveryEvent};
use ardea_checkpoint::store::{FileEntry, FileName, FileState, MemoryStore, ObjectStore};
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;

use crate::site::{ReceivedNotices, often, quick, run, until, with};
use crate::windows::Windows;

const NUMBERS: u64 = 40_000;

/// A store that refuses writes while it is full.
#[derive(Debug, Default)]
struct Filling {
    files: MemoryStore,
    is_full: AtomicBool,
    /// True to refuse job records too while the store is full.
    refuses_records: AtomicBool,
    /// The number of refused records that contain the end of the job.
    refuses_ends: AtomicUsize,
    /// True to store the next job record without an answer, and then become unavailable.
    leaves_with_record: AtomicBool,
    is_away: AtomicBool,
    /// True to fail reads of blocks.
    hides_blocks: AtomicBool,
    /// The number of requests while the store was unavailable.
    missed: AtomicUsize,
}

impl Filling {
    fn here(&self) -> Result<()> {
        if self.is_away.load(Ordering::SeqCst) {
            self.missed.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorCode::WriteFailed, "nobody answers"));
        }
        Ok(())
    }

    fn refuses(&self, name: &FileName, bytes: &[u8]) -> bool {
        let is_end = || {
            let end = b"\"end\":\"completed\"";
            bytes.windows(end.len()).any(|part| part == end)
        };
        let one_less = |left: usize| left.checked_sub(1);
        let is_record = name.as_str().ends_with(".record");
        self.is_full.load(Ordering::SeqCst)
            || is_record && self.refuses_records.load(Ordering::SeqCst)
            || is_record
                && is_end()
                && self
                    .refuses_ends
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                    .is_ok()
    }
}

impl ObjectStore for Filling {
    fn place(&self) -> String {
        self.files.place()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.here()?;
        if self.refuses(name, bytes) {
            return Err(Error::new(ErrorCode::DiskFull, "no space is left"));
        }
        self.files.write(name, bytes)?;
        if name.as_str().ends_with(".record")
            && self.leaves_with_record.swap(false, Ordering::SeqCst)
        {
            self.is_away.store(true, Ordering::SeqCst);
        }
        self.here()
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        self.here()?;
        if name.as_str().ends_with(".block") && self.hides_blocks.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorCode::ReadFailed,
                "the disk does not answer",
            ));
        }
        self.files.read(name)
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        self.here()?;
        self.files.list()
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        self.here()?;
        self.files.remove(files)
    }
}

#[test]
fn a_job_goes_on_while_its_disk_is_full_and_commits_when_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let job = Windows::within(folder.path(), NUMBERS);
    let disk = Arc::new(Filling::default());
    let told = ReceivedNotices::default();
    let within = FaultTolerance::within(Arc::clone(&disk) as Arc<dyn ObjectStore>);
    let survival = told.of(often(within));
    let survived = with(&job, &survival, |handle| {
        until("a checkpoint is made", || handle.figures().checkpoints > 0);
        disk.is_full.store(true, Ordering::SeqCst);
        until("people are told", || {
            let is_told =
                |notice: &RecoveryEvent| matches!(notice, RecoveryEvent::NoCheckpoints { .. });
            handle.is_over() || told.any(is_told)
        });
        assert!(handle.figures().aborted > 0);
        disk.is_full.store(false, Ordering::SeqCst);
    });
    assert_eq!(survived.unwrap().end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn a_job_that_can_not_read_what_it_goes_back_to_waits_until_it_can_however_often_it_may_fail() {
    let folder = tempfile::tempdir().unwrap();
    let job = Windows::within(folder.path(), NUMBERS);
    let disk = Arc::new(Filling::default());
    let told = ReceivedNotices::default();
    let within = FaultTolerance::within(Arc::clone(&disk) as Arc<dyn ObjectStore>);
    let survival = told.of(often(within).attempts(1));
    let survived = with(&job, &survival, |handle| {
        until("a checkpoint is made", || handle.figures().checkpoints > 0);
        disk.hides_blocks.store(true, Ordering::SeqCst);
        job.mishap.store(10, Ordering::SeqCst);
        until("people are told", || {
            let is_told = |notice: &RecoveryEvent| matches!(notice, RecoveryEvent::Waiting { .. });
            handle.is_over() || told.any(is_told)
        });
        // In this time the job polls the store several times. If a poll counted as a failure, the
        // job would fail.
        let end = std::time::Instant::now() + Duration::from_secs(1);
        until("it has looked again", || std::time::Instant::now() > end);
        disk.hides_blocks.store(false, Ordering::SeqCst);
    });
    let survived = survived.unwrap();
    assert_eq!(
        (survived.end, survived.figures.recoveries),
        (JobEnd::Completed, 1)
    );
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}

#[test]
fn a_job_without_any_room_waits_for_some_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 3_000);
    let disk = Arc::new(Filling::default());
    disk.is_full.store(true, Ordering::SeqCst);
    let told = ReceivedNotices::default();
    let within = FaultTolerance::within(Arc::clone(&disk) as Arc<dyn ObjectStore>);
    let survival = told.of(often(within));
    with(&job, &survival, |_| {
        until("people are told", || {
            told.any(|notice| matches!(notice, RecoveryEvent::RecordRefused { .. }))
        });
        disk.is_full.store(false, Ordering::SeqCst);
    })
    .unwrap();
    assert_eq!(job.published(), Windows::expected(3_000));
}

#[test]
fn a_job_whose_end_finds_no_room_waits_for_some_however_often_it_may_fail() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 3_000);
    let disk = Arc::new(Filling::default());
    let told = ReceivedNotices::default();
    let within = FaultTolerance::within(Arc::clone(&disk) as Arc<dyn ObjectStore>);
    // No epoch ends except the last one.
    let rarely = often(within).every(Duration::from_secs(600)).attempts(1);
    let survival = told.of(rarely);
    let survived = with(&job, &survival, |handle| {
        until("it lives", || handle.job().is_some());
        disk.is_full.store(true, Ordering::SeqCst);
        until("people are told", || {
            let is_told = |notice: &RecoveryEvent| {
                matches!(notice, RecoveryEvent::FinalStateNotWritten { .. })
            };
            handle.is_over() || told.any(is_told)
        });
        disk.is_full.store(false, Ordering::SeqCst);
    });
    assert_eq!(survived.unwrap().end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(3_000));
}

#[test]
fn a_job_that_has_completed_waits_until_that_can_be_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 3_000);
    let disk = Arc::new(Filling::default());
    disk.refuses_ends.store(2, Ordering::SeqCst);
    let told = ReceivedNotices::default();
    let within = || {
        often(FaultTolerance::within(
            Arc::clone(&disk) as Arc<dyn ObjectStore>
        ))
    };
    let survived = run(&job, &told.of(within())).unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    let is_told =
        |notice: &&RecoveryEvent| matches!(notice, RecoveryEvent::FinalStateNotWritten { .. });
    assert_eq!(told.all().iter().filter(is_told).count(), 1);
    assert_eq!(disk.refuses_ends.load(Ordering::SeqCst), 0);
    let again = run(&job, &within()).unwrap();
    assert_eq!(again.end, JobEnd::CompletedBefore);
}

#[test]
fn nothing_of_another_process_is_swept_before_this_one_has_recorded_that_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let job = quick(folder.path(), 3_000);
    let disk = Arc::new(Filling::default());
    let block = FileName::new("block-0-7-00000000000000ff-0.block").unwrap();
    disk.files.write(&block, b"of a snapshot").unwrap();
    disk.refuses_records.store(true, Ordering::SeqCst);
    let told = ReceivedNotices::default();
    let within = FaultTolerance::within(Arc::clone(&disk) as Arc<dyn ObjectStore>);
    let survival = told.of(often(within));
    with(&job, &survival, |handle| {
        until("people are told", || {
            told.any(|notice| matches!(notice, RecoveryEvent::RecordRefused { .. }))
        });
        handle.cancel();
    })
    .unwrap_err();
    assert!(disk.read(&block).unwrap().is_some());
    disk.refuses_records.store(false, Ordering::SeqCst);
    run(&job, &survival).unwrap();
    assert_eq!(disk.read(&block).unwrap(), None);
}

#[test]
fn a_job_goes_on_when_its_place_was_away_and_had_stored_a_record_without_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let job = Windows::within(folder.path(), NUMBERS);
    let disk = Arc::new(Filling::default());
    let survival = often(FaultTolerance::within(
        Arc::clone(&disk) as Arc<dyn ObjectStore>
    ));
    let survived = with(&job, &survival, |handle| {
        until("a checkpoint is made", || handle.figures().checkpoints > 0);
        disk.leaves_with_record.store(true, Ordering::SeqCst);
        until("it is asked in vain", || {
            handle.is_over() || disk.missed.load(Ordering::SeqCst) > 6
        });
        let made = handle.figures().checkpoints;
        disk.is_away.store(false, Ordering::SeqCst);
        until("checkpoints are made again", || {
            handle.is_over() || handle.figures().checkpoints > made + 1
        });
    });
    assert_eq!(survived.unwrap().end, JobEnd::Completed);
    assert_eq!(job.published(), Windows::expected(NUMBERS));
}
