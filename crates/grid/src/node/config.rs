//! What a member of a grid is started with.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Functions, MemberId, NodeConfig};
use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::Security;

/// The longest key and value together, in bytes.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// From what a key has, and what was given besides, to what it is to have, all as bytes.
pub(crate) type Function = dyn Fn(Option<&[u8]>, &[u8]) -> Result<Option<Vec<u8>>> + Send + Sync;

/// What a member of a grid is started with.
///
/// ```
/// use std::time::Duration;
/// use ardea_grid::node::GridConfig;
///
/// let config = GridConfig::new("harbour").backups(2).patience(Duration::from_secs(3));
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
    /// A member that founds the grid of this name: alone at first, and to be reached on this machine only.
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

    /// Joins the grid of whoever is at one of these addresses (`host:port`) instead of founding one.
    pub fn join<S: Into<Arc<str>>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        self.seeds = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Listens there (`host:port`, the port zero for any that is free) instead of at `127.0.0.1:0`. Others have to reach it by this host, so it can't be
    /// `0.0.0.0`; who can't be reached is not let in.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// The machine's name, if not the one that it has: backups go to members of other machines first.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Which member this is, for whoever has to tell others before it belongs to the grid: a [`fresh_member`] that is used once. Otherwise it gives
    /// itself such a number.
    pub fn member(mut self, member: MemberId) -> Self {
        self.member = Some(member);
        self
    }

    /// What members prove themselves with, and what protects what they say; its cluster is the grid.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// How many backups each entry has, if this member founds the grid: one, unless said otherwise.
    pub fn backups(mut self, backups: usize) -> Self {
        self.node.backups = backups;
        self
    }

    /// Writes are acknowledged before backups have them: quicker, and the last ones are lost with a member that dies.
    pub fn asynchronous_backups(mut self) -> Self {
        self.node.replica.is_synchronous = false;
        self
    }

    /// When this member keeps so many bytes of entries, backups included, it refuses to write what would need more. Copies still come that others write
    /// or that it has to fill, and so does what is under way when the limit is reached, up to 64 MB of each process that writes: leave room. Without it there is no limit.
    pub fn limit_bytes(mut self, limit: u64) -> Self {
        self.node.limit = limit;
        self
    }

    /// When this member keeps so many bytes of [guests'](crate::node::Grid::guest_map) maps, it refuses to write more of these: they take no room of others, and others
    /// take none of theirs. Otherwise as [`limit_bytes`](Self::limit_bytes).
    pub fn limit_guest_bytes(mut self, limit: u64) -> Self {
        self.node.guest_limit = limit;
        self
    }

    /// How many bytes a second this member takes to fill its copies: 100 MB, unless said otherwise.
    pub fn refill_rate(mut self, bytes_per_second: u64) -> Self {
        self.node.refill_rate = bytes_per_second;
        self
    }

    /// For how long an operation is tried: 10 s, unless said otherwise.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.node.patience = patience;
        self
    }

    /// Who is not heard for so long is taken for dead: 1.5 s, unless said otherwise. Members say that they are there fifteen times in it.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.node.council.silence = silence;
        self.node.council.lease = silence * 2 / 3;
        self.node.council.heartbeat = silence / 15;
        self
    }

    /// Gives a name to a function for [`GridMap::compute`](crate::node::GridMap::compute): from what a key has, and what is given besides, to what it is to have;
    /// none for nothing. All members need the same ones. While it runs its member waits, so it has to be quick, and can't use maps of a grid itself: that is
    /// refused, since it would wait for itself.
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
    pub fn function<V: Kept, A: Kept>(
        mut self,
        name: impl Into<String>,
        function: impl Fn(Option<V>, A) -> Result<Option<V>> + Send + Sync + 'static,
    ) -> Self {
        let (values, arguments) = (state_codec_of::<V>(), state_codec_of::<A>());
        let on_bytes = move |value: Option<&[u8]>, argument: &[u8]| {
            let (Some(values), Some(arguments)) = (&values, &arguments) else {
                let what = "its value or argument can't leave its process";
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
                format!("a silence of {silence:?} is too short to be noticed"),
            )
            .hint("at least 15 ms, and rather a second"));
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

/// Whether a function of a grid runs in this thread, for which a member waits.
#[inline]
pub(crate) fn is_in_function() -> bool {
    IN_FUNCTION.get()
}

/// The functions of a configuration.
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
            return Err(format!(
                "the member that keeps the key has no function {name:?}"
            ));
        };
        IN_FUNCTION.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| function(value, argument)));
        IN_FUNCTION.set(false);
        match outcome {
            Ok(Ok(Some(new))) if key.len() + new.len() > MOST_BYTES => Err(format!(
                "what {name:?} gave has {} bytes, and at most {MOST_BYTES} are kept",
                new.len()
            )),
            Ok(outcome) => outcome.map_err(|error| error.message()),
            Err(payload) => {
                // Its destructor is the user's as well.
                std::mem::forget(payload);
                Err(format!("{name:?} panicked"))
            }
        }
    }
}

/// A number that no other life of a member has: the operating system's randomness.
pub fn fresh_member() -> MemberId {
    MemberId(RandomState::new().build_hasher().finish())
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
