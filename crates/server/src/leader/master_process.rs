//! A process that may be master: of every job of a cluster, or of one.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::Node;
use ardea_metastore::layout::{self, JobLayout};
use ardea_network::rpc::Listener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::leader::{Candidacy, JobDesk, JobStore, MasterSetup, StoredJob, sweep};

/// How long to wait after something could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// How often what belongs to no job is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How long leases may take to be given up when the process ends.
const CLOSES_WITHIN: Duration = Duration::from_secs(3);

/// Which jobs a process stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Jobs {
    /// Every job of the cluster, those that will be submitted included.
    All,
    /// The job of this name, whenever there is one.
    Named(String),
}

/// A process that may be master: it listens for workers, and stands as candidate for every job that appears.
///
/// Dropping it is as if the process had died: leases run out, and others take over. [`close`](Self::close) gives them up at once.
#[derive(Debug)]
pub struct MasterProcess {
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    setup: MasterSetup,
    address: String,
    desks: Desks,
    /// Why this process does not stand for a job, by the job's name.
    obstacles: RwLock<BTreeMap<String, Error>>,
}

/// The jobs that this process stands for, by their keys.
type Desks = Arc<RwLock<HashMap<String, JobDesk>>>;

impl MasterProcess {
    /// Listens, and stands for these jobs from now on.
    ///
    /// # Errors
    ///
    /// When it can't listen, when nobody could reach where it listens, or when a job's name makes no sense.
    pub async fn start(setup: MasterSetup, jobs: Jobs) -> Result<Self> {
        let desks = Desks::default();
        let known = Arc::clone(&desks);
        let admission = move |greeting: &ardea_network::rpc::Greeting| {
            let job = greeting.job.as_deref().unwrap_or_default();
            match read(&known).contains_key(job) {
                true => Ok(()),
                false => Err(format!("there is no job {job:?} that it stands for")),
            }
        };
        let listen = setup.listen.clone();
        let listener = Listener::bind_for(&listen, setup.security.clone(), admission).await?;
        let address = advertised(&setup, listener.address())?;
        let shared = Arc::new(Shared {
            setup,
            address,
            desks,
            obstacles: RwLock::default(),
        });
        let (closing, closed) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(welcome(listener, Arc::clone(&shared.desks)));
        match jobs {
            Jobs::All => {
                tasks.spawn(tidy(Arc::clone(&shared)));
                tasks.spawn(attend_all(Arc::clone(&shared), closed));
            }
            Jobs::Named(name) => {
                let layout = JobLayout::of(&name)?;
                tasks.spawn(attend(Arc::clone(&shared), name, layout, closed));
            }
        }
        Ok(MasterProcess {
            shared,
            closing,
            tasks,
        })
    }

    /// Where workers reach it.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The jobs that it stands for, sorted by name.
    pub fn desks(&self) -> Vec<JobDesk> {
        let mut desks: Vec<_> = read(&self.shared.desks).values().cloned().collect();
        desks.sort_by(|a, b| a.job().cmp(b.job()));
        desks
    }

    /// Where the job of this name is asked; nothing if it does not stand for it.
    pub fn desk(&self, name: &str) -> Option<JobDesk> {
        let desks = read(&self.shared.desks);
        desks.values().find(|desk| desk.job().name == name).cloned()
    }

    /// The jobs that it can't stand for, and why: their scheduler or packing policy is not known here, or what is stored can't be read.
    pub fn obstacles(&self) -> BTreeMap<String, Error> {
        let obstacles = self.shared.obstacles.read();
        obstacles.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What keeps it from leading jobs at the moment, by their names: its [`obstacles`](Self::obstacles), and the troubles of those that it
    /// stands for ([`JobDesk::trouble`]).
    pub fn troubles(&self) -> BTreeMap<String, Error> {
        let mut troubles = self.obstacles();
        for desk in self.desks() {
            if let Some(trouble) = desk.trouble() {
                troubles.insert(desk.job().name.clone(), trouble);
            }
        }
        troubles
    }

    /// Gives up all leases in good order, so that other processes may lead at once, and ends.
    pub async fn close(mut self) {
        self.closing.send_replace(true);
        let resigned = async {
            while !read(&self.shared.desks).is_empty() && self.tasks.join_next().await.is_some() {}
        };
        // What takes longer runs out by itself.
        let _ = tokio::time::timeout(CLOSES_WITHIN, resigned).await;
    }
}

impl Shared {
    /// Why this process does not stand for the job, if it does not.
    fn obstacle(&self, name: &str, error: Option<Error>) {
        let obstacles = self.obstacles.write();
        let mut obstacles = obstacles.unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => obstacles.insert(name.to_string(), error),
            None => obstacles.remove(name),
        };
    }

    /// Stands for the job that is stored in this node.
    fn stand(&self, name: &str, node: &Node) -> Result<Candidacy> {
        let stored = StoredJob::decode(&node.value)?;
        let job = stored.record.job.clone();
        if job.name != name || job.cluster != self.setup.security.cluster() {
            let what = format!(
                "what is stored under job {name:?} of cluster {:?} belongs to {job}",
                self.setup.security.cluster()
            );
            return Err(Error::new(ErrorCode::WrongCluster, what)
                .hint("check the state manager's root that the clusters are configured with"));
        }
        let store = JobStore::new(Arc::clone(&self.setup.state), job)?;
        Candidacy::stand(&self.setup, store, stored.submitted, &self.address)
    }
}

fn read(desks: &Desks) -> std::sync::RwLockReadGuard<'_, HashMap<String, JobDesk>> {
    desks.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the process is to end.
async fn closes(closing: &mut watch::Receiver<bool>) {
    // If nobody can say it any more, the process is being dropped.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Where workers reach a process that listens there.
fn advertised(setup: &MasterSetup, at: SocketAddr) -> Result<String> {
    match &setup.advertised_host {
        Some(host) if host.contains(':') && !host.starts_with('[') => {
            Ok(format!("[{host}]:{}", at.port()))
        }
        Some(host) => Ok(format!("{host}:{}", at.port())),
        None if at.ip().is_unspecified() => {
            let what = format!("no worker can reach a master at {at}");
            Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("say by which name or address others reach this host"))
        }
        None => Ok(at.to_string()),
    }
}

/// Gives connections to the jobs that they are for.
async fn welcome(mut listener: Listener, desks: Desks) {
    loop {
        match listener.accept().await {
            Ok(courier) => {
                let job = courier.greeting().job.as_deref().unwrap_or_default();
                let desk = read(&desks).get(job).cloned();
                // A job that is gone by now has closed its door.
                if let Some(desk) = desk {
                    desk.connected(courier);
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Removes from time to time what belongs to no job.
async fn tidy(shared: Arc<Shared>) {
    loop {
        // What could not be looked at is looked at the next time.
        let _ = sweep(&*shared.setup.state).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Attends to every job that there is.
async fn attend_all(shared: Arc<Shared>, closing: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    let mut attended: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let mut closed = closing.clone();
    let attending = async {
        loop {
            let Ok(jobs) = layout::jobs() else { return };
            if let Ok(mut watcher) = shared.setup.state.watch_children(&jobs).await {
                while let Ok(children) = watcher.next().await {
                    // A node that has been removed and made again in one step has never been away here: whoever attends to it sees that.
                    attended.retain(|child, task| {
                        let there = children.binary_search(child).is_ok();
                        if !there {
                            task.abort();
                        }
                        there
                    });
                    for child in children {
                        let name = jobs.child(&child).ok().and_then(|path| path.any_name());
                        let layout = name.as_deref().map(JobLayout::of);
                        let (Some(name), Some(Ok(layout))) = (name, layout) else {
                            continue;
                        };
                        attended.entry(child).or_insert_with(|| {
                            let attend = attend(Arc::clone(&shared), name, layout, closing.clone());
                            tasks.spawn(attend)
                        });
                    }
                    while tasks.try_join_next().is_some() {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = attending => {}
        () = closes(&mut closed) => {}
    }
    while tasks.join_next().await.is_some() {}
}

/// Stands for the job of a name, whenever there is one.
async fn attend(
    shared: Arc<Shared>,
    name: String,
    layout: JobLayout,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let failed = match shared.setup.state.watch_node(layout.definition()).await {
            Ok(mut watcher) => loop {
                let node = tokio::select! {
                    node = watcher.next() => node,
                    () = closes(&mut closing) => return,
                };
                match node {
                    Ok(Some(node)) => stand(&shared, &name, &node, &mut closing).await,
                    Ok(None) => shared.obstacle(&name, None),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        // What can't be reached may be there unharmed; what is damaged keeps everybody from the job.
        if failed.code() == ErrorCode::StateCorrupt {
            shared.obstacle(&name, Some(failed));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = closes(&mut closing) => return,
        }
    }
}

/// Stands for a job until it is gone, or this process ends.
async fn stand(shared: &Shared, name: &str, node: &Node, closing: &mut watch::Receiver<bool>) {
    let candidacy = match shared.stand(name, node) {
        Ok(candidacy) => candidacy,
        Err(error) => return shared.obstacle(name, Some(error)),
    };
    shared.obstacle(name, None);
    let _entry = Entry::new(&shared.desks, candidacy.desk());
    tokio::select! {
        () = candidacy.over() => {}
        () = closes(closing) => candidacy.resign().await,
    }
}

/// A job among those that a process stands for, as long as this is kept.
struct Entry {
    desks: Desks,
    key: String,
}

impl Entry {
    fn new(desks: &Desks, desk: &JobDesk) -> Self {
        let key = desk.job().key();
        let mut all = desks.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(key.clone(), desk.clone());
        drop(all);
        Entry {
            desks: Arc::clone(desks),
            key,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut all = self.desks.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.key);
    }
}
