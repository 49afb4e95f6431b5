//! The connections that this process holds, counted by database and user.
//!
//! A pooler has a pool for each of these. In session mode a connection is taken from it until it
//! is closed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::postgres::address::Server;

static HELD: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// A connection that is counted until this is dropped.
pub(crate) struct Held {
    pool: String,
}

impl Held {
    /// Counts a connection to a server.
    pub fn count_in(server: &Server) -> Held {
        let pool = pool_of(server);
        *counts().entry(pool.clone()).or_default() += 1;
        Held { pool }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = counts();
        if let Some(count) = counts.get_mut(&self.pool) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.pool);
            }
        }
    }
}

/// Returns the number of connections to a server that this process holds.
pub(crate) fn count(server: &Server) -> usize {
    counts().get(&pool_of(server)).copied().unwrap_or(0)
}

fn counts() -> MutexGuard<'static, BTreeMap<String, usize>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool_of(server: &Server) -> String {
    let (user, database) = (server.config.get_user(), server.config.get_dbname());
    format!("{} {user:?} {database:?}", server.name)
}
