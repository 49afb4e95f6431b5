//! A host's part in the grid: founded or joined by what the cluster's state knows, left when its session ends.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::{Grid, GridConfig, MemberId, View, fresh_member};
use ardea_core::{Error, ErrorCode, Result, unique_number};
use ardea_metastore::{
    Expected, Found, SessionEnd, StateManager, StatePath, Version, Watcher, layout, look,
};
use ardea_network::rpc::{Listener, Security};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::ask::Shelter;
use crate::cluster::record::{Berth, GridRecord, Part, berths, written};
use crate::cluster::shelf::GridShelf;

/// After how long it is tried again to have a part in the grid.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// How often it is looked who belongs to the grid and has no session any more, beside when somebody goes.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// How often a host that waits for another one to found the grid looks whether it has.
const WAITS: Duration = Duration::from_millis(50);

/// How long a job waits for its host to have a part in the grid.
const WANTED_WITHIN: Duration = Duration::from_secs(20);

/// How long a host that ends in good order waits until others have what it keeps.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// What a host's part in the grid has to know.
#[derive(Clone, Debug)]
pub struct HostShelterSetup {
    /// The cluster's state.
    pub state: Arc<dyn StateManager>,
    /// The cluster's name and secret, and what protects connections.
    pub security: Security,
    /// The name or address by which others reach this machine.
    pub host: String,
    /// How many bytes of snapshots are kept here at most.
    pub limit_bytes: u64,
    /// How many bytes of maps.
    pub map_bytes: u64,
    /// On how many other hosts everything has copies, if this one founds the grid.
    pub backups: usize,
    /// Whoever asks for something does so here.
    pub shelf: GridShelf,
}

/// A host's part in what keeps snapshots in memory.
///
/// Until a job of the cluster [wants](want) it, it is an address that nobody asks. Dropping it is as if the process had died.
pub struct HostShelter {
    part: Arc<HostPart>,
    ends: watch::Sender<bool>,
    staying: Option<JoinHandle<()>>,
    serving: JoinHandle<()>,
}

struct HostPart {
    setup: HostShelterSetup,
    /// Where it listens, at any free port.
    listen: String,
    /// Where workers ask.
    asks: String,
}

impl HostShelter {
    /// Listens for workers, and takes its part in the grid once that is wanted.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if it can't listen there.
    pub async fn start(setup: HostShelterSetup) -> Result<Self> {
        let host = match setup.host.contains(':') && !setup.host.starts_with('[') {
            true => format!("[{}]", setup.host),
            false => setup.host.clone(),
        };
        let listen = format!("{host}:0");
        let listener = Listener::bind(&listen, setup.security.clone()).await?;
        let asks = format!("{host}:{}", listener.address().port());
        let shelter: Arc<dyn Shelter> = Arc::new(setup.shelf.clone());
        let serving = tokio::spawn(crate::cluster::serving::serve(listener, shelter));
        let part = Arc::new(HostPart {
            setup,
            listen,
            asks,
        });
        let (ends, ended) = watch::channel(false);
        let staying = tokio::spawn(Arc::clone(&part).stay(ended));
        Ok(HostShelter {
            part,
            ends,
            staying: Some(staying),
            serving,
        })
    }

    /// Gives what it keeps to others, if there are any, and ends.
    pub async fn close(mut self) {
        let _ = self.ends.send(true);
        if let Some(staying) = self.staying.take() {
            let _ = staying.await;
        }
    }
}

/// Has all hosts of the cluster take their parts, if they haven't yet, and waits for that of the host with this shelf.
///
/// # Errors
/// Why it has none.
pub async fn want(state: &dyn StateManager, shelf: &GridShelf) -> Result<()> {
    note_wanted(state).await?;
    let until = tokio::time::Instant::now() + WANTED_WITHIN;
    while !shelf.is_open() {
        if tokio::time::Instant::now() >= until {
            let what = "this host gets no part in what keeps snapshots in memory";
            let error = Error::new(ErrorCode::StateUnavailable, what).hint(
                "try again, or name a folder that all hosts see: --set snapshots.folder=/PATH",
            );
            return Err(match shelf.trouble() {
                Some(trouble) => error.because(trouble.without_hint()),
                None => error,
            });
        }
        tokio::time::sleep(WAITS).await;
    }
    Ok(())
}

/// Whether somebody has wanted it yet.
///
/// # Errors
/// If the state manager does not answer.
pub async fn is_wanted(state: &dyn StateManager) -> Result<bool> {
    let found = look(state, &layout::grid_record()?).await?;
    Ok(!matches!(found, Found::Absent))
}

pub(crate) async fn note_wanted(state: &dyn StateManager) -> Result<()> {
    let path = layout::grid_record()?;
    if !matches!(look(state, &path).await?, Found::Absent) {
        return Ok(());
    }
    let wanted = written(&GridRecord::default())?;
    match state.set(&path, &wanted, Expected::Absent).await {
        Err(error) if error.code() != ErrorCode::StateConflict => Err(error),
        _ => Ok(()),
    }
}

impl Drop for HostShelter {
    fn drop(&mut self) {
        // Before its session can end: whoever has no session must not act.
        self.part.shelf().end(ended("this host ends"));
        if let Some(staying) = self.staying.take() {
            staying.abort();
        }
        self.serving.abort();
    }
}

impl fmt::Debug for HostShelter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HostShelter({}, {:?})",
            self.part.asks,
            self.part.shelf()
        )
    }
}

fn ended(why: &str) -> Error {
    Error::new(ErrorCode::StateUnavailable, why)
}

/// How a host came to its part.
enum Way {
    /// It founds this grid.
    Founds(u64),
    /// It joins that one, whose members are there.
    Joins(u64, Vec<String>),
}

impl HostPart {
    fn shelf(&self) -> &GridShelf {
        &self.setup.shelf
    }

    /// Has a part, again and again, until the host ends.
    async fn stay(self: Arc<Self>, mut ends: watch::Receiver<bool>) {
        let mut told = String::new();
        while !*ends.borrow() {
            if let Err(error) = self.live(&mut ends).await {
                let text = error.to_string();
                self.shelf().close(error);
                if text != told {
                    eprintln!("this host has no part in what keeps snapshots in memory: {text}");
                    told = text;
                }
            }
            tokio::select! {
                _ = ends.changed() => {}
                () = tokio::time::sleep(AGAIN_AFTER) => {}
            }
        }
    }

    /// One member's life: from its session's beginning to its end.
    async fn live(&self, ends: &mut watch::Receiver<bool>) -> Result<()> {
        let state = &*self.setup.state;
        tokio::select! {
            wanted = self.until_wanted() => wanted?,
            _ = ends.changed() => return Ok(()),
        }
        let id = fresh_member();
        let path = layout::grid_member(id.0)?;
        let (session, over) = state.open_session().await?;
        let version = session.create(&path, &written(&self.berth(None))?).await?;
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
            Ok(()) => ended("this host ends"),
            Err(error) => error.clone(),
        };
        let shelf = self.shelf().clone();
        let _ = tokio::task::spawn_blocking(move || shelf.close(why)).await;
        let _ = session.close().await;
        lived
    }

    fn berth(&self, part: Option<Part>) -> Berth {
        Berth {
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
            // Somebody has wanted it, and what says so is damaged.
            Err(error) if error.code() == ErrorCode::StateCorrupt => Ok(()),
            looked => looked,
        }
    }

    /// Founds the grid or joins it, and stays in it.
    async fn belong(&self, id: MemberId, (path, version): (&StatePath, Version)) -> Result<()> {
        let way = self.find(id).await?;
        let life = match &way {
            Way::Founds(life) | Way::Joins(life, _) => *life,
        };
        let grid = self.begin(id, way).await?;
        let part = Part {
            life,
            endpoint: grid.endpoint().to_string(),
        };
        let berth = written(&self.berth(Some(part)))?;
        let state = &self.setup.state;
        state.set(path, &berth, Expected::Version(version)).await?;
        self.shelf().open(grid, life)?;
        self.watch(id, life).await
    }

    /// Which grid to belong to: one that has members, or one of its own where none has any and none is being founded. Of several who found one at a
    /// time the cluster's state takes one.
    async fn find(&self, id: MemberId) -> Result<Way> {
        let state = &*self.setup.state;
        let path = layout::grid_record()?;
        loop {
            let found = look(state, &path).await?;
            let record = match &found {
                Found::Whole(node) => GridRecord::read(&node.value),
                _ => None,
            };
            let berths = berths(state).await?;
            let parts = || berths.values().filter_map(|berth| berth.part.as_ref());
            // A record that nobody can read is that of the grid that is there.
            let life = record.map(|record| record.life);
            let life = life.or_else(|| parts().map(|part| part.life).next());
            let there = parts().filter(|part| Some(part.life) == life);
            let there: Vec<String> = there.map(|part| part.endpoint.clone()).collect();
            if let (Some(life), Some(_), false) = (life, record, there.is_empty()) {
                return Ok(Way::Joins(life, there));
            }
            let founder = record.map(|record| record.founder);
            if founder.is_some_and(|founder| founder != id && berths.contains_key(&founder)) {
                tokio::time::sleep(WAITS).await;
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
                // What was damaged is mended, and joined.
                Ok(_) if !there.is_empty() => {}
                Ok(_) => return Ok(Way::Founds(own.life)),
                Err(error) if error.code() == ErrorCode::StateConflict => {}
                // It is seen whether it was written; if so it is written anew.
                Err(error) if error.code() == ErrorCode::StateUnknown => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the member.
    async fn begin(&self, id: MemberId, way: Way) -> Result<Grid> {
        let HostShelterSetup {
            security,
            host,
            limit_bytes,
            map_bytes,
            backups,
            ..
        } = &self.setup;
        let (life, seeds) = match way {
            Way::Founds(life) => (life, Vec::new()),
            Way::Joins(life, seeds) => (life, seeds),
        };
        // No member of an earlier grid has any business with those of this one.
        let name = format!("{}/snapshots-{life:x}", security.cluster());
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
            let what = "a part in the grid was not begun";
            Err(Error::new(ErrorCode::Internal, what).because(error))
        })
    }

    /// Stays in the grid, and tells it who is dead, until it is out or there is another grid.
    async fn watch(&self, id: MemberId, life: u64) -> Result<()> {
        let state = &*self.setup.state;
        let mut members: Watcher<Vec<String>> =
            state.watch_children(&layout::grid_members()?).await?;
        let mut there = members.next().await?;
        let mut dead = BTreeSet::new();
        let mut ticks = tokio::time::interval(LOOKS_EVERY);
        loop {
            tokio::select! {
                now = members.next() => there = now?,
                _ = ticks.tick() => self.is_present(life).await?,
            }
            if self.shelf().is_out() {
                return Err(ended(
                    "it was not heard for a while, and others went on without it",
                ));
            }
            self.look_for_dead(id, &there, &mut dead).await?;
            if self.is_beyond_help(&dead) {
                self.give_up(life).await?;
                return Err(ended("more hosts are lost than it can go on without"));
            }
        }
    }

    /// Refuses to go on in a grid that was replaced.
    async fn is_present(&self, life: u64) -> Result<()> {
        // A record that is gone or damaged is mended by whoever comes next; what can't be read now is looked at again.
        let node = self.setup.state.get(&layout::grid_record()?).await;
        let record = node.ok().flatten();
        let record = record.and_then(|node| GridRecord::read(&node.value));
        match record.is_some_and(|record| record.life != life) {
            true => Err(ended("others have begun anew without it")),
            false => Ok(()),
        }
    }

    /// Tells the grid of members whose sessions have ended. Each had one before it came: whoever has none has stopped, or is dead.
    async fn look_for_dead(
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
            // What was listed may be older than the member. What can't be read now is looked at again.
            let path = layout::grid_member(member.id.0)?;
            if let Ok(None) = self.setup.state.get(&path).await {
                dead.insert(member.id);
                self.shelf().tell_dead(member.id);
            }
        }
        Ok(())
    }

    /// Whether fewer than half of the members live: they can't decide on anything any more, nor let others in.
    fn is_beyond_help(&self, dead: &BTreeSet<MemberId>) -> bool {
        self.shelf().view().is_some_and(|view| {
            let all = view.members.len();
            let alive = view.members.iter();
            let alive = alive.filter(|member| !dead.contains(&member.id)).count();
            2 * alive < all
        })
    }

    /// Has another grid founded in place of this one.
    async fn give_up(&self, life: u64) -> Result<()> {
        let path = layout::grid_record()?;
        let found = look(&*self.setup.state, &path).await?;
        let Found::Whole(node) = &found else {
            return Ok(());
        };
        if GridRecord::read(&node.value).is_none_or(|record| record.life != life) {
            return Ok(());
        }
        let none = written(&GridRecord::default())?;
        match self.setup.state.set(&path, &none, found.expected()).await {
            Err(error) if error.code() != ErrorCode::StateConflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives what it keeps to others. Where all go who have a part, all of it ends.
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
            let leaving = tokio::task::spawn_blocking(move || grid.leave(LEAVES_WITHIN));
            // If it takes too long the others have their copies.
            let _ = leaving.await;
        }
    }
}
