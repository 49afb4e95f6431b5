//! A process that is a leader candidate for every job of a cluster, or for a single job.

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

use crate::leader::{JobHandle, JobStore, LeaderTask, MasterSetup, StoredJob, sweep};

/// Retry delay after a failed watch or accept.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval between two removals of nodes that belong to no job.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Maximum time for the release of all leases when the process ends.
const CLOSES_WITHIN: Duration = Duration::from_secs(3);

/// The jobs that a process is a candidate for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Jobs {
    /// All jobs of the cluster, including later submissions.
    All,
    /// The job of this name, whenever it exists.
    Named(String),
}

/// A process that listens for workers and is a leader candidate for every job that appears.
///
/// Dropping it has the same effect as the death of the process: leases expire, and other candidates
/// take over. [`close`](Self::close) releases the leases at once.
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
    handles: LeaderTasks,
    /// The errors that prevent this process from being a candidate, by job name.
    obstacles: RwLock<BTreeMap<String, Error>>,
}

/// The candidacies of this process, by job key.
type LeaderTasks = Arc<RwLock<HashMap<String, JobHandle>>>;

impl MasterProcess {
    /// Listens for workers and starts the candidacies.
    ///
    /// # Errors
    ///
    /// If the process cannot listen, if other machines cannot reach its address, or if a job's name
    /// is invalid.
    pub async fn start(setup: MasterSetup, jobs: Jobs) -> Result<Self> {
        let desks = LeaderTasks::default();
        let known = Arc::clone(&desks);
        let admission = move |greeting: &ardea_network::rpc::HandshakeRequest| {
            let job = greeting.job.as_deref().unwrap_or_default();
            match read(&known).contains_key(job) {
                true => Ok(()),
                false => Err(format!(
                    "this host is no leader candidate for a job {job:?}"
                )),
            }
        };
        let listen = setup.listen.clone();
        let listener = Listener::bind_for(&listen, setup.security.clone(), admission).await?;
        let address = advertised(&setup, listener.address())?;
        let shared = Arc::new(Shared {
            setup,
            address,
            handles: desks,
            obstacles: RwLock::default(),
        });
        let (closing, closed) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_connections(listener, Arc::clone(&shared.handles)));
        match jobs {
            Jobs::All => {
                tasks.spawn(tidy(Arc::clone(&shared)));
                tasks.spawn(attend_all(Arc::clone(&shared), closed));
            }
            Jobs::Named(name) => {
                let layout = JobLayout::of(&name)?;
                tasks.spawn(watch_job(Arc::clone(&shared), name, layout, closed));
            }
        }
        Ok(MasterProcess {
            shared,
            closing,
            tasks,
        })
    }

    /// Returns the address for workers.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Returns the handles of all candidacies, sorted by job name.
    pub fn handles(&self) -> Vec<JobHandle> {
        let mut desks: Vec<_> = read(&self.shared.handles).values().cloned().collect();
        desks.sort_by(|a, b| a.job().cmp(b.job()));
        desks
    }

    /// Returns the handle of the candidacy for the job of this name, if there is one.
    pub fn handle(&self, name: &str) -> Option<JobHandle> {
        let desks = read(&self.shared.handles);
        desks.values().find(|desk| desk.job().name == name).cloned()
    }

    /// Returns the jobs that this process cannot be a candidate for, with the errors: the scheduler
    /// or the packing policy is unknown, or the stored job is unreadable.
    pub fn candidacy_errors(&self) -> BTreeMap<String, Error> {
        let obstacles = self.shared.obstacles.read();
        obstacles.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all current errors by job name: the [`candidacy_errors`](Self::candidacy_errors) and
    /// the lease errors of the candidacies ([`JobHandle::trouble`]).
    pub fn leadership_errors(&self) -> BTreeMap<String, Error> {
        let mut troubles = self.candidacy_errors();
        for desk in self.handles() {
            if let Some(trouble) = desk.trouble() {
                troubles.insert(desk.job().name.clone(), trouble);
            }
        }
        troubles
    }

    /// Releases all leases, so that other processes can lead at once, and ends.
    pub async fn close(mut self) {
        self.closing.send_replace(true);
        let resigned = async {
            while !read(&self.shared.handles).is_empty() && self.tasks.join_next().await.is_some() {
            }
        };
        // On a timeout the remaining leases expire.
        let _ = tokio::time::timeout(CLOSES_WITHIN, resigned).await;
    }
}

impl Shared {
    /// Records or clears the error that prevents a candidacy for the job.
    fn obstacle(&self, name: &str, error: Option<Error>) {
        let obstacles = self.obstacles.write();
        let mut obstacles = obstacles.unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => obstacles.insert(name.to_string(), error),
            None => obstacles.remove(name),
        };
    }

    /// Starts a candidacy for the job stored in `node`.
    fn stand(&self, name: &str, node: &Node) -> Result<LeaderTask> {
        let stored = StoredJob::decode(&node.value)?;
        let job = stored.record.job.clone();
        if job.name != name || job.cluster != self.setup.security.cluster() {
            let what = format!(
                "the metadata of job {name:?} of cluster {:?} belongs to {job}",
                self.setup.security.cluster()
            );
            return Err(Error::new(ErrorCode::WrongCluster, what)
                .hint("check the metadata store's root that the clusters are configured with"));
        }
        let store = JobStore::new(Arc::clone(&self.setup.state), job)?;
        LeaderTask::start(&self.setup, store, stored.submitted, &self.address)
    }
}

fn read(desks: &LeaderTasks) -> std::sync::RwLockReadGuard<'_, HashMap<String, JobHandle>> {
    desks.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the request that this process ends.
async fn closes(closing: &mut watch::Receiver<bool>) {
    // An error means that the process is being dropped.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Returns the address for workers of a process that listens at `at`.
fn advertised(setup: &MasterSetup, at: SocketAddr) -> Result<String> {
    match &setup.advertised_host {
        Some(host) if host.contains(':') && !host.starts_with('[') => {
            Ok(format!("[{host}]:{}", at.port()))
        }
        Some(host) => Ok(format!("{host}:{}", at.port())),
        None if at.ip().is_unspecified() => {
            let what = format!("no worker can connect to a leader that listens at {at}");
            Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("set the name or address by which other hosts reach this one"))
        }
        None => Ok(at.to_string()),
    }
}

/// Accepts the connections of workers and passes each to the candidacy for the worker's job.
async fn accept_connections(mut listener: Listener, desks: LeaderTasks) {
    loop {
        match listener.accept().await {
            Ok(courier) => {
                let job = courier.greeting().job.as_deref().unwrap_or_default();
                let desk = read(&desks).get(job).cloned();
                // The connection of a deleted job is dropped.
                if let Some(desk) = desk {
                    desk.connected(courier);
                }
            }
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// Removes metadata store nodes that belong to no job, periodically.
async fn tidy(shared: Arc<Shared>) {
    loop {
        // Errors are ignored until the next round.
        let _ = sweep(&*shared.setup.state).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Keeps a candidacy for every job of the cluster.
async fn attend_all(shared: Arc<Shared>, closing: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    let mut attended: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let mut closed = closing.clone();
    let attending = async {
        loop {
            let Ok(jobs) = layout::jobs() else { return };
            if let Ok(mut watcher) = shared.setup.state.watch_children(&jobs).await {
                while let Ok(children) = watcher.next().await {
                    // A job's node that was removed and recreated between two events stays in the
                    // list. The watch of that job notices the change.
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
                            let attend =
                                watch_job(Arc::clone(&shared), name, layout, closing.clone());
                            tasks.spawn(attend)
                        });
                    }
                    while tasks.try_join_next().is_some() {}
                }
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    };
    tokio::select! {
        () = attending => {}
        () = closes(&mut closed) => {}
    }
    while tasks.join_next().await.is_some() {}
}

/// Keeps a candidacy for the job of this name, whenever the job exists.
async fn watch_job(
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
        // A node that cannot be read now may be intact. A damaged node prevents any candidacy.
        if failed.code() == ErrorCode::MetastoreCorrupt {
            shared.obstacle(&name, Some(failed));
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_DELAY) => {}
            () = closes(&mut closing) => return,
        }
    }
}

/// Runs a candidacy until the job is deleted or this process ends.
async fn stand(shared: &Shared, name: &str, node: &Node, closing: &mut watch::Receiver<bool>) {
    let candidacy = match shared.stand(name, node) {
        Ok(candidacy) => candidacy,
        Err(error) => return shared.obstacle(name, Some(error)),
    };
    shared.obstacle(name, None);
    let _entry = Entry::new(&shared.handles, candidacy.handle());
    tokio::select! {
        () = candidacy.over() => {}
        () = closes(closing) => candidacy.resign().await,
    }
}

/// The registration of a candidacy; dropping it removes the candidacy from the map.
struct Entry {
    handles: LeaderTasks,
    key: String,
}

impl Entry {
    fn new(desks: &LeaderTasks, desk: &JobHandle) -> Self {
        let key = desk.job().key();
        let mut all = desks.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(key.clone(), desk.clone());
        drop(all);
        Entry {
            handles: Arc::clone(desks),
            key,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut all = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.key);
    }
}
