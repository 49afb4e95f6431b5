//! A grid member in this process.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::protocol::{Member, MemberId, Node, Reader, View};
use ardea_codec::StateValue;
use ardea_core::{Error, ErrorCode, Key, Result};
use ardea_network::exchange::Poller;
use ardea_network::rpc::{Limits, Listener, Security};
use tokio::runtime::{Handle, Runtime};

use crate::node::byte_budget::ByteBudget;
use crate::node::clock::Clock;
use crate::node::command_queue::{CommandQueue, DriverCommand};
use crate::node::config::{GridConfig, Named, fresh_member, host_name};
use crate::node::driver::{Driver, Parts};
use crate::node::driver_lock::DriverLock;
use crate::node::listeners::Freshness;
use crate::node::map::GridMap;
use crate::node::member_status::MemberStatus;
use crate::node::peer_connections::{PeerConnections, listen, listener};
use crate::node::raw_bytes::RawBytes;
use crate::node::ring::{GridQueue, GridRing};

/// Maximum size of this process's outstanding operations, in bytes; further callers wait.
const ASKED_BYTES: usize = 64 << 20;

/// Minimum time after which a connection without progress is closed. A longer failure detection
/// timeout takes its place.
const STUCK: Duration = Duration::from_secs(1);

/// Timeout of joining a grid.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum time for which a member that has left keeps informing others if they do not acknowledge
/// it: several heartbeats.
const LINGERS: Duration = Duration::from_millis(400);

/// A member of a grid. Dropping it is like a crash: its data is lost, and the others detect the
/// failure and use their backups. [`leave`](Grid::leave) moves the data away first.
///
/// All calls block and may be made from any thread. In async tasks they block the runtime's thread,
/// so use them only where blocking is allowed.
pub struct Grid {
    pub(crate) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Dropped last, since connections end with it.
    _runtime: Threads,
}

/// The threads for connections. They shut down in the background, so that this can be dropped
/// anywhere, including tasks of another runtime.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The parts of a member that its maps use.
pub(crate) struct Inner {
    me: Member,
    pub clock: Clock,
    pub room: Arc<ByteBudget>,
    pub fresh: Arc<Freshness>,
    /// Timeout of an operation.
    pub patience: Duration,
    pub driver: DriverLock,
    pub reader: Reader,
    pub standing: Arc<MemberStatus>,
}

impl Grid {
    /// Starts a member, which founds or joins a grid according to the configuration. Returns once
    /// it is a member.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] and [`ErrorCode::Network`] if it cannot listen, and
    /// [`ErrorCode::Network`] if it is not admitted within 30 s.
    pub fn start(config: GridConfig) -> Result<Grid> {
        config.check()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("grid-net")
            .enable_all()
            .build()
            .map_err(no_threads)?;
        let seeds = config.seeds.join(", ");
        let handle = runtime.handle().clone();
        let runtime = Threads(Some(runtime));
        let (inner, poller) = prepared(config, &handle)?;
        let thread = std::thread::Builder::new().name("grid".to_string());
        let driven = Arc::clone(&inner);
        let thread = thread
            .spawn(move || driven.driver.run(poller))
            .map_err(no_threads)?;
        let grid = Grid {
            inner,
            thread: Some(thread),
            _runtime: runtime,
        };
        let is_in = |view: Option<&View>, _: bool| view.is_some();
        if grid.inner.standing.wait(JOIN_TIMEOUT, is_in) {
            return Ok(grid);
        }
        Err(Error::new(
            ErrorCode::Network,
            format!("no grid admitted this member; tried {seeds}"),
        )
        .hint("check that a member with the same grid name and secret runs there, and that a majority of its members is alive"))
    }

    /// Returns the endpoint (`host:port`) for other members, to be passed to
    /// [`join`](GridConfig::join).
    pub fn endpoint(&self) -> &str {
        &self.inner.me.endpoint
    }

    /// Returns the member's id.
    pub fn id(&self) -> MemberId {
        self.inner.me.id
    }

    /// Returns the current view of members and partition replicas as known to this member.
    pub fn view(&self) -> Option<Arc<View>> {
        self.inner.standing.view()
    }

    /// Returns true if the grid has removed this member, for example after a failure detection
    /// timeout. Its data is invalid; start another member.
    pub fn is_out(&self) -> bool {
        self.inner.standing.is_out()
    }

    /// Waits until the grid has this number of members and all replicas are in place. Returns false
    /// on a timeout.
    pub fn settled(&self, members: usize, patience: Duration) -> bool {
        let is_it = |view: Option<&View>, _: bool| {
            view.is_some_and(|view| view.members.len() == members && view.is_settled())
        };
        self.inner.standing.wait(patience, is_it)
    }

    /// Opens a map of the grid. All users of a map must use the same types of keys and values.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the types cannot be serialized.
    pub fn map<K: Key + StateValue, V: StateValue>(&self, name: &str) -> Result<GridMap<K, V>> {
        GridMap::new(Arc::clone(&self.inner), name)
    }

    /// Opens a map with raw bytes as values. Large values are stored in the buffer in which they
    /// arrive, without a copy. It is a different encoding than a [map](Self::map) of `Bytes` with
    /// the same name; use only one of them.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn bytes_map<K: Key + StateValue>(&self, name: &str) -> Result<GridMap<K, RawBytes>> {
        GridMap::of_bytes(Arc::clone(&self.inner), name)
    }

    /// Opens a guest map, with raw bytes as keys and values. It is a different map than the
    /// [map](Self::map) with the same name, and has [its own memory
    /// limit](GridConfig::limit_guest_bytes).
    pub fn guest_map(&self, name: &str) -> GridMap<RawBytes, RawBytes> {
        GridMap::of_guest(Arc::clone(&self.inner), name)
    }

    /// Opens a queue of the grid. All users must use the same type of values and the same capacity.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the type cannot be serialized, or the capacity is 0.
    pub fn queue<V: StateValue>(&self, name: &str, capacity: u64) -> Result<GridQueue<V>> {
        GridQueue::new(Arc::clone(&self.inner), name, capacity)
    }

    /// Opens a ring buffer of the grid, which retains `capacity` values. All users must use the
    /// same type of values and the same capacity.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn ring<V: StateValue>(&self, name: &str, capacity: u64) -> Result<GridRing<V>> {
        GridRing::new(Arc::clone(&self.inner), name, capacity)
    }

    /// Reports that a member's process has ended, as known from the kernel or its parent process;
    /// never a guess. Half of the members can then continue without the other half; otherwise only
    /// a majority can.
    pub fn report_dead(&self, member: MemberId) {
        let _ = self.inner.driver.order(DriverCommand::Dead(member));
    }

    /// Leaves the grid once other members hold all data of this one. Returns false on a timeout.
    /// The last member of a grid cannot leave. Returns when the other members no longer need this
    /// process.
    pub fn leave(mut self, patience: Duration) -> bool {
        let since = Instant::now();
        let _ = self.inner.driver.order(DriverCommand::Leave);
        let has_left = self.inner.standing.wait(patience, |_, is_out| is_out);
        if has_left {
            // The others may still need this member's message that it has left.
            let rest = patience.saturating_sub(since.elapsed());
            self.inner.standing.wait_parted(rest.max(LINGERS));
        }
        self.stop();
        has_left
    }

    fn stop(&mut self) {
        // An error means that the driver has ended already.
        let _ = self.inner.driver.order(DriverCommand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn no_threads(error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::LimitReached,
        "cannot start the threads of a grid",
    )
    .because(error)
}

/// Returns the endpoint for other members, with the configured host, since that is the name in
/// certificates.
fn endpoint(given: &str, at: SocketAddr) -> Result<String> {
    if at.ip().is_unspecified() {
        let what = format!("other members cannot reach a member that listens at {at}");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("listen at the host name or address of this machine"));
    }
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    Ok(format!("{host}:{}", at.port()))
}

/// Binds the listener on the threads of this runtime. Blocking on it directly would panic inside a
/// task of another runtime.
fn bound(address: &str, security: &Security, me: MemberId, runtime: &Handle) -> Result<Listener> {
    let (tell, told) = channel();
    let (address, security) = (address.to_string(), security.clone());
    runtime.spawn(async move {
        let _ = tell.send(listener(&address, security, me).await);
    });
    told.recv().map_err(|error| {
        Error::new(ErrorCode::Internal, "the threads of a grid have ended").because(error)
    })?
}

/// Creates a listening member and the poller for its thread.
fn prepared(config: GridConfig, runtime: &Handle) -> Result<(Arc<Inner>, Poller)> {
    let GridConfig {
        listen: address,
        host,
        seeds,
        security,
        mut node,
        member,
        functions,
    } = config;
    let stuck = node.council.silence.max(STUCK);
    let security = security.with_limits(|limits| Limits {
        tcp_user_timeout: limits.tcp_user_timeout.or(Some(stuck)),
        ..limits
    });
    let id = member.unwrap_or_else(fresh_member);
    let listener = bound(&address, &security, id, runtime)?;
    let endpoint = endpoint(&address, listener.address())?;
    let me = Member::new(id, host.unwrap_or_else(host_name), endpoint);
    let poller = Poller::new()?;
    let (orders, waiting) = CommandQueue::new(poller.doorbell());
    runtime.spawn(listen(listener, orders.clone()));
    let sockets = poller.sockets().clone();
    let post = PeerConnections::new(
        me.clone(),
        security,
        runtime.clone(),
        orders.clone(),
        sockets.clone(),
    );
    let functions = Arc::new(Named(functions));
    let clock = Clock::start();
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    node.replica.began = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
    let (patience, partitions) = (node.patience, node.partitions);
    let node = match seeds.is_empty() {
        true => Node::found(me.clone(), node, functions),
        false => Node::join(me.clone(), seeds, node, functions),
    };
    let fresh = Arc::new(Freshness::new(partitions));
    let standing = Arc::new(MemberStatus::default());
    let reader = node.reader();
    let driver = Driver::new(Parts {
        node,
        clock,
        orders: waiting,
        sockets,
        peers: post,
        standing: Arc::clone(&standing),
        fresh: Arc::clone(&fresh),
    });
    let inner = Inner {
        me,
        clock,
        room: ByteBudget::new(ASKED_BYTES),
        fresh,
        patience,
        driver: DriverLock::new(driver, orders),
        reader,
        standing,
    };
    Ok((Arc::new(inner), poller))
}

impl Drop for Grid {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

impl fmt::Debug for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grid(member {} at {})", self.id(), self.endpoint())
    }
}
