//! Tests with a folder that refuses writes, like a full disk. Committed checkpoints stay intact,
//! and no unreferenced files remain once writes succeed again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use ardea_checkpoint::store::*;
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;

use crate::site::*;

/// A store that refuses writes after a number of written files.
#[derive(Debug, Default)]
struct Refusing {
    files: MemoryStore,
    /// The number of writes still accepted.
    left: AtomicI64,
    /// True to store refused files nevertheless, as if only the last step had failed.
    writes_all_the_same: AtomicBool,
    /// True to refuse the removal of files too.
    keeps: AtomicBool,
    /// True to fail reads of manifests.
    hides_manifests: AtomicBool,
}

impl Refusing {
    fn is_refused(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) <= 0
    }

    fn has_space_again(&self) {
        self.left.store(i64::MAX, Ordering::SeqCst);
        self.keeps.store(false, Ordering::SeqCst);
    }
}

impl ObjectStore for Refusing {
    fn place(&self) -> String {
        "a small disk".to_string()
    }
    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        let is_refused = self.is_refused();
        if !is_refused || self.writes_all_the_same.load(Ordering::SeqCst) {
            self.files.write(name, bytes)?;
        }
        match is_refused {
            true => Err(Error::new(ErrorCode::DiskFull, "no space")),
            false => Ok(()),
        }
    }
    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        let is_manifest = name.as_str().ends_with(".manifest");
        if is_manifest && self.hides_manifests.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorCode::ReadFailed, "nobody answers"));
        }
        self.files.read(name)
    }
    fn list(&self) -> Result<Vec<FileEntry>> {
        self.files.list()
    }
    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        if self.keeps.load(Ordering::SeqCst) && self.left.load(Ordering::SeqCst) <= 0 {
            return Err(Error::new(ErrorCode::WriteFailed, "nothing can be removed"));
        }
        self.files.remove(files)
    }
}

/// A job that continues after refused writes as long as possible.
struct Job {
    store: CheckpointStore,
    model: Model,
    changed: BTreeSet<Key>,
    epoch: u8,
    base: Option<(CheckpointId, Model)>,
}

impl Job {
    /// Runs an epoch: changes some entries, writes a snapshot, commits, compacts and collects
    /// garbage.
    fn epoch(&mut self) -> Result<()> {
        self.epoch += 1;
        let epoch = self.epoch;
        for number in 0..3u8 {
            let key = (
                "s",
                some_partition(u32::from(number + epoch % 4)),
                vec![number],
            );
            match (number + epoch) % 4 {
                0 => drop(self.model.remove(&key)),
                _ => drop(self.model.insert(key.clone(), vec![epoch; 30])),
            }
            self.changed.insert(key);
        }
        let id = id(1, u64::from(epoch));
        let since = self.base.as_ref().map(|(id, _)| *id);
        let of = snapshot_of(id, 0, 1);
        let snapshot = match since {
            None => write_full(&self.store, of, &self.model)?,
            Some(since) => write_increment(&self.store, of, since, &self.model, &self.changed)?,
        };
        self.store.commit(&commit(id, since, vec![snapshot]))?;
        self.changed.clear();
        self.base = Some((id, self.model.clone()));
        if let Some(mut fold) = self.store.begin_compaction() {
            while fold.step(100)? == CompactionProgress::More {}
        }
        self.store.collect()?;
        self.store.sweep(id.next())?;
        Ok(())
    }

    /// Checks that the newest checkpoint is the last committed one, and that all listed ones are
    /// intact.
    fn check(&self) {
        for id in self.store.checkpoints() {
            let checkpoint = self.store.checkpoint(id).expect("it is there");
            checkpoint.verify().expect("whole");
        }
        let latest = self.store.latest().expect("whole");
        assert_eq!(
            latest.as_ref().map(Checkpoint::id),
            self.base.as_ref().map(|(id, _)| *id)
        );
        if let (Some(latest), Some((_, model))) = (latest, &self.base) {
            assert_eq!(read(&latest, 2).expect("read"), *model);
        }
    }
}

fn run(allowed: i64, writes_all_the_same: bool, keeps: bool) {
    let folder = Arc::new(Refusing {
        left: AtomicI64::new(allowed),
        writes_all_the_same: AtomicBool::new(writes_all_the_same),
        keeps: AtomicBool::new(keeps),
        ..Refusing::default()
    });
    let store = CheckpointStore::open(Arc::clone(&folder) as Arc<dyn ObjectStore>, JOB, small());
    let mut job = Job {
        store: store.expect("opened"),
        model: Model::new(),
        changed: BTreeSet::new(),
        epoch: 0,
        base: None,
    };
    let mut refused = 0;
    while refused < 3 && job.epoch < 40 {
        if let Err(error) = job.epoch() {
            let is_told = matches!(error.code(), ErrorCode::DiskFull | ErrorCode::WriteFailed);
            assert!(is_told, "{error}");
            refused += 1;
        }
        job.check();
    }
    assert_eq!(refused, 3, "it was refused in the end");
    folder.has_space_again();
    for _ in 0..5 {
        job.epoch().expect("there is space");
        job.check();
    }
    let store = CheckpointStore::open(Arc::clone(&folder) as Arc<dyn ObjectStore>, JOB, small())
        .expect("opened");
    store.collect().expect("collected");
    store.sweep(id(2, 0)).expect("swept");
    assert_nothing_is_left(&folder.files);
}

#[test]
fn a_manifest_that_could_not_be_read_is_tried_again_by_whoever_asks_and_before_anything_goes() {
    let folder = Arc::new(Refusing::default());
    folder.has_space_again();
    let open = || CheckpointStore::open(Arc::clone(&folder) as Arc<dyn ObjectStore>, JOB, small());
    let mut job = Job {
        store: open().expect("opened"),
        model: Model::new(),
        changed: BTreeSet::new(),
        epoch: 0,
        base: None,
    };
    for _ in 0..5 {
        job.epoch().expect("there is space");
    }
    let there = job.store.checkpoints();

    folder.hides_manifests.store(true, Ordering::SeqCst);
    let store = open().expect("opened");
    assert!(store.checkpoints().is_empty());
    assert_eq!(store.damaged().len(), there.len());
    let newest = *there.last().expect("some");
    let why = store.checkpoint(newest).expect_err("nobody answers");
    assert_eq!(why.code(), ErrorCode::ReadFailed);
    // No file to which an unreadable manifest may refer is removed.
    assert_eq!(store.sweep(newest.next()).expect("swept").files, 0);

    folder.hides_manifests.store(false, Ordering::SeqCst);
    store
        .checkpoint(newest)
        .expect("it answers")
        .verify()
        .expect("whole");
    store.collect().expect("collected");
    assert_eq!((store.checkpoints(), store.damaged().len()), (there, 0));
    job.store = store;
    job.check();
    job.epoch().expect("it goes on");
    job.check();
}

#[test]
fn a_full_disk_leaves_all_that_was_committed_and_nothing_else() {
    for allowed in 0..60 {
        run(allowed, false, false);
    }
}

#[test]
fn a_file_that_was_refused_but_is_there_all_the_same_makes_no_checkpoint() {
    for allowed in 0..60 {
        run(allowed, true, false);
    }
}

#[test]
fn a_folder_that_can_neither_write_nor_remove_leaves_no_doubt_in_the_end() {
    for allowed in 0..60 {
        run(allowed, true, true);
    }
}
