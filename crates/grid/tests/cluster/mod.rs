//! Hosts of a cluster in this process; dropping one is like a crash.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Error, Result};
use ardea_grid::cluster::{
    GridMembership, GridMembershipConfig, LocalGridStore, RemoteGridStore, request_grid,
};
use ardea_metastore::{FileState, MetadataStore, StateOptions};
use ardea_network::rpc::Security;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(60);

/// Polls until the condition holds.
pub fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn MetadataStore>>> + Send>>;

/// Hosts of a cluster.
pub struct Cluster {
    pub runtime: Runtime,
    state: Arc<dyn MetadataStore>,
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

    pub fn host(&self) -> (GridMembership, LocalGridStore) {
        let shelf = LocalGridStore::new();
        let setup = GridMembershipConfig {
            state: Arc::clone(&self.state),
            security: Security::new("harbour"),
            host: "127.0.0.1".into(),
            limit_bytes: 1 << 30,
            map_bytes: 1 << 30,
            backups: 1,
            shelf: shelf.clone(),
        };
        let host = self.runtime.block_on(GridMembership::start(setup)).unwrap();
        (host, shelf)
    }

    pub fn want(&self, shelf: &LocalGridStore) -> Result<()> {
        self.runtime.block_on(request_grid(&*self.state, shelf))
    }

    /// Returns a worker's client of the cluster.
    pub fn worker(&self) -> Arc<RemoteGridStore> {
        let state = Arc::clone(&self.state);
        let open = move || {
            let state = Arc::clone(&state);
            Box::pin(async move { Ok::<_, Error>(state) }) as Opening
        };
        let security = Security::new("harbour");
        Arc::new(RemoteGridStore::new(
            Box::new(open),
            security,
            "127.0.0.1",
            "worker 1.1",
        ))
    }
}

/// Waits until each partition has its replicas on this number of members.
pub fn until_settled(shelf: &LocalGridStore, members: usize) {
    soon("everything has its copies", || {
        let view = shelf.view();
        view.is_some_and(|view| view.members.len() == members && view.is_settled())
    });
}
