//! The tree as folders and files, with atomic changes.
//!
//! ```text
//! ROOT/format            the format of this directory
//! ROOT/lock              held while the tree is changed
//! ROOT/clock             the counter of versions
//! ROOT/sessions/ID       a session: locked by its owner as long as it session_locks
//! ROOT/tree/a/.node      the node /a
//! ROOT/tree/a/b/.node    the node /a/b
//! ROOT/scratch/          files in preparation; cleaned up when the root is opened
//! ```
//!
//! Each change is prepared in `scratch` and flushed to disk; then one `rename` makes it visible as
//! a whole, and the folder is flushed as well. Readers need no lock.

use super::clock::VersionCounter;
use super::entry;
use super::session_locks::{SessionLock, SessionLocks};
use crate::{Expected, MAX_VALUE_BYTES, Node, SessionId, StatePath, StoreAddress, Version};
use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::{Feature, is_probe_file, probe};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The file of a node in its folder. No name of a node begins with a dot.
const NODE: &str = ".node";

/// Number of times that a node without a file is read, since another process may be creating it.
const LOOKS: usize = 3;

/// Maximum number of bytes read of a node's file: the longest valid file, and one byte more to
/// detect a longer one.
const MAX_FILE_BYTES: u64 = (MAX_VALUE_BYTES + entry::HEAD_BYTES + 1) as u64;

const FORMAT: &str = "ardea metadata store, format 1\n";

/// The tree of one root. Reading needs no lock; changing needs a [`TreeLock`].
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    session_locks: SessionLocks,
    place: StoreAddress,
}

/// The exclusive right, on this machine, to change the tree.
#[derive(Debug)]
pub(super) struct TreeLock<'a> {
    tree: &'a Tree,
    // Closing it releases the lock and wakes the watchers of all processes.
    _lock: File,
}

impl Tree {
    /// Creates the handle of the tree below this directory.
    pub(super) fn new(root: PathBuf, place: StoreAddress) -> Self {
        let lives = SessionLocks::new(root.join("sessions"));
        Tree {
            root,
            session_locks: lives,
            place,
        }
    }

    /// Returns the address of the tree, for messages.
    pub(super) fn place(&self) -> &StoreAddress {
        &self.place
    }

    /// Returns the path of the lock file, which is closed after each change.
    pub(super) fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Returns the locks of sessions.
    pub(super) fn session_locks(&self) -> &SessionLocks {
        &self.session_locks
    }

    /// Fails if the directory is not a root and holds other files.
    pub(super) fn check_is_root(&self) -> io::Result<()> {
        if self.root.join("format").exists() {
            return Ok(());
        }
        // These may be left by an earlier attempt to create a root, or be made by another process
        // at this moment.
        let own = [
            "lock",
            "clock",
            "sessions",
            "tree",
            "scratch",
            "format.new",
            "format",
        ];
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            if !is_probe_file(&name) && !own.iter().any(|own| name == *own) {
                return Err(foreign("it holds other files"));
            }
        }
        Ok(())
    }

    /// Refuses an unsuitable file system, before a root is created there.
    pub(super) fn check_suitable(&self) -> Result<()> {
        const FEATURES: [Feature; 4] = [
            Feature::Locks,
            Feature::Rename,
            Feature::Sync,
            Feature::FolderSync,
        ];
        if self.root.join("format").exists() {
            return Ok(());
        }
        match probe(&self.root, &FEATURES, super::WHAT_FOR) {
            Err(error) if error.code() == ErrorCode::StoreUnsuitable => Err(error),
            // Other problems are reported where they occur.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Tries to get the lock; returns `None` if another process or task holds it.
    pub(super) fn try_acquire(&self) -> io::Result<Option<TreeLock<'_>>> {
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.lock_path())?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(TreeLock {
                tree: self,
                _lock: lock,
            })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns the node, unless its session is dead. A damaged node is an error, unless its
    /// readable part names a dead session.
    pub(super) fn get(&self, path: &StatePath) -> Result<Option<Node>> {
        let Some(bytes) = self.read(path, MAX_FILE_BYTES)? else {
            return Ok(None);
        };
        let node = entry::decode(&bytes);
        let session = match &node {
            Ok(node) => node.session.clone(),
            Err(_) => entry::session_of(&bytes).ok().flatten(),
        };
        if let Some(session) = session
            && !self.is_alive(path, &session)?
        {
            return Ok(None);
        }
        node.map(Some).map_err(|why| self.damaged(path, why))
    }

    /// Reads up to `most` bytes of a node's file; returns `None` if there is no node. A node
    /// without a file but with nodes below it counts as damaged, because creating it would drop
    /// those nodes.
    fn read(&self, path: &StatePath, most: u64) -> Result<Option<Vec<u8>>> {
        for _ in 0..LOOKS {
            let mut bytes = Vec::new();
            let read = File::open(self.folder(path).join(NODE))
                .and_then(|file| file.take(most).read_to_end(&mut bytes));
            match read {
                Ok(_) => return Ok(Some(bytes)),
                Err(error) if is_absent(&error) => {}
                Err(error) if is_unreadable(&error) => return Err(self.damaged(path, error)),
                Err(error) => return Err(self.failed(path, "read", error)),
            }
            // The root has no file.
            if path.name().is_none() || self.names_below(path)?.is_empty() {
                return Ok(None);
            }
        }
        Err(self.damaged(path, "the file is missing, and there are nodes below it"))
    }

    /// Returns the names of the children, sorted, without those whose sessions are dead.
    pub(super) fn children(&self, path: &StatePath) -> Result<Vec<String>> {
        let mut names = self.names_below(path)?;
        let mut failure = None;
        names.retain(|name| match self.is_there(path, name) {
            Ok(is_there) => is_there,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        });
        failure.map_or(Ok(names), Err)
    }

    /// Returns the names of the folders below a node, sorted.
    fn names_below(&self, path: &StatePath) -> Result<Vec<String>> {
        let failed = |error| self.failed(path, "list the children of", error);
        let entries = match fs::read_dir(self.folder(path)) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
                && !name.starts_with('.')
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn is_there(&self, parent: &StatePath, name: &str) -> Result<bool> {
        let path = parent.child(name)?;
        match self.session_of(&path) {
            Ok(Some(Some(session))) => self.is_alive(&path, &session),
            Ok(Some(None)) => Ok(true),
            Ok(None) => Ok(false),
            // A damaged node is listed; only reading it fails.
            Err(error) if is_damage(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the session of a node, dead or alive; `None` if there is no node.
    fn session_of(&self, path: &StatePath) -> Result<Option<Option<SessionId>>> {
        let Some(head) = self.read(path, entry::HEAD_BYTES as u64)? else {
            return Ok(None);
        };
        let session = entry::session_of(&head);
        session.map(Some).map_err(|why| self.damaged(path, why))
    }

    fn is_alive(&self, path: &StatePath, session: &SessionId) -> Result<bool> {
        self.session_locks
            .is_alive(session)
            .map_err(|error| self.failed(path, "check the session of", error))
    }

    fn folder(&self, path: &StatePath) -> PathBuf {
        let mut folder = self.root.join("tree");
        folder.extend(path.names());
        folder
    }

    /// Creates the error of an operation that changed nothing.
    pub(super) fn failed(&self, path: &StatePath, doing: &str, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::PermissionDenied => self.place.denied(path, error),
            // The counter of versions is damaged.
            io::ErrorKind::InvalidData => self.place.broken(path, error),
            _ => self.place.unavailable(format!("{doing} {path}"), error),
        }
    }

    fn damaged(&self, path: &StatePath, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let file = self.folder(path).join(NODE);
        self.place.corrupt(path, file.display(), why)
    }
}

impl TreeLock<'_> {
    /// Creates a root in an empty directory, or checks an existing one, and removes files left by
    /// dead processes.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let root = &self.tree.root;
        match fs::read_to_string(root.join("format")) {
            Ok(format) if format == FORMAT => {}
            Ok(_) => return Err(foreign("it holds another format than this program's")),
            Err(error) if is_absent(&error) => self.create_root()?,
            Err(error) => return Err(error),
        }
        for leftover in fs::read_dir(root.join("scratch"))? {
            remove(&leftover?.path())?;
        }
        Ok(())
    }

    fn create_root(&self) -> io::Result<()> {
        let root = &self.tree.root;
        for folder in ["sessions", "tree", "scratch"] {
            fs::create_dir_all(root.join(folder))?;
        }
        VersionCounter::create(&root.join("clock"))?;
        write(&root.join("format.new"), FORMAT.as_bytes())?;
        fs::rename(root.join("format.new"), root.join("format"))?;
        sync(root)
    }

    /// Writes a node, which belongs to `session` if that is given.
    pub(super) fn set(
        &self,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
        session: Option<&SessionId>,
    ) -> Result<Version> {
        match self.find(path, expected)? {
            Some(present) => self.replace(path, value, present.as_ref()),
            None => self.create(path, value, session),
        }
    }

    /// Checks the condition; returns the session of the existing node, or `None` if there is no
    /// node.
    fn find(&self, path: &StatePath, expected: Expected) -> Result<Option<Option<SessionId>>> {
        let tree = self.tree;
        match tree.get(path) {
            // The session is taken from the head, if that is still readable.
            Err(error)
                if is_damage(&error) && matches!(expected, Expected::Any | Expected::Damaged) =>
            {
                Ok(Some(tree.session_of(path).ok().flatten().flatten()))
            }
            found => {
                let found = found?;
                match expected.is_met_by(found.as_ref().map(|node| node.version)) {
                    true => Ok(found.map(|node| node.session)),
                    false => Err(tree.place.conflict(path, expected, found.as_ref())),
                }
            }
        }
    }

    /// Overwrites a node.
    fn replace(
        &self,
        path: &StatePath,
        value: &[u8],
        session: Option<&SessionId>,
    ) -> Result<Version> {
        let tree = self.tree;
        let failed = |error| tree.failed(path, "write", error);
        let version = self.next_version().map_err(failed)?;
        let file = entry::encode(value, version, session);
        let scratch = self.scratch(version);
        let folder = tree.folder(path);
        let renamed =
            write(&scratch, &file).and_then(|()| replace_file(&scratch, &folder.join(NODE)));
        renamed.map_err(|error| {
            // An incomplete file must not occupy disk space.
            let _ = fs::remove_file(&scratch);
            failed(error)
        })?;
        self.settle(path, &folder)?;
        Ok(version)
    }

    /// Creates a node, and its missing ancestors, as one folder that is moved into place.
    fn create(
        &self,
        path: &StatePath,
        value: &[u8],
        session: Option<&SessionId>,
    ) -> Result<Version> {
        let tree = self.tree;
        let mut missing = vec![path.clone()];
        for ancestor in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            match tree.get(&ancestor) {
                Ok(Some(node)) if node.session.is_some() => {
                    return Err(tree.place.below_ephemeral(path));
                }
                Ok(Some(_)) => break,
                Ok(None) => missing.push(ancestor),
                // The ancestor exists, and its session is unknown.
                Err(error) if is_damage(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let failed = |error| tree.failed(path, "make", error);
        let top = missing.last().unwrap_or(path);
        // A node of a dead session may still be there.
        self.sweep_away(top)?;
        let version = self.next_version().map_err(failed)?;
        let scratch = self.scratch(version);
        let target = tree.folder(top);
        let nodes = missing.iter().rev().map(|node| {
            let file = match node == path {
                true => entry::encode(value, version, session),
                false => entry::encode(b"", version, None),
            };
            (node.name().filter(|_| node != top), file)
        });
        let made = write_folders(&scratch, nodes).and_then(|()| fs::rename(&scratch, &target));
        made.map_err(|error| {
            // Incomplete files must not occupy disk space.
            let _ = fs::remove_dir_all(&scratch);
            failed(error)
        })?;
        self.settle(path, target.parent().unwrap_or(&target))?;
        Ok(version)
    }

    /// Deletes a node without children.
    pub(super) fn delete(&self, path: &StatePath, expected: Expected) -> Result<()> {
        if self.find(path, expected)?.is_none() {
            return Ok(());
        }
        if !self.tree.children(path)?.is_empty() {
            return Err(self.tree.place.not_empty(path));
        }
        self.remove_node(path)
    }

    /// Begins a session with a new name.
    pub(super) fn begin_session(&self) -> Result<(SessionId, SessionLock)> {
        let failed = |error| {
            let root = StatePath::root();
            self.tree.failed(&root, "open a session below", error)
        };
        let version = self.next_version().map_err(failed)?;
        let id = SessionId::new(format!("{}-{}", std::process::id(), version.get()));
        let life = self.tree.session_locks.begin(&id, &self.scratch(version));
        Ok((id, life.map_err(failed)?))
    }

    /// Removes all nodes of one session, alive or dead.
    pub(super) fn remove_nodes_of(&self, session: &SessionId) -> Result<()> {
        self.sweep(&StatePath::root(), &|owner| Ok(owner == session))
    }

    /// Removes the nodes of dead sessions, and then the sessions.
    pub(super) fn remove_dead_sessions(&self) -> Result<()> {
        let root = StatePath::root();
        let failed = |error| self.tree.failed(&root, "find dead sessions below", error);
        let dead = self.tree.session_locks.dead().map_err(failed)?;
        if dead.is_empty() {
            return Ok(());
        }
        self.sweep(&root, &|owner| Ok(!self.tree.is_alive(&root, owner)?))?;
        for session in dead {
            remove(&session).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the nodes below `path` whose sessions are selected by `goes`. Nodes of sessions have
    /// no children. A damaged node whose session is unknown is kept.
    fn sweep(&self, path: &StatePath, goes: &dyn Fn(&SessionId) -> Result<bool>) -> Result<()> {
        for name in self.tree.names_below(path)? {
            let child = path.child(&name)?;
            match self.tree.session_of(&child) {
                Ok(Some(Some(session))) if goes(&session)? => self.remove_node(&child)?,
                Ok(Some(Some(_))) => {}
                Err(error) if !is_damage(&error) => return Err(error),
                _ => self.sweep(&child, goes)?,
            }
        }
        Ok(())
    }

    /// Removes the remains of a node that does not exist.
    fn sweep_away(&self, path: &StatePath) -> Result<()> {
        match self.tree.folder(path).exists() {
            true => self.remove_node(path),
            false => Ok(()),
        }
    }

    fn remove_node(&self, path: &StatePath) -> Result<()> {
        let failed = |error| self.tree.failed(path, "delete", error);
        let folder = self.tree.folder(path);
        let scratch = self.scratch(self.next_version().map_err(failed)?);
        fs::rename(&folder, &scratch).map_err(failed)?;
        self.settle(path, folder.parent().unwrap_or(&folder))?;
        remove(&scratch).map_err(failed)
    }

    /// Returns the next version.
    fn next_version(&self) -> io::Result<Version> {
        VersionCounter::open(&self.tree.root.join("clock"))?.next()
    }

    fn scratch(&self, version: Version) -> PathBuf {
        self.tree.root.join("scratch").join(version.to_string())
    }

    /// Flushes the folder of a change that is already visible.
    fn settle(&self, path: &StatePath, folder: &Path) -> Result<()> {
        sync(folder).map_err(|error| self.tree.place.unknown(path, error))
    }
}

/// Returns true if there is no such file, or no folder above it.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns true if an existing file can't be read permanently: the disk has lost it, or it is not a
/// file.
fn is_unreadable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::BADMSG | Errno::UCLEAN | Errno::ISDIR | Errno::LOOP)
    )
}

/// Moves a file to its target, and replaces an existing file or folder, in one step.
fn replace_file(file: &Path, target: &Path) -> io::Result<()> {
    match fs::rename(file, target) {
        // A folder can't be overwritten; it is exchanged with the file, then removed.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            renameat_with(CWD, file, CWD, target, RenameFlags::EXCHANGE)?;
            // A failure leaves it in the scratch folder, which is cleaned up later.
            let _ = remove(file);
            Ok(())
        }
        renamed => renamed,
    }
}

/// Returns true if the error is about a damaged node.
fn is_damage(error: &Error) -> bool {
    error.code() == ErrorCode::MetastoreCorrupt
}

fn foreign(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// Writes nodes, each below the previous one; the first one is `top` itself.
fn write_folders<'a>(
    top: &Path,
    nodes: impl Iterator<Item = (Option<&'a str>, Vec<u8>)>,
) -> io::Result<()> {
    let mut folder = top.to_path_buf();
    let mut folders = Vec::new();
    for (name, file) in nodes {
        folder.extend(name);
        fs::create_dir(&folder)?;
        write(&folder.join(NODE), &file)?;
        folders.push(folder.clone());
    }
    folders.iter().rev().try_for_each(|folder| sync(folder))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}
