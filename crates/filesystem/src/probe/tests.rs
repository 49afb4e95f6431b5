//! Probes of file systems with a missing feature.

use std::cell::Cell;
use std::fs;

use rustix::io::Errno;

use super::*;

const ALL: [Feature; 6] = [
    Feature::ExclusiveCreate,
    Feature::Locks,
    Feature::Rename,
    Feature::RenameToFree,
    Feature::Sync,
    Feature::FolderSync,
];

/// A file system without one feature. It returns an error, or behaves wrongly.
struct Lacking {
    feature: Feature,
    says: Option<Errno>,
    is_full: Cell<bool>,
}

impl Lacking {
    fn lacks<T>(
        &self,
        feature: Feature,
        does: impl FnOnce() -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        if self.is_full.get() {
            return Some(Err(io::ErrorKind::StorageFull.into()));
        }
        (self.feature == feature).then(|| match self.says {
            Some(says) => Err(says.into()),
            None => does(),
        })
    }
}

impl FileSystem for Lacking {
    fn create_new(&self, path: &Path) -> io::Result<File> {
        if !path.exists() {
            return System.create_new(path);
        }
        let lacking = self.lacks(Feature::ExclusiveCreate, || File::create(path));
        lacking.unwrap_or_else(|| System.create_new(path))
    }

    fn try_lock(&self, file: &File) -> io::Result<bool> {
        let lacking = self.lacks(Feature::Locks, || Ok(true));
        lacking.unwrap_or_else(|| System.try_lock(file))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        // A sync without effect cannot be detected.
        let lacking = self.lacks(Feature::Sync, || Err(Errno::IO.into()));
        lacking.unwrap_or_else(|| System.sync(file))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let lacking = self.lacks(Feature::FolderSync, || Err(Errno::INVAL.into()));
        lacking.unwrap_or_else(|| System.sync_folder(folder))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let copy = || fs::copy(from, to).and_then(|_| fs::remove_file(from));
        let lacking = self.lacks(Feature::Rename, copy);
        lacking.unwrap_or_else(|| System.rename(from, to))
    }

    fn rename_to_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        let replace = || fs::rename(from, to).map(|()| true);
        let lacking = self.lacks(Feature::RenameToFree, replace);
        lacking.unwrap_or_else(|| System.rename_to_free(from, to))
    }
}

fn probed(calls: &impl FileSystem, features: &[Feature]) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let probed = probe_with(calls, &folder.path().join("not/yet"), features, "a test");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left"
    );
    probed
}

#[test]
fn a_usual_file_system_has_all_features() {
    probed(&System, &ALL).unwrap();
    for feature in ALL {
        probed(&System, &[feature]).unwrap();
    }
}

#[test]
fn each_missing_feature_is_named_whether_the_system_says_so_or_not() {
    for feature in ALL {
        for says in [
            None,
            Some(Errno::NOSYS),
            Some(Errno::OPNOTSUPP),
            Some(Errno::PERM),
        ] {
            let calls = Lacking {
                feature,
                says,
                is_full: Cell::new(false),
            };
            let error = probed(&calls, &ALL).unwrap_err();
            assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(feature.name()) && text.contains("a test"),
                "{text}"
            );
            let others: Vec<_> = ALL.into_iter().filter(|other| *other != feature).collect();
            probed(&calls, &others).unwrap();
        }
    }
}

#[test]
fn a_full_disk_lacks_nothing() {
    let calls = Lacking {
        feature: Feature::Sync,
        says: None,
        is_full: Cell::new(true),
    };
    let error = probed(&calls, &ALL).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DiskFull, "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_no_unsuitable_one() {
    let error = probe(Path::new("/proc/self"), &ALL, "a test").unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
}

#[test]
fn locks_that_the_system_refuses_are_missing_and_locks_that_others_have_are_not() {
    let path = Path::new("/data/out.part");
    let error = lacks_locks(path, &Errno::NOLCK.into(), "a test").unwrap();
    assert!(
        error.to_string().contains("/data has no file locks"),
        "{error}"
    );
    for other in [io::ErrorKind::WouldBlock, io::ErrorKind::PermissionDenied] {
        assert!(
            lacks_locks(path, &other.into(), "a test").is_none(),
            "{other}"
        );
    }
}

#[test]
fn files_of_probes_that_were_killed_go_after_an_hour() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, age_minutes: u64| {
        let path = folder.path().join(name);
        let age = Duration::from_secs(age_minutes * 60);
        let file = File::create(&path).expect("made");
        file.set_modified(std::time::SystemTime::now() - age)
            .expect("set");
        path
    };
    let old = file(".ardea-probe-00-1.part", 61);
    let young = file(".ardea-probe-01-1.part", 1);
    let other = file(".ardea.part", 61);
    probe(folder.path(), &[Feature::Rename], "a test").expect("has it");
    assert_eq!(
        [old, young, other].map(|path| path.exists()),
        [false, true, true]
    );
}
