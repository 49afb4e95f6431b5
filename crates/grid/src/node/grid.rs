//! A member of a grid in this process.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::protocol::{Member, MemberId, Node, Reader, View};
use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, Result};
use ardea_network::exchange::Poller;
use ardea_network::rpc::{Limits, Listener, Security};
use tokio::runtime::{Handle, Runtime};

use crate::node::clock::Clock;
use crate::node::config::{GridConfig, Named, fresh_member, host_name};
use crate::node::driver::{Driver, Parts};
use crate::node::ears::Fresh;
use crate::node::helm::Helm;
use crate::node::map::GridMap;
use crate::node::orders::{Order, Orders};
use crate::node::plain::Plain;
use crate::node::post::{Post, listen, listener};
use crate::node::ring::{GridQueue, GridRing};
use crate::node::room::Room;
use crate::node::standing::Standing;

/// How many bytes of operations may be under way that this process asks for: who asks for more waits.
const ASKED_BYTES: usize = 64 << 20;

/// A connection on which nothing moves for a member's silence is broken off and made anew, but not for less than this.
const STUCK: Duration = Duration::from_secs(1);

/// How long a member waits to be let in.
const LET_IN_WITHIN: Duration = Duration::from_secs(30);

/// For how long who has left tells others that it has, at least, if they don't say that they know: some heartbeats.
const LINGERS: Duration = Duration::from_millis(400);

/// A member of a grid. When it is dropped it is gone, with what it keeps; the others notice, and go on with their backups. Better is
/// [`leave`](Grid::leave), which moves everything away first.
///
/// All calls block, and may come from any thread; in tasks of a runtime (tokio) they hold up its thread: call them where blocking is allowed.
pub struct Grid {
    pub(crate) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Dropped last: connections end with it.
    _runtime: Threads,
}

/// The threads of connections. They end by themselves, so that it may be dropped anywhere, also in tasks of another runtime.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What maps need of their member.
pub(crate) struct Inner {
    me: Member,
    pub clock: Clock,
    pub room: Arc<Room>,
    pub fresh: Arc<Fresh>,
    /// For how long an operation is tried.
    pub patience: Duration,
    pub helm: Helm,
    pub reader: Reader,
    pub standing: Arc<Standing>,
}

impl Grid {
    /// Starts a member, which founds a grid or joins one, as the configuration says. Returns when it belongs to it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] and [`ErrorCode::Network`] if it can't listen, and [`ErrorCode::Network`] if nobody lets it in within half a
    /// minute.
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
            .spawn(move || driven.helm.run(poller))
            .map_err(no_threads)?;
        let grid = Grid {
            inner,
            thread: Some(thread),
            _runtime: runtime,
        };
        let is_in = |view: Option<&View>, _: bool| view.is_some();
        if grid.inner.standing.wait(LET_IN_WITHIN, is_in) {
            return Ok(grid);
        }
        Err(Error::new(
            ErrorCode::Network,
            format!("no grid let this member in: asked {seeds}"),
        )
        .hint("is a member of the grid there, with the same name and secret, and does a majority of its members live?"))
    }

    /// Where other members reach this one (`host:port`): what they [join](GridConfig::join).
    pub fn endpoint(&self) -> &str {
        &self.inner.me.endpoint
    }

    /// Which member this is.
    pub fn id(&self) -> MemberId {
        self.inner.me.id
    }

    /// Who belongs to the grid, and who keeps what, as this member knows it.
    pub fn view(&self) -> Option<Arc<View>> {
        self.inner.standing.view()
    }

    /// Whether this member belongs to the grid no more: it was not heard for a while, and the others went on without it. What it kept is void; start
    /// another.
    pub fn is_out(&self) -> bool {
        self.inner.standing.is_out()
    }

    /// Waits until there are so many members, and everything is where it should be, with all backups; whether that came.
    pub fn settled(&self, members: usize, patience: Duration) -> bool {
        let is_it = |view: Option<&View>, _: bool| {
            view.is_some_and(|view| view.members.len() == members && view.is_settled())
        };
        self.inner.standing.wait(patience, is_it)
    }

    /// A map of the grid. All who use it have to have the same types of keys and values.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if values of this type can't leave their process.
    pub fn map<K: Key + Kept, V: Kept>(&self, name: &str) -> Result<GridMap<K, V>> {
        GridMap::new(Arc::clone(&self.inner), name)
    }

    /// A map with values that are bytes already: members keep long ones in the memory in which they come, and nobody writes them anew. It is another one than a
    /// [map](Self::map) of `Bytes` by the same name would be: use one of them only.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn bytes_map<K: Key + Kept>(&self, name: &str) -> Result<GridMap<K, Plain>> {
        GridMap::of_bytes(Arc::clone(&self.inner), name)
    }

    /// A map of a guest, with keys and values as bytes: for whoever knows by other ways what they are. It is another one than the [map](Self::map) of
    /// the same name, and has [its own room](GridConfig::limit_guest_bytes).
    pub fn guest_map(&self, name: &str) -> GridMap<Plain, Plain> {
        GridMap::of_guest(Arc::clone(&self.inner), name)
    }

    /// A queue of the grid, with room for so many values. All who use it have to have the same type of values, and name the same capacity.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if values of this type can't leave their process, or there is room for none.
    pub fn queue<V: Kept>(&self, name: &str, capacity: u64) -> Result<GridQueue<V>> {
        GridQueue::new(Arc::clone(&self.inner), name, capacity)
    }

    /// A ring buffer of the grid, which keeps so many values. All who use it have to have the same type of values, and name the same capacity.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn ring<V: Kept>(&self, name: &str, capacity: u64) -> Result<GridRing<V>> {
        GridRing::new(Arc::clone(&self.inner), name, capacity)
    }

    /// Says that a member's process is proven to have ended, by the kernel or by whoever started it. Half of the members can then go on without the
    /// other half; without a proof only a majority can. Never to be guessed.
    pub fn tell_dead(&self, member: MemberId) {
        let _ = self.inner.helm.order(Order::Dead(member));
    }

    /// Goes when everything that it keeps is kept by others; whether it came to that in time. The last member of a grid can't go. Returns when the others can
    /// do without this process.
    pub fn leave(mut self, patience: Duration) -> bool {
        let since = Instant::now();
        let _ = self.inner.helm.order(Order::Leave);
        let has_left = self.inner.standing.wait(patience, |_, is_out| is_out);
        if has_left {
            // The others may have to hear from this one that it has left.
            let rest = patience.saturating_sub(since.elapsed());
            self.inner.standing.wait_parted(rest.max(LINGERS));
        }
        self.stop();
        has_left
    }

    fn stop(&mut self) {
        // A driver that has ended needs no telling.
        let _ = self.inner.helm.order(Order::Stop);
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

/// Where others reach who listens there: by the host as it was given, since that is what certificates name.
fn endpoint(given: &str, at: SocketAddr) -> Result<String> {
    if at.ip().is_unspecified() {
        let what = format!("no other member can reach a member that listens at {at}");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("listen at the name or address by which others reach this machine"));
    }
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    Ok(format!("{host}:{}", at.port()))
}

/// Listens there, from the threads of this runtime. Waiting for it with them would panic in a task of another one.
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

/// A member that listens, and what its thread polls.
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
        stuck_within: limits.stuck_within.or(Some(stuck)),
        ..limits
    });
    let id = member.unwrap_or_else(fresh_member);
    let listener = bound(&address, &security, id, runtime)?;
    let endpoint = endpoint(&address, listener.address())?;
    let me = Member::new(id, host.unwrap_or_else(host_name), endpoint);
    let poller = Poller::new()?;
    let (orders, waiting) = Orders::new(poller.doorbell());
    runtime.spawn(listen(listener, orders.clone()));
    let sockets = poller.sockets().clone();
    let post = Post::new(
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
    let fresh = Arc::new(Fresh::new(partitions));
    let standing = Arc::new(Standing::default());
    let reader = node.reader();
    let driver = Driver::new(Parts {
        node,
        clock,
        orders: waiting,
        sockets,
        post,
        standing: Arc::clone(&standing),
        fresh: Arc::clone(&fresh),
    });
    let inner = Inner {
        me,
        clock,
        room: Room::new(ASKED_BYTES),
        fresh,
        patience,
        helm: Helm::new(driver, orders),
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
