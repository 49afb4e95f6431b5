//! The state manager of one machine: a directory, used by any number of processes at once.
//!
//! A change is made under a lock (`flock`), prepared aside, brought to the disk and moved into place by one `rename`: a
//! process that is killed, or a machine that loses power, leaves the old state or the new one. Sessions are locked files,
//! so that a dead process's nodes are gone the moment it is dead. Watchers are woken by `inotify`.
//!
//! The directory has to be on a local file system: locks and events of network file systems promise less.

mod bell;
mod clock;
mod entry;
mod hub;
mod lives;
mod tree;

use crate::{
    EndTeller, Expected, Node, Pending, Place, Session, SessionEnd, SessionEnding, SessionId,
    StateManager, StateOptions, StatePath, Version, Watcher, session_ending,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::lacks_locks;
use bell::Bell;
use hub::Hub;
use lives::Life;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tree::{Held, Tree};

/// Between two attempts to get the lock that another process holds; a change takes a few milliseconds.
const RETRY: [Duration; 4] = [
    Duration::from_micros(200),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
];

/// What needs the features of the file system.
const WHAT_FOR: &str = "a cluster's state in files";

/// The state manager that keeps its tree in a directory.
///
/// A root is a directory of its own; several lie side by side. A change costs four flushes of the disk, a read none.
#[derive(Debug)]
pub struct FileState {
    store: Arc<Store>,
    hub: Arc<Hub>,
}

/// What the operations share.
#[derive(Debug)]
struct Store {
    tree: Arc<Tree>,
    /// The tasks of this process queue here, in order, and only the first of them competes for the lock.
    turn: tokio::sync::Mutex<()>,
    patience: Duration,
}

impl FileState {
    /// Opens the tree in this directory; a new or empty one becomes a root.
    ///
    /// Fails with [`ErrorCode::InvalidConfig`] if the directory holds something else, with [`ErrorCode::StoreUnsuitable`] if its
    /// file system lacks locks, renames or `fsync`, and with [`ErrorCode::StateUnavailable`] if it can't be used.
    pub async fn open(directory: &Path, options: StateOptions) -> Result<Self> {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
        let place = Place::new(format!("files in {}", directory.display()));
        let made = directory.clone();
        let tree = Arc::new(Tree::new(directory.clone(), place.clone()));
        let store = Arc::new(Store {
            tree: Arc::clone(&tree),
            turn: tokio::sync::Mutex::default(),
            patience: options.patience,
        });
        let looked = Arc::clone(&tree);
        blocking(&place, move || {
            looked.check_suitable()?;
            std::fs::create_dir_all(&made)
                .and_then(|()| looked.check_is_own())
                .map_err(|error| unusable(&made, error))
        })
        .await?;
        store
            .change("open it", move |held| {
                held.prepare()
                    .map_err(|error| unusable(&directory, error))?;
                held.bury_the_dead()
            })
            .await?;
        let bell = Bell::hang(&tree.lock_path(), tree.lives().folder());
        let hub = Hub::new(tree);
        tokio::spawn(hub::attend(Arc::downgrade(&hub), bell));
        Ok(FileState { store, hub })
    }
}

impl Store {
    /// Does something under the lock.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        doing: impl Into<String>,
        change: impl FnOnce(&Held<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let doing = doing.into();
        let deadline = Instant::now() + self.patience;
        let Ok(turn) = tokio::time::timeout(self.patience, self.turn.lock()).await else {
            let why = "other changes of this process take their time";
            return Err(self.tree.place().unavailable(doing, why));
        };
        let store = Arc::clone(self);
        let done = blocking(self.tree.place(), move || {
            let mut waits = RETRY.into_iter();
            let mut wait = Duration::ZERO;
            loop {
                let failed = |error| {
                    let lacking = lacks_locks(&store.tree.lock_path(), &error, WHAT_FOR);
                    lacking.unwrap_or_else(|| store.tree.place().unavailable(&doing, error))
                };
                if let Some(held) = store.tree.try_hold().map_err(failed)? {
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

    /// Does something that only reads.
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
        // Its sessions live on, its watchers don't.
        self.hub.end_watchers();
    }
}

impl StateManager for FileState {
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
            let begun = |held: &Held<'_>| held.begin_session();
            let (id, life) = self.store.change("open a session", begun).await?;
            let (teller, ending) = session_ending();
            let session = FileSession {
                id,
                life: Arc::new(life),
                teller: teller.clone(),
                store: Arc::clone(&self.store),
                hub: Arc::clone(&self.hub),
            };
            let (hub, life) = (Arc::clone(&self.hub), Arc::clone(&session.life));
            self.store
                .read(move |_| {
                    hub.guard(&life, teller);
                    Ok(())
                })
                .await?;
            Ok((Box::new(session) as Box<dyn Session>, ending))
        })
    }
}

/// A session: a file that is locked as long as this lives.
#[derive(Debug)]
struct FileSession {
    id: SessionId,
    life: Arc<Life>,
    teller: EndTeller,
    store: Arc<Store>,
    /// Who notices when somebody else ends the session.
    #[expect(dead_code, reason = "it is kept, so that it goes on looking")]
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
            let (id, life) = (self.id.clone(), Arc::clone(&self.life));
            let (path, value) = (path.clone(), value.to_vec());
            let doing = format!("change {path}");
            self.store
                .change(doing, move |held| {
                    let known = life.is_known();
                    if !known.map_err(|error| place.unavailable("look for the session", error))? {
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
            let (id, life) = (self.id.clone(), Arc::clone(&self.life));
            // Without its lock the session is dead, whatever can be cleared away.
            self.teller.tell(SessionEnd::Closed);
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
        self.teller.tell(SessionEnd::Closed);
    }
}

fn unusable(directory: &Path, error: io::Error) -> Error {
    let place: PathBuf = directory.to_path_buf();
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => Error::new(
            ErrorCode::InvalidConfig,
            format!("{} can't be a state manager's directory", place.display()),
        )
        .because(error)
        .hint("name an empty directory, or one that it was before"),
        _ => Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "cannot use the state manager's directory {}",
                place.display()
            ),
        )
        .because(error)
        .hint("check that it may be written, and that there is room on the disk"),
    }
}

/// Runs what waits for the disk beside the runtime's threads.
async fn blocking<T: Send + 'static>(
    place: &Place,
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
