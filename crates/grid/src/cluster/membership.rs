//! A host's membership in the grid: founded or joined according to the metadata store, left when
//! the session ends.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::{Grid, GridConfig, MemberId, View, fresh_member};
use ardea_core::{Error, ErrorCode, Result, unique_number};
use ardea_metastore::{
    Expected, MetadataStore, ReadResult, SessionEnd, StatePath, Version, Watcher, layout, read_node,
};
use ardea_network::rpc::{Listener, Security};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::local_store::LocalGridStore;
use crate::cluster::record::{GridRecord, JoinedGrid, MemberNode, member_nodes, written};
use crate::cluster::request::GridStoreClient;

/// Delay before the next attempt to join the grid.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// Interval of the check for members without a session, in addition to the watch.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Poll interval while another host founds the grid.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum time that a job waits for its host to become a member.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time that a host which shuts down waits until its data is copied to others.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of a host's grid membership.
#[derive(Clone, Debug)]
pub struct GridMembershipConfig {
    /// The cluster's metadata store.
    pub state: Arc<dyn MetadataStore>,
    /// The cluster's name and secret, and the protection of its connections.
    pub security: Security,
    /// Host name or address under which others reach this machine.
    pub host: String,
    /// Memory limit for checkpoints on this host, in bytes.
    pub limit_bytes: u64,
    /// Memory limit for maps on this host, in bytes.
    pub map_bytes: u64,
    /// Number of backups of each entry; used if this host founds the grid.
    pub backups: usize,
    /// The store through which this process uses the member.
    pub shelf: LocalGridStore,
}

/// A host's membership in the grid that stores checkpoints and maps.
///
/// Until the grid is [requested](request_grid), only the request server runs. Dropping the
/// membership is equivalent to a crash of the process.
pub struct GridMembership {
    part: Arc<HostPart>,
    ends: watch::Sender<bool>,
    staying: Option<JoinHandle<()>>,
    serving: JoinHandle<()>,
}

struct HostPart {
    setup: GridMembershipConfig,
    /// Listen address of the grid member, with any free port.
    listen: String,
    /// Address of the request server for workers.
    asks: String,
}

impl GridMembership {
    /// Starts the request server, and joins the grid once the grid is requested.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the server cannot listen.
    pub async fn start(setup: GridMembershipConfig) -> Result<Self> {
        let host = match setup.host.contains(':') && !setup.host.starts_with('[') {
            true => format!("[{}]", setup.host),
            false => setup.host.clone(),
        };
        let listen = format!("{host}:0");
        let listener = Listener::bind(&listen, setup.security.clone()).await?;
        let asks = format!("{host}:{}", listener.address().port());
        let shelter: Arc<dyn GridStoreClient> = Arc::new(setup.shelf.clone());
        let serving = tokio::spawn(crate::cluster::request_server::serve(listener, shelter));
        let part = Arc::new(HostPart {
            setup,
            listen,
            asks,
        });
        let (ends, ended) = watch::channel(false);
        let staying = tokio::spawn(Arc::clone(&part).stay(ended));
        Ok(GridMembership {
            part,
            ends,
            staying: Some(staying),
            serving,
        })
    }

    /// Copies this host's data to other members, if there are any, and shuts down.
    pub async fn close(mut self) {
        let _ = self.ends.send(true);
        if let Some(staying) = self.staying.take() {
            let _ = staying.await;
        }
    }
}

/// Requests that all hosts of the cluster join the grid, and waits until the host that owns `shelf`
/// has joined.
///
/// # Errors
/// [`ErrorCode::StateUnavailable`], with the reason, if the host has not joined in time.
pub async fn request_grid(state: &dyn MetadataStore, shelf: &LocalGridStore) -> Result<()> {
    note_wanted(state).await?;
    let until = tokio::time::Instant::now() + JOIN_TIMEOUT;
    while !shelf.is_open() {
        if tokio::time::Instant::now() >= until {
            let what = "this host could not join the in-memory store";
            let error = Error::new(ErrorCode::StateUnavailable, what).hint(
                "try again, or use a folder shared by all hosts: --set checkpoints.folder=/PATH",
            );
            return Err(match shelf.trouble() {
                Some(trouble) => error.because(trouble.without_hint()),
                None => error,
            });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns true if the grid has been requested.
///
/// # Errors
/// If the metadata store does not respond.
pub async fn is_grid_requested(state: &dyn MetadataStore) -> Result<bool> {
    let found = read_node(state, &layout::grid_record()?).await?;
    Ok(!matches!(found, ReadResult::Absent))
}

pub(crate) async fn note_wanted(state: &dyn MetadataStore) -> Result<()> {
    let path = layout::grid_record()?;
    if !matches!(read_node(state, &path).await?, ReadResult::Absent) {
        return Ok(());
    }
    let wanted = written(&GridRecord::default())?;
    match state.set(&path, &wanted, Expected::Absent).await {
        Err(error) if error.code() != ErrorCode::MetastoreConflict => Err(error),
        _ => Ok(()),
    }
}

impl Drop for GridMembership {
    fn drop(&mut self) {
        // Before the session can end: a member without a session must not act.
        self.part.shelf().end(ended("this host is shutting down"));
        if let Some(staying) = self.staying.take() {
            staying.abort();
        }
        self.serving.abort();
    }
}

impl fmt::Debug for GridMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "GridMembership({}, {:?})",
            self.part.asks,
            self.part.shelf()
        )
    }
}

fn ended(why: &str) -> Error {
    Error::new(ErrorCode::StateUnavailable, why)
}

/// The way in which a host becomes a member.
enum JoinMode {
    /// Founds the grid with this number.
    Founds(u64),
    /// Joins the grid with this number, which has members at these endpoints.
    Joins(u64, Vec<String>),
}

impl HostPart {
    fn shelf(&self) -> &LocalGridStore {
        &self.setup.shelf
    }

    /// Keeps the host a member, rejoining after failures, until the host shuts down.
    async fn stay(self: Arc<Self>, mut ends: watch::Receiver<bool>) {
        let mut told = String::new();
        while !*ends.borrow() {
            if let Err(error) = self.live(&mut ends).await {
                let text = error.to_string();
                self.shelf().close(error);
                if text != told {
                    eprintln!("this host is not a member of the in-memory store: {text}");
                    told = text;
                }
            }
            tokio::select! {
                _ = ends.changed() => {}
                () = tokio::time::sleep(RETRY_DELAY) => {}
            }
        }
    }

    /// Runs one membership, from the start of its session to the end.
    async fn live(&self, ends: &mut watch::Receiver<bool>) -> Result<()> {
        let state = &*self.setup.state;
        tokio::select! {
            wanted = self.until_wanted() => wanted?,
            _ = ends.changed() => return Ok(()),
        }
        let id = fresh_member();
        let path = layout::grid_member(id.0)?;
        let (session, over) = state.open_session().await?;
        let version = session
            .create(&path, &written(&self.member_node(None))?)
            .await?;
        let lived = tokio::select! {
            biased;
            end = over => Err(match end {
                SessionEnd::Expired(error) => error,
                SessionEnd::Closed => ended("its session was closed"),
            }),
            lived = self.belong(id, (&path, version)) => lived,
            _ = ends.changed() => Ok(()),
        };
        if *ends.borrow() {
            self.leave(id).await;
        }
        // Before others can see that the session is over.
        let why = match &lived {
            Ok(()) => ended("this host is shutting down"),
            Err(error) => error.clone(),
        };
        let shelf = self.shelf().clone();
        let _ = tokio::task::spawn_blocking(move || shelf.close(why)).await;
        let _ = session.close().await;
        lived
    }

    fn member_node(&self, part: Option<JoinedGrid>) -> MemberNode {
        MemberNode {
            host: self.setup.host.clone(),
            asks: self.asks.clone(),
            part,
        }
    }

    async fn until_wanted(&self) -> Result<()> {
        let path = layout::grid_record()?;
        let looked = async {
            let mut record = self.setup.state.watch_node(&path).await?;
            while record.next().await?.is_none() {}
            Ok::<(), Error>(())
        };
        match looked.await {
            // The grid was requested, but its record is damaged.
            Err(error) if error.code() == ErrorCode::MetastoreCorrupt => Ok(()),
            looked => looked,
        }
    }

    /// Founds or joins the grid, publishes the endpoint, and remains a member.
    async fn belong(&self, id: MemberId, (path, version): (&StatePath, Version)) -> Result<()> {
        let way = self.find(id).await?;
        let life = match &way {
            JoinMode::Founds(life) | JoinMode::Joins(life, _) => *life,
        };
        let grid = self.begin(id, way).await?;
        let part = JoinedGrid {
            life,
            endpoint: grid.endpoint().to_string(),
        };
        let berth = written(&self.member_node(Some(part)))?;
        let state = &self.setup.state;
        state.set(path, &berth, Expected::Version(version)).await?;
        self.shelf().open(grid, life)?;
        self.watch(id, life).await
    }

    /// Decides which grid to join: an existing grid that has members, otherwise a new one. Waits
    /// while another live host founds a grid. If several hosts found one at once, the metadata
    /// store accepts one of them.
    async fn find(&self, id: MemberId) -> Result<JoinMode> {
        let state = &*self.setup.state;
        let path = layout::grid_record()?;
        loop {
            let found = read_node(state, &path).await?;
            let record = match &found {
                ReadResult::Intact(node) => GridRecord::read(&node.value),
                _ => None,
            };
            let berths = member_nodes(state).await?;
            let parts = || berths.values().filter_map(|berth| berth.part.as_ref());
            // If the record is unreadable, the grid of the existing members is assumed.
            let life = record.map(|record| record.life);
            let life = life.or_else(|| parts().map(|part| part.life).next());
            let there = parts().filter(|part| Some(part.life) == life);
            let there: Vec<String> = there.map(|part| part.endpoint.clone()).collect();
            if let (Some(life), Some(_), false) = (life, record, there.is_empty()) {
                return Ok(JoinMode::Joins(life, there));
            }
            let founder = record.map(|record| record.founder);
            if founder.is_some_and(|founder| founder != id && berths.contains_key(&founder)) {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            let own = GridRecord {
                life: life
                    .filter(|_| !there.is_empty())
                    .unwrap_or_else(unique_number),
                founder: id,
            };
            let set = state.set(&path, &written(&own)?, found.expected()).await;
            match set {
                // The damaged record is repaired; join in the next round.
                Ok(_) if !there.is_empty() => {}
                Ok(_) => return Ok(JoinMode::Founds(own.life)),
                Err(error) if error.code() == ErrorCode::MetastoreConflict => {}
                // The next round reads whether it was written.
                Err(error) if error.code() == ErrorCode::OutcomeUnknown => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the grid member.
    async fn begin(&self, id: MemberId, way: JoinMode) -> Result<Grid> {
        let GridMembershipConfig {
            security,
            host,
            limit_bytes,
            map_bytes,
            backups,
            ..
        } = &self.setup;
        let (life, seeds) = match way {
            JoinMode::Founds(life) => (life, Vec::new()),
            JoinMode::Joins(life, seeds) => (life, seeds),
        };
        // The name contains the grid's number, so that members of different grids cannot connect.
        let name = format!("{}/checkpoints-{life:x}", security.cluster());
        let config = GridConfig::new(name.as_str())
            .security(security.clone().within(name.as_str()))
            .member(id)
            .listen(self.listen.as_str())
            .host(host.as_str())
            .backups(*backups)
            .limit_bytes(*limit_bytes)
            .limit_guest_bytes(*map_bytes)
            .join(seeds);
        let started = tokio::task::spawn_blocking(move || Grid::start(config)).await;
        started.unwrap_or_else(|error| {
            let what = "the grid member could not be started";
            Err(Error::new(ErrorCode::Internal, what).because(error))
        })
    }

    /// Remains a member and reports dead members to the grid, until this member is removed or the
    /// grid is replaced.
    async fn watch(&self, id: MemberId, life: u64) -> Result<()> {
        let state = &*self.setup.state;
        let mut members: Watcher<Vec<String>> =
            state.watch_children(&layout::grid_members()?).await?;
        let mut there = members.next().await?;
        let mut dead = BTreeSet::new();
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        loop {
            tokio::select! {
                now = members.next() => there = now?,
                _ = ticks.tick() => self.is_present(life).await?,
            }
            if self.shelf().is_out() {
                return Err(ended(
                    "the other members received no heartbeats from it and removed it",
                ));
            }
            self.report_dead_members(id, &there, &mut dead).await?;
            if self.has_too_few_members(&dead) {
                self.give_up(life).await?;
                return Err(ended(
                    "too many hosts are lost: fewer than half of the members are left",
                ));
            }
        }
    }

    /// Fails if the grid has been replaced by another.
    async fn is_present(&self, life: u64) -> Result<()> {
        // A missing or damaged record is repaired by the next host that joins. If the record cannot
        // be read now, the next check reads it.
        let node = self.setup.state.get(&layout::grid_record()?).await;
        let record = node.ok().flatten();
        let record = record.and_then(|node| GridRecord::read(&node.value));
        match record.is_some_and(|record| record.life != life) {
            true => Err(ended(
                "the store has been replaced by a new one without this host",
            )),
            false => Ok(()),
        }
    }

    /// Reports members whose sessions have ended to the grid. A member creates its session before
    /// it joins, so a member without a session has stopped or is dead.
    async fn report_dead_members(
        &self,
        id: MemberId,
        there: &[String],
        dead: &mut BTreeSet<MemberId>,
    ) -> Result<()> {
        let there: BTreeSet<u64> = there
            .iter()
            .filter_map(|name| layout::member_of(name))
            .collect();
        let Some(view) = self.shelf().view() else {
            return Ok(());
        };
        for member in &view.members {
            if member.id == id || there.contains(&member.id.0) || dead.contains(&member.id) {
                continue;
            }
            // The list may be older than the member. If the node cannot be read now, the next check
            // reads it.
            let path = layout::grid_member(member.id.0)?;
            if let Ok(None) = self.setup.state.get(&path).await {
                dead.insert(member.id);
                self.shelf().report_dead(member.id);
            }
        }
        Ok(())
    }

    /// Returns true if fewer than half of the members are alive. Such a grid cannot change its view
    /// any more, nor admit members.
    fn has_too_few_members(&self, dead: &BTreeSet<MemberId>) -> bool {
        self.shelf().view().is_some_and(|view| {
            let all = view.members.len();
            let alive = view.members.iter();
            let alive = alive.filter(|member| !dead.contains(&member.id)).count();
            2 * alive < all
        })
    }

    /// Resets the grid's record so that another grid is founded in its place.
    async fn give_up(&self, life: u64) -> Result<()> {
        let path = layout::grid_record()?;
        let found = read_node(&*self.setup.state, &path).await?;
        let ReadResult::Intact(node) = &found else {
            return Ok(());
        };
        if GridRecord::read(&node.value).is_none_or(|record| record.life != life) {
            return Ok(());
        }
        let none = written(&GridRecord::default())?;
        match self.setup.state.set(&path, &none, found.expected()).await {
            Err(error) if error.code() != ErrorCode::MetastoreConflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Leaves the grid after its data has been copied to other members. Does nothing if all members
    /// are leaving.
    async fn leave(&self, id: MemberId) {
        let goes = |view: &View, member: MemberId| member == id || view.leaving.contains(&member);
        let view = self.shelf().view();
        let all_go = view.is_none_or(|view| {
            let mut members = view.members.iter();
            members.all(|member| goes(&view, member.id))
        });
        if all_go {
            return;
        }
        if let Some(grid) = self.shelf().take() {
            let leaving = tokio::task::spawn_blocking(move || grid.leave(LEAVE_TIMEOUT));
            // On a timeout the other members still have the backups.
            let _ = leaving.await;
        }
    }
}
