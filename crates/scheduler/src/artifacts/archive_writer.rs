//! The package writer: a tar without times and owners, compressed and hashed while it is written to
//! a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use tempfile::TempPath;

use crate::artifacts::contents::{Contents, Origin};
use crate::artifacts::digest::Hasher;
use crate::artifacts::failure::{unreadable, unwritable};
use crate::artifacts::{Digest, Limits};

/// The zstd compression level; zstd's default.
const LEVEL: i32 = 3;

/// A package in a file of this machine.
#[derive(Debug)]
pub struct Packed {
    place: PackageLocation,
    digest: Digest,
    bytes: u64,
}

#[derive(Debug)]
enum PackageLocation {
    /// A temporary file, removed when the package is dropped.
    Temporary(TempPath),
    Lasting(std::path::PathBuf),
}

impl Packed {
    /// Opens an existing package file, and computes its digest.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) if the file can't be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (digest, bytes) = hash_file(path).map_err(|error| unreadable(path, error))?;
        Ok(Packed {
            place: PackageLocation::Lasting(path.to_path_buf()),
            digest,
            bytes,
        })
    }

    /// Returns the path of the package's file.
    pub fn path(&self) -> &Path {
        match &self.place {
            PackageLocation::Temporary(path) => path,
            PackageLocation::Lasting(path) => path,
        }
    }

    /// Returns the digest of the package.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the package's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the digest and size of a file.
pub(crate) fn hash_file(path: &Path) -> io::Result<(Digest, u64)> {
    hash(File::open(path)?)
}

/// Returns the digest and length of the remaining input.
pub(crate) fn hash(mut file: impl Read) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut bytes) = (Hasher::default(), 0);
    let mut part = vec![0; 256 << 10];
    loop {
        match file.read(&mut part)? {
            0 => return Ok((hasher.finish(), bytes)),
            read => {
                hasher.update(&part[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// A writer that hashes and counts the written bytes.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader of exactly the announced number of bytes. Reading fails if the input ends earlier.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let read = self.inner.read(&mut bytes[..most])?;
        if read == 0 && most > 0 {
            return Err(io::Error::other(
                "the file became shorter while it was packed",
            ));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Contents {
    /// Packs all entries into a temporary file in `folder`, which is created if missing. Blocks;
    /// packs some 200 MB a second.
    ///
    /// The same names, bytes, links and executable bits give the same package. Times, owners, other
    /// permissions and the order on disk have no effect. Another version of zstd may give another
    /// package.
    ///
    /// # Errors
    /// [`PackageRefused`](ErrorCode::PackageRefused) beyond the default [`Limits`];
    /// [`ReadFailed`](ErrorCode::ReadFailed), [`WriteFailed`](ErrorCode::WriteFailed),
    /// [`DiskFull`](ErrorCode::DiskFull). After an error the temporary file is removed.
    pub fn pack(&self, folder: impl AsRef<Path>) -> Result<Packed> {
        self.pack_within(folder, &Limits::default())
    }

    /// Packs like [`pack`](Self::pack), within these limits on the package's size and entries.
    ///
    /// # Errors
    /// Those of [`pack`](Self::pack).
    pub fn pack_within(&self, folder: impl AsRef<Path>, limits: &Limits) -> Result<Packed> {
        let folder = folder.as_ref();
        if self.entries.len() as u64 > limits.entries {
            return Err(crate::artifacts::failure::too_large(
                "a package has more entries",
                limits.entries,
            ));
        }
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        let file = tempfile::Builder::new()
            .prefix(".package-")
            .tempfile_in(folder)
            .map_err(|error| unwritable(folder, error))?;
        let (file, path) = file.into_parts();
        let out = Hashing {
            inner: BufWriter::with_capacity(256 << 10, file),
            hasher: Hasher::default(),
            bytes: 0,
        };
        let broken = |error| unwritable(&path, error);
        let encoder = zstd::Encoder::new(out, LEVEL).map_err(broken)?;
        let mut archive = tar::Builder::new(encoder);
        for (name, origin) in &self.entries {
            append(&mut archive, name, origin, &path)?;
        }
        let encoder = archive.into_inner().map_err(broken)?;
        let mut out = encoder.finish().map_err(broken)?;
        out.flush().map_err(broken)?;
        if out.bytes > limits.packed_bytes {
            return Err(crate::artifacts::failure::too_large(
                "a package has more bytes",
                limits.packed_bytes,
            ));
        }
        Ok(Packed {
            digest: out.hasher.finish(),
            bytes: out.bytes,
            place: PackageLocation::Temporary(path),
        })
    }
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    origin: &Origin,
    out: &Path,
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header.set_mode(0o755);
    let appended = match origin {
        Origin::Folder => {
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, name, io::empty())
        }
        Origin::Link(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            archive.append_link(&mut header, name, target)
        }
        Origin::File(path) => {
            let file = File::open(path).map_err(|error| unreadable(path, error))?;
            let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
            if metadata.permissions().mode() & 0o111 == 0 {
                header.set_mode(0o644);
            }
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(metadata.len());
            let content = Exactly {
                inner: file,
                left: metadata.len(),
            };
            archive.append_data(&mut header, name, content)
        }
    };
    appended.map_err(|error| match origin {
        Origin::File(path) if error.kind() != io::ErrorKind::StorageFull => {
            let what = format!("{} can't be packed as {name:?}", path.display());
            Error::new(ErrorCode::ReadFailed, what).because(error)
        }
        _ => unwritable(out, error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn tree(root: &Path, names: &[&str], age: u64) {
        for name in names {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, name).expect("written");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(age);
            File::options()
                .write(true)
                .open(&path)
                .and_then(|f| f.set_modified(time))
                .expect("a time");
        }
        std::os::unix::fs::symlink("b", root.join("d/link")).expect("a link");
        fs::set_permissions(
            root.join("run"),
            fs::Permissions::from_mode(0o700 + (age as u32 & 7)),
        )
        .expect("set");
    }

    #[test]
    fn the_same_files_give_the_same_package_whatever_their_times_and_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        tree(&one, &["a", "d/b", "run", "d/e/f"], 1_000);
        tree(&other, &["d/e/f", "run", "d/b", "a"], 2_005);
        let pack = |root: &Path| {
            let packed = Contents::of_folder(root)
                .expect("read")
                .pack(folder.path())
                .expect("packed");
            *packed.digest()
        };
        assert_eq!(pack(&one), pack(&other));
        fs::set_permissions(one.join("a"), fs::Permissions::from_mode(0o755)).expect("set");
        assert_ne!(pack(&one), pack(&other), "who may run it is part of it");
        // The temporary files are removed with their packages.
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_package_knows_its_digest_and_size() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("x"), "x").expect("written");
        let contents = Contents::new()
            .file("bin/x", folder.path().join("x"))
            .expect("a file");
        assert_eq!(contents.names().collect::<Vec<_>>(), ["bin", "bin/x"]);
        let packed = contents.pack(folder.path()).expect("packed");
        let again = Packed::open(packed.path()).expect("read");
        assert_eq!(
            (again.digest(), again.bytes()),
            (packed.digest(), packed.bytes())
        );
    }

    #[test]
    fn what_can_not_be_part_of_a_package_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("made");
        fs::write(root.join("a"), "").expect("written");
        let file = |name: &str| Contents::new().file(name, root.join("a"));
        for name in ["", "../a", "/a", "a/../../b"] {
            assert_eq!(
                file(name).expect_err(name).code(),
                ErrorCode::PackageRefused
            );
        }
        let twice = file("a").and_then(|contents| contents.file("./a", root.join("a")));
        assert!(
            twice
                .expect_err("twice")
                .to_string()
                .contains("given twice")
        );
        let below = file("a").and_then(|contents| contents.file("a/b", root.join("a")));
        assert!(
            below
                .expect_err("below a file")
                .to_string()
                .contains("no folder")
        );
        assert_eq!(
            Contents::new()
                .file("x", root.join("x"))
                .expect_err("none")
                .code(),
            ErrorCode::ReadFailed
        );

        std::os::unix::fs::symlink("/etc/passwd", root.join("out")).expect("a link");
        let error = Contents::of_folder(&root).expect_err("leads out");
        assert!(error.to_string().contains("\"out\""), "{error}");
        fs::remove_file(root.join("out")).expect("removed");
        let _socket =
            std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
        let error = Contents::of_folder(&root).expect_err("a socket");
        assert_eq!(error.code(), ErrorCode::PackageRefused);
    }
}
