//! A member of a grid in this process.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, Result};
use ardea_courier::Listener;
use ardea_grid::{Member, MemberId, Node, Reader, View};
use tokio::runtime::Runtime;

use crate::config::{GridConfig, Named, fresh_member, host_name};
use crate::driver::{Driver, Order, Standing};
use crate::map::GridMap;
use crate::post::{Post, listen};

/// How many orders may wait for the driver.
const WAITING: usize = 16 << 10;

/// How long a member waits to be let in.
const LET_IN_WITHIN: Duration = Duration::from_secs(30);

/// For how long who has left tells others that it has: some heartbeats.
const LINGERS: Duration = Duration::from_millis(400);

/// A member of a grid. When it is dropped it is gone, with what it keeps; the others notice, and go on with their backups. Better is
/// [`leave`](Grid::leave), which moves everything away first.
pub struct Grid {
    pub(crate) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Dropped last: connections end with it.
    runtime: Option<Runtime>,
}

/// What maps need of their member.
pub(crate) struct Inner {
    me: Member,
    pub began: Instant,
    pub orders: SyncSender<Order>,
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
        let (inner, driver) = prepared(config, &runtime)?;
        let thread = std::thread::Builder::new().name("grid".to_string());
        let thread = thread.spawn(move || driver.run()).map_err(no_threads)?;
        let grid = Grid {
            inner,
            thread: Some(thread),
            runtime: Some(runtime),
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

    /// Says that a member's process is proven to have ended, by the kernel or by whoever started it. Half of the members can then go on without the
    /// other half; without a proof only a majority can. Never to be guessed.
    pub fn tell_dead(&self, member: MemberId) {
        let _ = self.inner.orders.send(Order::Dead(member));
    }

    /// Goes when everything that it keeps is kept by others; whether it came to that in time. The last member of a grid can't go.
    pub fn leave(mut self, patience: Duration) -> bool {
        let _ = self.inner.orders.send(Order::Leave);
        let has_left = self.inner.standing.wait(patience, |_, is_out| is_out);
        if has_left {
            // The others may have to hear from this one that it has left.
            std::thread::sleep(LINGERS);
        }
        self.stop();
        has_left
    }

    fn stop(&mut self) {
        // A driver that has ended needs no telling.
        let _ = self.inner.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
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

/// A member that listens, and what drives it.
fn prepared(config: GridConfig, runtime: &Runtime) -> Result<(Arc<Inner>, Driver)> {
    let GridConfig {
        listen: address,
        host,
        seeds,
        security,
        mut node,
        member,
        functions,
    } = config;
    let listener = runtime.block_on(Listener::bind(&address, security.clone()))?;
    let endpoint = endpoint(&address, listener.address())?;
    let id = member.unwrap_or_else(fresh_member);
    let me = Member::new(id, host.unwrap_or_else(host_name), endpoint);
    let (orders, waiting) = sync_channel(WAITING);
    runtime.spawn(listen(listener, orders.clone()));
    let post = Post::new(
        me.clone(),
        security,
        runtime.handle().clone(),
        orders.clone(),
    );
    let functions = Arc::new(Named(functions));
    let began = Instant::now();
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    node.replica.began = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
    let node = match seeds.is_empty() {
        true => Node::found(me.clone(), node, functions),
        false => Node::join(me.clone(), seeds, node, functions),
    };
    let standing = Arc::new(Standing::default());
    let inner = Inner {
        me,
        began,
        orders,
        reader: node.reader(),
        standing: Arc::clone(&standing),
    };
    let driver = Driver {
        node,
        began,
        orders: waiting,
        post,
        standing,
        waiting: HashMap::new(),
        asked: 0,
    };
    Ok((Arc::new(inner), driver))
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
