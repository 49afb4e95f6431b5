//! What every folder promises, on the disk and in memory.

use std::collections::BTreeSet;

use ardea_core::ErrorCode;
use ardea_snapshot::*;
use bytes::Bytes;

/// Does something with an empty folder of each kind.
fn with_each(act: impl Fn(&dyn Folder)) {
    let temporary = tempfile::tempdir().expect("a folder");
    act(&DiskFolder::open(temporary.path()).expect("opened"));
    act(&MemoryFolder::new());
}

fn name(name: &str) -> FileName {
    FileName::new(name).expect("a name")
}

fn names(folder: &dyn Folder) -> BTreeSet<String> {
    let listed = folder.list().expect("listed");
    assert!(listed.iter().all(|file| file.state == FileState::Whole));
    listed.iter().map(|file| file.name.to_string()).collect()
}

#[test]
fn a_file_is_there_as_it_was_written_until_it_is_removed() {
    with_each(|folder| {
        assert_eq!(folder.read(&name("a")).expect("read"), None);
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
    });
}

#[test]
fn a_file_is_never_changed() {
    with_each(|folder| {
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
    });
}

#[test]
fn removing_what_is_unfinished_leaves_what_is_whole() {
    with_each(|folder| {
        folder.write(&name("a"), b"hello").expect("written");
        folder
            .remove(&[(name("a"), FileState::Unfinished(7))])
            .expect("removed");
        assert_eq!(names(folder), ["a".to_string()].into());
    });
}

#[test]
fn many_may_write_and_remove_at_once() {
    with_each(|folder| {
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
    });
}
