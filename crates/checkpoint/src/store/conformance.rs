//! A test suite for implementations of [`ObjectStore`].
//!
//! Each check takes an empty folder, and panics with the violated requirement.

use std::collections::BTreeSet;

use ardea_core::ErrorCode;
use bytes::Bytes;

use crate::store::{FileName, FileState, ObjectStore};

/// A check: its name, and a function that runs it on a store.
pub type Check = (&'static str, fn(&dyn ObjectStore));

/// All checks; each requires a new folder.
pub const CHECKS: &[Check] = &[
    (
        "a file is there as it was written until it is removed",
        written_until_removed,
    ),
    ("a file is never changed", never_changed),
    ("of several writers of one name one succeeds", taken_once),
    (
        "removing an unfinished file keeps the complete one",
        whole_stays,
    ),
    ("writes and removals may be concurrent", many_at_once),
];

fn name(name: &str) -> FileName {
    FileName::new(name).expect("a name")
}

fn names(folder: &dyn ObjectStore) -> BTreeSet<String> {
    let listed = folder.list().expect("listed");
    assert!(listed.iter().all(|file| file.state == FileState::Whole));
    listed.iter().map(|file| file.name.to_string()).collect()
}

fn written_until_removed(folder: &dyn ObjectStore) {
    assert_eq!(folder.read(&name("a")).expect("read"), None);
    assert!(folder.is_empty().expect("listed"));
    for content in [&b""[..], b"x", &[7; 100_000]] {
        let name = name(&format!("f{}", content.len()));
        folder.write(&name, content).expect("written");
        assert_eq!(folder.read(&name).expect("read").as_deref(), Some(content));
        let listed = folder.list().expect("listed");
        let file = listed
            .iter()
            .find(|file| file.name == name)
            .expect("it is there");
        assert_eq!(file.bytes, content.len() as u64);
        assert!(!folder.is_empty().expect("listed"));
    }
    let gone = [
        (name("f1"), FileState::Whole),
        (name("never"), FileState::Whole),
    ];
    for _ in 0..2 {
        folder.remove(&gone).expect("removed");
        assert_eq!(names(folder), ["f0", "f100000"].map(String::from).into());
    }
    folder.remove(&[]).expect("nothing");
}

fn never_changed(folder: &dyn ObjectStore) {
    folder.write(&name("a"), b"hello").expect("written");
    folder.write(&name("a"), b"hello").expect("as it is there");
    let error = folder.write(&name("a"), b"other").expect_err("taken");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    assert!(error.to_string().contains(&folder.place()), "{error}");
    let files = [
        (name("b"), Bytes::from("x")),
        (name("a"), Bytes::from("other")),
    ];
    assert!(folder.write_all(&files).is_err());
    assert_eq!(
        folder.read(&name("a")).expect("read").as_deref(),
        Some(&b"hello"[..])
    );
}

fn taken_once(folder: &dyn ObjectStore) {
    for round in 0..10 {
        let file = name(&format!("f{round}"));
        let taken: Vec<u8> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|thread| {
                    let file = &file;
                    scope.spawn(move || folder.write(file, &[thread; 50]).map(|()| thread))
                })
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.filter_map(|end| end.expect("no panic").ok()).collect()
        });
        let [winner] = taken[..] else {
            panic!("{taken:?} have taken one name");
        };
        let there = folder.read(&file).expect("read").expect("it is there");
        assert_eq!(there, [winner; 50][..]);
    }
}

fn whole_stays(folder: &dyn ObjectStore) {
    folder.write(&name("a"), b"hello").expect("written");
    folder
        .remove(&[(name("a"), FileState::Unfinished(7))])
        .expect("removed");
    assert_eq!(names(folder), ["a".to_string()].into());
}

fn many_at_once(folder: &dyn ObjectStore) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..20 {
                    let file = name(&format!("f{thread}-{number}"));
                    folder.write(&file, &[thread; 50]).expect("written");
                    folder.list().expect("listed");
                    if number % 2 == 0 {
                        folder.remove(&[(file, FileState::Whole)]).expect("removed");
                    }
                }
            });
        }
    });
    assert_eq!(names(folder).len(), 40);
}
