//! The metadata store of one machine: a directory, used by any number of processes.
//!
//! A change is prepared in a scratch folder under a lock (`flock`), flushed to disk and made
//! visible by one `rename`: if a process is killed or the machine loses power, either the old or
//! the new state remains. Sessions are locked files, so the nodes of a dead process are gone
//! immediately. Watchers are woken by `inotify`.
//!
//! The directory must be on a local file system: network file systems have weaker locks and events.

mod change_notifier;
mod clock;
mod entry;
mod session_locks;
mod tree;
mod watch_hub;

use crate::{
    Expected, MetadataStore, Node, Pending, Session, SessionEnd, SessionEndNotifier, SessionEnding,
    SessionId, StateOptions, StatePath, StoreAddress, Version, Watcher, session_ending,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::lacks_locks;
use change_notifier::ChangeNotifier;
use session_locks::SessionLock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tree::{Tree, TreeLock};
use watch_hub::Hub;

/// Pauses between attempts to get the lock held by another process; a change takes a few
/// milliseconds.
const RETRY_DELAYS: [Duration; 4] = [
    Duration::from_micros(200),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
];

/// The component named in errors about missing features of the file system.
const WHAT_FOR: &str = "a cluster's state in files";

/// The metadata store in a directory.
///
/// Each root is a separate directory; several may exist side by side. A change costs four disk
/// flushes, a read none.
#[derive(Debug)]
pub struct FileState {
    store: Arc<Store>,
    hub: Arc<Hub>,
}

/// The state shared by operations.
#[derive(Debug)]
struct Store {
    tree: Arc<Tree>,
    /// Serializes the tasks of this process in order, so that only one of them competes for the
    /// file lock.
    queue: tokio::sync::Mutex<()>,
    timeout: Duration,
}

impl FileState {
    /// Opens the tree in this directory; a new or empty directory becomes a root.
    ///
    /// Fails with [`ErrorCode::InvalidConfig`] if the directory holds other files, with
    /// [`ErrorCode::StoreUnsuitable`] if its file system lacks locks, renames or `fsync`, and with
    /// [`ErrorCode::StateUnavailable`] if it can't be used.
    pub async fn open(directory: &Path, options: StateOptions) -> Result<Self> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
        let place = StoreAddress::new(format!("files in {}", directory.display()));
        let made = directory.clone();
        let tree = Arc::new(Tree::new(directory.clone(), place.clone()));
        let store = Arc::new(Store {
            tree: Arc::clone(&tree),
            queue: tokio::sync::Mutex::default(),
            timeout: options.timeout,
        });
        let looked = Arc::clone(&tree);
        blocking(&place, move || {
            looked.check_suitable()?;
            std::fs::create_dir_all(&made)
                .and_then(|()| looked.check_is_root())
                .map_err(|error| unusable(&made, error))
        })
        .await?;
        store
            .change("open it", move |held| {
                held.prepare()
                    .map_err(|error| unusable(&directory, error))?;
                held.remove_dead_sessions()
            })
            .await?;
        let bell = ChangeNotifier::start(&tree.lock_path(), tree.session_locks().folder());
        let hub = Hub::new(tree);
        tokio::spawn(watch_hub::run(Arc::downgrade(&hub), bell));
        Ok(FileState { store, hub })
    }
}

impl Store {
    /// Runs a change under the lock.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        doing: impl Into<String>,
        change: impl FnOnce(&TreeLock<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let doing = doing.into();
        let deadline = Instant::now() + self.timeout;
        let Ok(turn) = tokio::time::timeout(self.timeout, self.queue.lock()).await else {
            let why = "other changes of this process are still in progress";
            return Err(self.tree.place().unavailable(doing, why));
        };
        let store = Arc::clone(self);
        let done = blocking(self.tree.place(), move || {
            let mut waits = RETRY_DELAYS.into_iter();
            let mut wait = Duration::ZERO;
            loop {
                let failed = |error| {
                    let lacking = lacks_locks(&store.tree.lock_path(), &error, WHAT_FOR);
                    lacking.unwrap_or_else(|| store.tree.place().unavailable(&doing, error))
                };
                if let Some(held) = store.tree.try_acquire().map_err(failed)? {
                    return change(&held);
                }
                if Instant::now() >= deadline {
                    return Err(failed(io::Error::other("another process holds the lock")));
                }
                wait = waits.next().unwrap_or(wait);
                std::thread::sleep(wait);
            }
        })
        .await;
        drop(turn);
        done
    }

    /// Runs a read-only operation.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Tree) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tree = Arc::clone(&self.tree);
        blocking(self.tree.place(), move || read(&tree)).await
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        // Sessions stay open, watchers end.
        self.hub.end_watchers();
    }
}

impl MetadataStore for FileState {
    fn place(&self) -> &str {
        self.store.tree.place().as_str()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        let path = path.clone();
        Box::pin(self.store.read(move |tree| tree.get(&path)))
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        Box::pin(async move {
            self.store.tree.place().check_value(path, value)?;
            let (path, value) = (path.clone(), value.to_vec());
            let doing = format!("change {path}");
            self.store
                .change(doing, move |held| held.set(&path, &value, expected, None))
                .await
        })
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        Box::pin(async move {
            self.store.tree.place().check_value(path, b"")?;
            let path = path.clone();
            let doing = format!("delete {path}");
            self.store
                .change(doing, move |held| held.delete(&path, expected))
                .await
        })
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        let path = path.clone();
        Box::pin(self.store.read(move |tree| tree.children(&path)))
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        let (hub, path) = (Arc::clone(&self.hub), path.clone());
        Box::pin(self.store.read(move |_| hub.watch_node(path)))
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        let (hub, path) = (Arc::clone(&self.hub), path.clone());
        Box::pin(self.store.read(move |_| hub.watch_children(path)))
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        Box::pin(async move {
            let begun = |held: &TreeLock<'_>| held.begin_session();
            let (id, life) = self.store.change("open a session", begun).await?;
            let (teller, ending) = session_ending();
            let session = FileSession {
                id,
                session_lock: Arc::new(life),
                end_notifier: teller.clone(),
                store: Arc::clone(&self.store),
                hub: Arc::clone(&self.hub),
            };
            let (hub, life) = (Arc::clone(&self.hub), Arc::clone(&session.session_lock));
            self.store
                .read(move |_| {
                    hub.add_session(&life, teller);
                    Ok(())
                })
                .await?;
            Ok((Box::new(session) as Box<dyn Session>, ending))
        })
    }
}

/// A session: a file that is locked while this value exists.
#[derive(Debug)]
struct FileSession {
    id: SessionId,
    session_lock: Arc<SessionLock>,
    end_notifier: SessionEndNotifier,
    store: Arc<Store>,
    /// Detects when another process ends the session.
    #[expect(dead_code, reason = "keeps the hub alive, which checks the session")]
    hub: Arc<Hub>,
}

impl Session for FileSession {
    fn id(&self) -> &SessionId {
        &self.id
    }

    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version> {
        Box::pin(async move {
            let place = self.store.tree.place().clone();
            place.check_value(path, value)?;
            let (id, life) = (self.id.clone(), Arc::clone(&self.session_lock));
            let (path, value) = (path.clone(), value.to_vec());
            let doing = format!("change {path}");
            self.store
                .change(doing, move |held| {
                    let known = life.is_known();
                    if !known.map_err(|error| place.unavailable("check the session", error))? {
                        return Err(place.session_ended("its file was deleted"));
                    }
                    held.set(&path, &value, Expected::Absent, Some(&id))
                })
                .await
        })
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            let place = self.store.tree.place().clone();
            let (id, life) = (self.id.clone(), Arc::clone(&self.session_lock));
            // The session is dead once its lock is released, even if cleaning up fails.
            self.end_notifier.notify(SessionEnd::Closed);
            self.store
                .change("close the session", move |held| {
                    held.remove_nodes_of(&id)?;
                    life.end()
                        .map_err(|error| place.unavailable("close the session", error))
                })
                .await
        })
    }
}

impl Drop for FileSession {
    fn drop(&mut self) {
        self.end_notifier.notify(SessionEnd::Closed);
    }
}

fn unusable(directory: &Path, error: io::Error) -> Error {
    let place: PathBuf = directory.to_path_buf();
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => Error::new(
            ErrorCode::InvalidConfig,
            format!("{} can't be a metadata store's directory", place.display()),
        )
        .because(error)
        .hint("name an empty directory, or an existing metadata store"),
        _ => Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "cannot use the metadata store's directory {}",
                place.display()
            ),
        )
        .because(error)
        .hint("check that it may be written, and that there is room on the disk"),
    }
}

/// Runs blocking disk operations on a separate thread.
async fn blocking<T: Send + 'static>(
    place: &StoreAddress,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::new(
            ErrorCode::Internal,
            format!("a file operation was not finished ({place})"),
        )
        .because(error)
        .hint("if the program was not ending, please report it")),
    }
}
