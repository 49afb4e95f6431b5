//! Permissions of a replaced file.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// The preserved bits of a mode: reading, writing and executing, for owner, group and others.
const MODE_BITS: u32 = 0o777;

/// Mode, group and owner of a file.
///
/// A file is replaced by writing another one beside it and renaming that one. The new file has the
/// mode given by the umask, and the group and owner of this process; [`apply_to`](Self::apply_to)
/// sets mode, group and owner of the replaced file.
///
/// ```
/// use std::fs::{self, File};
/// use std::os::unix::fs::PermissionsExt;
/// use ardea_filesystem::Permissions;
///
/// # let folder = tempfile::tempdir()?;
/// # let (old, new) = (folder.path().join("old"), folder.path().join("new"));
/// fs::write(&old, "secret")?;
/// fs::set_permissions(&old, fs::Permissions::from_mode(0o640))?;
/// let file = File::create(&new)?;
/// if let Some(permissions) = Permissions::of(&old)? {
///     permissions.apply_to(&file)?;
/// }
/// assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o640);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permissions {
    mode: u32,
    owner: u32,
    group: u32,
}

impl Permissions {
    /// The mode for creating a file that gets the permissions of another before data is written to
    /// it.
    pub const INITIAL_MODE: u32 = 0o600;

    /// Returns the permissions of the plain file at `path`, after following links; `None` if there
    /// is none.
    ///
    /// # Errors
    /// If the metadata of the file cannot be read.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(Permissions {
                mode: mode_without_acl(path, found.mode() & MODE_BITS),
                ..Permissions::from(&found)
            })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds the owner's right to read and write, for a file that is still being written: a later
    /// process of the same user may continue it.
    pub fn for_writing(self) -> Self {
        Permissions {
            mode: self.mode | Self::INITIAL_MODE,
            ..self
        }
    }

    /// Sets the permissions of a file.
    ///
    /// Owner and group are set if this process may do so. If this process may not set the group,
    /// the mode gives the group only the rights that all others have too. A file with equal
    /// permissions is left unchanged.
    ///
    /// # Errors
    /// If the mode cannot be set.
    pub fn apply_to(self, file: &File) -> io::Result<()> {
        let has = Permissions::from(&file.metadata()?);
        let mut wanted = self;
        if (has.owner, has.group) != (self.owner, self.group) {
            // A process without privileges may set only the group, and only to one of its groups.
            let is_group_kept = fchown(file, Some(self.owner), Some(self.group)).is_ok()
                || has.group == self.group
                || fchown(file, None, Some(self.group)).is_ok();
            if !is_group_kept {
                wanted.mode = without_group(self.mode);
            }
        }
        if has.mode != wanted.mode {
            file.set_permissions(fs::Permissions::from_mode(wanted.mode))?;
        }
        Ok(())
    }
}

impl From<&Metadata> for Permissions {
    fn from(metadata: &Metadata) -> Self {
        Permissions {
            mode: metadata.mode() & MODE_BITS,
            owner: metadata.uid(),
            group: metadata.gid(),
        }
    }
}

/// The name of the attribute with an access control list, and the largest size that is read.
const ACL: &str = "system.posix_acl_access";
const MAX_ACL_BYTES: usize = 4096;

/// Returns the mode of the file at `path` without its access control list. With a list, the group
/// bits of `mode` are the list's mask: the upper limit for named users and groups. The owning group
/// may have fewer rights.
fn mode_without_acl(path: &Path, mode: u32) -> u32 {
    let mut list = [0; MAX_ACL_BYTES];
    match rustix::fs::getxattr(path, ACL, &mut list[..]) {
        Ok(length) => match group_of_acl(&list[..length]) {
            Some(group) => (mode & !0o070) | (mode & (group << 3)),
            None => without_group(mode),
        },
        Err(rustix::io::Errno::RANGE) => without_group(mode),
        // The file has no access control list.
        Err(_) => mode,
    }
}

/// Returns the rights of the owning group in an access control list, before the mask; `None` if the
/// list has none. The list has four bytes with a version, then entries of eight bytes: the tag, the
/// rights, and the number of a user or group.
fn group_of_acl(list: &[u8]) -> Option<u32> {
    const OWNING_GROUP: u16 = 4;
    let entries = list.get(4..)?.chunks_exact(8);
    let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let mut groups = entries.filter(|entry| number(entry, 0) == OWNING_GROUP);
    groups.next().map(|entry| u32::from(number(entry, 2) & 7))
}

/// Returns `mode` with the group's rights reduced to those that all others have too.
fn without_group(mode: u32) -> u32 {
    let others = (mode & 0o007) << 3;
    (mode & !0o070) | (mode & others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mode(path: &Path, mode: u32) {
        fs::write(path, "x").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_gets_the_mode_of_another_whatever_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for mode in [0o600, 0o640, 0o664, 0o444, 0o755] {
            with_mode(&at("old"), mode);
            let file = File::create(at("new")).unwrap();
            Permissions::of(&at("old"))
                .unwrap()
                .unwrap()
                .apply_to(&file)
                .unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, mode, "{mode:o}");
        }
    }

    #[test]
    fn a_file_gets_owner_and_group_of_another_where_that_is_permitted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        with_mode(&at("old"), 0o640);
        let old = File::open(at("old")).unwrap();
        if fchown(&old, Some(12_345), Some(12_346)).is_err() {
            eprintln!("SKIPPED: only root may give files away");
            return;
        }
        let file = File::create(at("new")).unwrap();
        Permissions::of(&at("old"))
            .unwrap()
            .unwrap()
            .apply_to(&file)
            .unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (12_345, 12_346));
        assert_eq!(found.mode() & 0o777, 0o640);
    }

    #[test]
    fn the_owning_group_gets_no_more_than_an_access_control_list_gave_it() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old");
        with_mode(&old, 0o600);
        // u::rw-, u:1000:r--, g::---, m::r--, o::---
        let entries: [(u16, u16, u32); 5] = [
            (1, 6, u32::MAX),
            (2, 4, 1000),
            (4, 0, u32::MAX),
            (16, 4, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&old, ACL, &list, flags).is_err() {
            eprintln!("SKIPPED: the file system has no access control lists");
            return;
        }
        assert_eq!(fs::metadata(&old).unwrap().mode() & MODE_BITS, 0o640);
        let file = File::create(folder.path().join("new")).unwrap();
        let permissions = Permissions::of(&old).unwrap().unwrap();
        permissions.apply_to(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & MODE_BITS, 0o600);
    }

    #[test]
    fn another_group_gets_no_more_than_all_others_had() {
        assert_eq!(without_group(0o660), 0o600);
        assert_eq!(without_group(0o664), 0o644);
        assert_eq!(without_group(0o646), 0o646);
        assert_eq!(without_group(0o777), 0o777);
    }

    #[test]
    fn nothing_a_folder_and_a_device_have_none_to_give() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            folder.path(),
            &folder.path().join("no"),
            Path::new("/dev/null"),
        ] {
            assert_eq!(Permissions::of(path).unwrap(), None);
        }
    }
}
