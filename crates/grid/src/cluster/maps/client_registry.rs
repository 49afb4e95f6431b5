//! The store client through which this process reaches the maps of its cluster.

use std::sync::{Arc, Mutex, PoisonError};

use crate::node::{Grid, GridConfig};
use ardea_core::Result;

use crate::cluster::local_store::LocalGridStore;
use crate::cluster::request::GridStoreClient;

static WAY: Mutex<Option<Arc<dyn GridStoreClient>>> = Mutex::new(None);

/// Sets the store client for all maps of this process. To be called before a job of a cluster
/// starts here.
pub fn set_map_client(shelter: Arc<dyn GridStoreClient>) {
    *WAY.lock().unwrap_or_else(PoisonError::into_inner) = Some(shelter);
}

/// Returns the store client. In a process outside of a cluster, maps are in the process's own
/// memory and end with it.
///
/// # Errors
/// If a local grid cannot be started.
pub(super) fn store_client() -> Result<Arc<dyn GridStoreClient>> {
    let mut way = WAY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(way) = &*way {
        return Ok(Arc::clone(way));
    }
    let shelf = LocalGridStore::new();
    shelf.open(Grid::start(GridConfig::new("maps of a process"))?, 0)?;
    let own: Arc<dyn GridStoreClient> = Arc::new(shelf);
    *way = Some(Arc::clone(&own));
    Ok(own)
}
