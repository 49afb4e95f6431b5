//! Settings of a grid member.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Functions, MemberId, NodeConfig};
use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::Security;

/// Maximum size of a key and its value together, in bytes.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// An entry processor: computes the new value of a key from its current value, if any, and an
/// argument. `None` removes the entry. All values are encoded.
pub(crate) type Function = dyn Fn(Option<&[u8]>, &[u8]) -> Result<Option<Vec<u8>>> + Send + Sync;

/// Settings of a grid member.
///
/// ```
/// use std::time::Duration;
/// use ardea_grid::node::GridConfig;
///
/// let config = GridConfig::new("harbour").backups(2).operation_timeout(Duration::from_secs(3));
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct GridConfig {
    pub(crate) listen: String,
    pub(crate) host: Option<String>,
    pub(crate) seeds: Vec<Arc<str>>,
    pub(crate) security: Security,
    pub(crate) node: NodeConfig,
    pub(crate) member: Option<MemberId>,
    pub(crate) functions: HashMap<String, Arc<Function>>,
}

impl GridConfig {
    /// Creates settings for a member that founds the grid with this name and is reachable on this
    /// machine only.
    pub fn new(grid: impl Into<Arc<str>>) -> Self {
        GridConfig {
            listen: "127.0.0.1:0".to_string(),
            host: None,
            seeds: Vec::new(),
            security: Security::new(grid),
            node: NodeConfig::default(),
            member: None,
            functions: HashMap::new(),
        }
    }

    /// Joins the grid of the members at these addresses (`host:port`) instead of founding one.
    pub fn join<S: Into<Arc<str>>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        self.seeds = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the listen address (`host:port`, port 0 for any free port); the default is
    /// `127.0.0.1:0`. Other members connect to this host, so `0.0.0.0` is rejected. A member that
    /// cannot be reached is not admitted.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Sets the machine's name; the default is its host name. Backups are placed on other machines
    /// first.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Sets the member's id, for a caller that must publish it before the member joins. It must be
    /// a [`fresh_member`] that is used once. By default the member generates one.
    pub fn member(mut self, member: MemberId) -> Self {
        self.member = Some(member);
        self
    }

    /// Sets the authentication and protection of connections between members. Its cluster name is
    /// the grid's name.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Sets the number of backups of each entry, if this member founds the grid. The default is 1.
    pub fn backups(mut self, backups: usize) -> Self {
        self.node.backups = backups;
        self
    }

    /// Acknowledges writes before backups have them. This is faster, but the last writes are lost
    /// if a member dies.
    pub fn asynchronous_backups(mut self) -> Self {
        self.node.replica.is_synchronous = false;
        self
    }

    /// Sets the limit of entry bytes on this member, backups included; unlimited by default. At the
    /// limit, writes that need more memory are refused. Replication, resync and writes already
    /// under way (up to 64 MB per writing process) still add entries, so leave room.
    pub fn limit_bytes(mut self, limit: u64) -> Self {
        self.node.limit = limit;
        self
    }

    /// Sets the separate limit for [guest maps](crate::node::Grid::guest_map), in bytes. Otherwise
    /// as [`limit_bytes`](Self::limit_bytes).
    pub fn limit_guest_bytes(mut self, limit: u64) -> Self {
        self.node.guest_limit = limit;
        self
    }

    /// Sets the maximum rate at which this member fills its replicas, in bytes per second. The
    /// default is 100 MB.
    pub fn refill_rate(mut self, bytes_per_second: u64) -> Self {
        self.node.refill_rate = bytes_per_second;
        self
    }

    /// Sets the timeout of an operation, over all its retries. The default is 10 s.
    pub fn operation_timeout(mut self, patience: Duration) -> Self {
        self.node.patience = patience;
        self
    }

    /// Sets the failure detection timeout; the default is 1.5 s. Members send fifteen heartbeats in
    /// this time.
    pub fn failure_timeout(mut self, silence: Duration) -> Self {
        self.node.council.silence = silence;
        self.node.council.lease = silence * 2 / 3;
        self.node.council.heartbeat = silence / 15;
        self
    }

    /// Registers a function for [`GridMap::compute`](crate::node::GridMap::compute). It returns the
    /// new value of a key, given its current value and an argument; `None` removes the entry. All
    /// members must register the same functions. A member is blocked while a function runs, so it
    /// has to be fast. It must not use maps of a grid; such calls are rejected.
    ///
    /// ```
    /// use ardea_grid::node::{Grid, GridConfig};
    ///
    /// let config = GridConfig::new("harbour");
    /// let grid = Grid::start(config.function("add", |had: Option<u64>, more: u64| Ok(Some(had.unwrap_or(0) + more))))?;
    /// let tons = grid.map::<String, u64>("tons")?;
    /// tons.compute(&"seagull".to_string(), "add", &20_u64)?;
    /// assert_eq!(tons.compute(&"seagull".to_string(), "add", &5_u64)?, Some(25));
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    pub fn function<V: StateValue, A: StateValue>(
        mut self,
        name: impl Into<String>,
        function: impl Fn(Option<V>, A) -> Result<Option<V>> + Send + Sync + 'static,
    ) -> Self {
        let (values, arguments) = (state_codec_of::<V>(), state_codec_of::<A>());
        let on_bytes = move |value: Option<&[u8]>, argument: &[u8]| {
            let (Some(values), Some(arguments)) = (&values, &arguments) else {
                let what = "its value or argument cannot be serialized";
                return Err(Error::new(ErrorCode::InvalidConfig, what));
            };
            let had = value.map(|value| values.get(value)).transpose()?;
            let Some(new) = function(had, arguments.get(argument)?)? else {
                return Ok(None);
            };
            let mut bytes = Vec::new();
            values.put(&new, &mut bytes)?;
            Ok(Some(bytes))
        };
        self.functions.insert(name.into(), Arc::new(on_bytes));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let council = &self.node.council;
        if council.heartbeat < Duration::from_millis(1) {
            let silence = council.silence;
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("a failure detection timeout of {silence:?} is too short"),
            )
            .hint("use at least 15 ms, preferably a second"));
        }
        Ok(())
    }
}

impl fmt::Debug for GridConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GridConfig")
            .field("listen", &self.listen)
            .field("seeds", &self.seeds)
            .field("security", &self.security)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static IN_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if a grid function is running in this thread.
#[inline]
pub(crate) fn is_in_function() -> bool {
    IN_FUNCTION.get()
}

/// The functions of a configuration, by name.
pub(crate) struct Named(pub HashMap<String, Arc<Function>>);

impl Functions for Named {
    fn call(
        &self,
        name: &str,
        key: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        let Some(function) = self.0.get(name) else {
            return Err(format!("the primary of the key has no function {name:?}"));
        };
        IN_FUNCTION.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| function(value, argument)));
        IN_FUNCTION.set(false);
        match outcome {
            Ok(Ok(Some(new))) if key.len() + new.len() > MOST_BYTES => Err(format!(
                "the result of {name:?} has {} bytes, and the limit is {MOST_BYTES}",
                new.len()
            )),
            Ok(outcome) => outcome.map_err(|error| error.message()),
            Err(payload) => {
                // The payload's destructor is user code and could panic as well.
                std::mem::forget(payload);
                Err(format!("{name:?} panicked"))
            }
        }
    }
}

/// Returns a member id that no other member has, from the operating system's randomness.
pub fn fresh_member() -> MemberId {
    MemberId(RandomState::new().build_hasher().finish())
}

/// Returns the host name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
