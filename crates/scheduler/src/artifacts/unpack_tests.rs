//! Hostile and broken packages: nothing leaves the folder, nothing exceeds the limits, nothing
//! panics.

use super::*;
use proptest::prelude::*;
use tar::Header;

/// Builds one record of a tar, with an arbitrary name.
fn record(name: &[u8], kind: EntryType, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    header.set_mtime(7);
    if let Some(header) = header.as_gnu_mut() {
        header.name[..name.len()].copy_from_slice(name);
        header.linkname[..target.len()].copy_from_slice(target.as_bytes());
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str) -> Vec<u8> {
    record(name.as_bytes(), EntryType::Regular, "", b"x")
}

fn link(name: &str, target: &str) -> Vec<u8> {
    record(name.as_bytes(), EntryType::Symlink, target, b"")
}

/// Unpacks a tar into `inside` of a folder whose other file must not change. Returns the manifest.
fn unpacked_within(records: &[Vec<u8>], limits: &Limits) -> Result<Manifest> {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("made");
    fs::write(folder.path().join("secret"), "untouched").expect("written");
    let mut bytes = records.concat();
    bytes.resize(bytes.len() + 1_024, 0);
    let package = zstd::encode_all(&*bytes, 1).expect("compressed");
    let outcome = unpack(&*package, &Digest::of(&package), &inside, limits);
    let names: Vec<_> = fs::read_dir(folder.path()).expect("read").collect();
    assert_eq!(names.len(), 2, "something came beside the folder");
    let secret = fs::read_to_string(folder.path().join("secret")).expect("there");
    assert_eq!(secret, "untouched");
    if let Ok(manifest) = &outcome {
        assert_eq!(
            manifest.differs(&inside, crate::artifacts::manifest::Check::Thorough),
            None
        );
    }
    outcome
}

fn unpacked(records: &[Vec<u8>]) -> Result<Manifest> {
    unpacked_within(records, &Limits::default())
}

#[test]
fn what_would_lead_out_of_the_folder_is_refused() {
    let hostile: [(&str, Vec<Vec<u8>>); 12] = [
        ("an absolute name", vec![file("/tmp/x")]),
        ("a name upwards", vec![file("../secret")]),
        ("a name upwards within", vec![file("a/../../secret")]),
        ("an absolute link", vec![link("a", "/etc")]),
        ("a link upwards", vec![link("a", "../secret")]),
        ("a file through a link", vec![link("a", "."), file("a/x")]),
        ("a file over a link", vec![link("a", "b"), file("a")]),
        ("a link over a file", vec![file("a"), link("a", "b")]),
        ("a file twice", vec![file("a"), file("a")]),
        (
            "a folder over a link",
            vec![link("a", "."), record(b"a", EntryType::Directory, "", b"")],
        ),
        (
            "a link through a link",
            vec![link("d/e", "."), link("x", "d/e/../..")],
        ),
        (
            "a hard link",
            vec![record(b"a", EntryType::Link, "../secret", b"")],
        ),
    ];
    for (what, records) in hostile {
        let error = unpacked(&records).expect_err(what);
        assert_eq!(error.code(), ErrorCode::PackageRefused, "{what}: {error}");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    for kind in [
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::GNUSparse,
        EntryType::XHeader,
    ] {
        let error = unpacked(&[record(b"a", kind, "", b"")]).expect_err("no file");
        assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
    }
    let error = unpacked(&[record(b"\xff\xfe", EntryType::Regular, "", b"")]).expect_err("no text");
    assert!(error.to_string().contains("UTF-8"), "{error}");
}

#[test]
fn ordinary_tars_of_other_programs_are_unpacked() {
    let manifest = unpacked(&[
        record(b"./", EntryType::Directory, "", b""),
        file("./bin/run"),
        link("./lib", "bin/run"),
        link("bin/up", "../lib"),
        record(b"bin/", EntryType::Directory, "", b""),
    ]);
    let names: Vec<_> = manifest
        .expect("harmless")
        .entries
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, ["bin", "bin/run", "lib", "bin/up"]);
}

#[test]
fn a_bomb_is_stopped_at_the_limits() {
    let limits = Limits {
        unpacked_bytes: 1 << 20,
        entries: 10,
        ..Limits::default()
    };
    let zeros = record(b"zeros", EntryType::Regular, "", &vec![0; 2 << 20]);
    let error = unpacked_within(&[zeros], &limits).expect_err("too many bytes");
    assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
    assert!(error.to_string().contains("1048576"), "{error}");
    let many: Vec<_> = (0..11).map(|n| file(&format!("f{n}"))).collect();
    let error = unpacked_within(&many, &limits).expect_err("too many entries");
    assert!(error.to_string().contains("10"), "{error}");
    // A name of a megabyte is not read to its end.
    let long = record(
        b"././@LongLink",
        EntryType::GNULongName,
        "",
        &vec![b'n'; 1 << 20],
    );
    let error = unpacked(&[long, file("x")]).expect_err("a long name");
    assert!(error.to_string().contains("longer than"), "{error}");
    // The header announces more bytes than the tar has.
    let mut lying = file("x");
    lying[124..135].copy_from_slice(b"77777777777");
    let mut header = Header::from_byte_slice(&lying[..512]).clone();
    header.set_cksum();
    lying[..512].copy_from_slice(header.as_bytes());
    assert_eq!(
        unpacked(&[lying]).expect_err("lying").code(),
        ErrorCode::PackageCorrupt
    );
}

#[test]
fn files_are_as_they_were_packed_long_names_and_links_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("from");
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(180));
    fs::create_dir_all(from.join("d".repeat(120))).expect("made");
    fs::write(from.join(&long), "long").expect("written");
    fs::write(from.join("run"), vec![7; 300_000]).expect("written");
    fs::set_permissions(from.join("run"), fs::Permissions::from_mode(0o750)).expect("set");
    std::os::unix::fs::symlink(&long, from.join("far")).expect("a link");
    fs::create_dir(from.join("empty")).expect("made");
    let packed = crate::artifacts::Contents::of_folder(&from)
        .and_then(|c| c.pack(folder.path()))
        .expect("packed");
    let to = folder.path().join("to");
    fs::create_dir(&to).expect("made");
    let package = File::open(packed.path()).expect("there");
    let manifest = unpack(package, packed.digest(), &to, &Limits::default()).expect("unpacked");
    assert_eq!(manifest.bytes, 300_004);
    assert_eq!(
        fs::read_to_string(to.join("far")).expect("through the link"),
        "long"
    );
    let mode = |name: &str| {
        fs::metadata(to.join(name))
            .expect("there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("run"), mode(&long)), (0o555, 0o444));
    assert!(to.join("empty").is_dir());
}

proptest! {
    #[test]
    fn garbage_and_damage_do_not_panic(
        mut package in prop::collection::vec(any::<u8>(), 0..2_000),
        at in any::<prop::sample::Index>(),
        to: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let digest = Digest::of(b"");
        let _ = unpack(&*package, &digest, folder.path(), &Limits::default());
        // As the content of an intact compressed stream, after a good record.
        package.splice(0..0, file("good"));
        let byte = at.index(package.len());
        package[byte] = to;
        let mut good = zstd::encode_all(&*package, 1).expect("compressed");
        let other = tempfile::tempdir().expect("a folder");
        let _ = unpack(&*good, &digest, other.path(), &Limits::default());
        good.truncate(cut.index(good.len()));
        let cut = tempfile::tempdir().expect("a folder");
        let _ = unpack(&*good, &digest, cut.path(), &Limits::default());
    }
}
