//! How this process reaches the maps of its cluster.

use std::sync::{Arc, Mutex, PoisonError};

use crate::node::{Grid, GridConfig};
use ardea_core::Result;

use crate::cluster::ask::Shelter;
use crate::cluster::shelf::GridShelf;

static WAY: Mutex<Option<Arc<dyn Shelter>>> = Mutex::new(None);

/// Has all maps of this process be those that `shelter` reaches: for who runs the jobs of a cluster here, before a job begins.
pub fn reach_maps_by(shelter: Arc<dyn Shelter>) {
    *WAY.lock().unwrap_or_else(PoisonError::into_inner) = Some(shelter);
}

/// The way to the cluster; in a process of no cluster maps are in its own memory, and end with it.
///
/// # Errors
/// If this process can't keep them.
pub(super) fn way() -> Result<Arc<dyn Shelter>> {
    let mut way = WAY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(way) = &*way {
        return Ok(Arc::clone(way));
    }
    let shelf = GridShelf::new();
    shelf.open(Grid::start(GridConfig::new("maps of a process"))?, 0)?;
    let own: Arc<dyn Shelter> = Arc::new(shelf);
    *way = Some(Arc::clone(&own));
    Ok(own)
}
