//! Hosts of a cluster in this process, which die when they are dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Error, Result};
use ardea_grid::cluster::{GridShelf, HostShelter, HostShelterSetup, RemoteShelter, want};
use ardea_metastore::{FileState, StateManager, StateOptions};
use ardea_network::rpc::Security;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(60);

/// Polls until it is so.
pub fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn StateManager>>> + Send>>;

/// Hosts of a cluster.
pub struct Cluster {
    pub runtime: Runtime,
    state: Arc<dyn StateManager>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let state = runtime.block_on(FileState::open(folder.path(), StateOptions::default()));
        Cluster {
            runtime,
            state: Arc::new(state.unwrap()),
            _folder: folder,
        }
    }

    pub fn host(&self) -> (HostShelter, GridShelf) {
        let shelf = GridShelf::new();
        let setup = HostShelterSetup {
            state: Arc::clone(&self.state),
            security: Security::new("harbour"),
            host: "127.0.0.1".into(),
            limit_bytes: 1 << 30,
            map_bytes: 1 << 30,
            backups: 1,
            shelf: shelf.clone(),
        };
        let host = self.runtime.block_on(HostShelter::start(setup)).unwrap();
        (host, shelf)
    }

    pub fn want(&self, shelf: &GridShelf) -> Result<()> {
        self.runtime.block_on(want(&*self.state, shelf))
    }

    /// A worker's way to it.
    pub fn worker(&self) -> Arc<RemoteShelter> {
        let state = Arc::clone(&self.state);
        let open = move || {
            let state = Arc::clone(&state);
            Box::pin(async move { Ok::<_, Error>(state) }) as Opening
        };
        let security = Security::new("harbour");
        Arc::new(RemoteShelter::new(
            Box::new(open),
            security,
            "127.0.0.1",
            "worker 1.1",
        ))
    }
}

/// Waits until each part has its copies on so many members.
pub fn until_settled(shelf: &GridShelf, members: usize) {
    soon("everything has its copies", || {
        let view = shelf.view();
        view.is_some_and(|view| view.members.len() == members && view.is_settled())
    });
}
