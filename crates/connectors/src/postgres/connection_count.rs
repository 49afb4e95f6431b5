//! Number of connections of this process, by database and user.
//!
//! A pooler has one pool for each combination of database and user. In session mode, a client
//! occupies a connection of the pool until the client disconnects.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::postgres::address::Server;

static HELD: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Guard of a counted connection, which is no longer counted after the drop.
pub(crate) struct CountedConnection {
    pool: String,
}

impl CountedConnection {
    /// Counts a connection to a server.
    pub fn count_in(server: &Server) -> CountedConnection {
        let pool = pool_of(server);
        *counts().entry(pool.clone()).or_default() += 1;
        CountedConnection { pool }
    }
}

impl Drop for CountedConnection {
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

/// Returns the number of connections of this process to a server.
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
