//! Tests of files that get their names when they are complete.

use super::*;

#[test]
fn two_writers_of_one_file_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/out");
    let mut first = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    first.write(b"mine").unwrap();
    let error = PartFile::create(path.clone(), Compression::None, |_| true).expect_err("an error");
    assert!(error.to_string().contains("another job"), "{error}");
    first.finish(true).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"mine");
}

#[test]
fn what_an_earlier_run_left_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut part = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    part.write(b"a long beginning").unwrap();
    drop(part);
    assert!(!path.exists());
    let mut part = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    part.write(b"new").unwrap();
    part.finish(false).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"new");
}

#[test]
fn a_part_that_became_whole_between_opening_and_locking_is_not_taken_for_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut first = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    first.write(b"whole").unwrap();
    let part = first.part.clone().unwrap();
    let mut first = Some(first);
    let second = locked(&part, NEW_FILE, || {
        if let Some(first) = first.take() {
            first.finish(false).unwrap();
        }
    });
    second.unwrap().set_len(0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert!(part.exists(), "the second writer has a part of its own");
}

#[test]
fn a_part_that_was_replaced_does_not_become_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut part = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    part.write(b"mine").unwrap();
    fs::write(dir.path().join("theirs"), "theirs").unwrap();
    fs::rename(dir.path().join("theirs"), dir.path().join("out.part")).unwrap();
    let error = part.finish(false).expect_err("an error");
    assert!(error.to_string().contains("was replaced"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_part_that_is_a_link_or_a_pipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("other"), "other").unwrap();
    std::os::unix::fs::symlink(at("other"), at("a.part")).unwrap();
    crate::testing::named_pipe(&at("b.part"));
    for name in ["a", "b"] {
        let error = PartFile::create(at(name), Compression::None, |_| true);
        assert_eq!(error.expect_err(name).code(), ErrorCode::WriteFailed);
    }
    assert_eq!(fs::read(at("other")).unwrap(), b"other");
}

#[test]
fn a_link_in_a_circle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("round");
    std::os::unix::fs::symlink("round", &path).unwrap();
    let error = PartFile::create(path.clone(), Compression::None, |_| true);
    assert_eq!(error.unwrap_err().code(), ErrorCode::WriteFailed);
    assert!(path.is_symlink());
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(path, mode).unwrap();
}

#[test]
fn a_file_that_is_written_anew_keeps_its_mode_from_its_first_byte_on() {
    let dir = tempfile::tempdir().unwrap();
    let (path, part) = (dir.path().join("out"), dir.path().join("out.part"));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("out", &link).unwrap();
    for (mode, left) in [(0o600, None), (0o640, Some(0o666)), (0o664, Some(0o600))] {
        fs::write(&path, "old").unwrap();
        set_mode(&path, mode);
        if let Some(left) = left {
            fs::write(&part, "left by an earlier run").unwrap();
            set_mode(&part, left);
        }
        let mut file = PartFile::create(link.clone(), Compression::None, |_| true).unwrap();
        assert_eq!(mode_of(&part), mode);
        file.write(b"new").unwrap();
        file.finish(false).unwrap();
        assert_eq!(
            (mode_of(&path), fs::read(&path).unwrap()),
            (mode, b"new".to_vec())
        );
        assert!(
            link.is_symlink(),
            "the file is replaced, and not the link to it"
        );
    }
    let file = PartFile::create(path.clone(), Compression::Gzip, |_| true).unwrap();
    set_mode(&path, 0o400);
    file.finish(false).unwrap();
    assert_eq!(mode_of(&path), 0o400, "what was changed meanwhile counts");
}

#[test]
fn a_new_file_follows_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // The umask cannot be read without changing it for all threads.
    fs::write(at("usual"), "").unwrap();
    let file = PartFile::create(at("new"), Compression::None, |_| true).unwrap();
    file.finish(false).unwrap();
    let part = with_suffix(&at("numbered"), PART_SUFFIX);
    let file = PartFile::create_new(at("numbered"), part, Compression::None).unwrap();
    file.unwrap().finish(false).unwrap();
    for name in ["new", "numbered"] {
        assert_eq!(mode_of(&at(name)), mode_of(&at("usual")), "{name}");
    }
}

#[test]
fn a_discarded_file_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    fs::write(&path, "old").unwrap();
    let mut part = PartFile::create(path.clone(), Compression::None, |_| true).unwrap();
    part.write(b"new").unwrap();
    part.discard();
    assert_eq!(fs::read(path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
