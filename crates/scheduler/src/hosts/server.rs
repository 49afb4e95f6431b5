//! The server of a host's runner, for schedulers in other processes. It registers the host in the
//! metadata store and serves RPC connections.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{
    Expected, MetadataStore, Node, ReadResult, Session, SessionEnding, StatePath, Version, layout,
    read_node,
};
use ardea_network::rpc::{
    HandshakeRequest, Listener, Receiver, RpcConnection, Security, Sender, connect,
};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::message::{FromRunner, HostInventory, RunnerRequest, RunnerResponse, ToRunner};
use super::record::HostRecord;
use crate::runner::RunnerJob;
use crate::{ContainerEvents, Runner};

/// The purpose that a scheduler states when it connects to a runner.
pub(super) const PURPOSE: &str = "scheduler to the runner of a host";

/// The time without a message after which a scheduler is disconnected.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which the host's record is updated.
const REFRESH: Duration = Duration::from_secs(1);

/// The delay before a request to the metadata store is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The longest delay before registration is retried while another host has the same name.
const MAX_NAME_RETRY_DELAY: Duration = Duration::from_secs(8);

/// The identity of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// The host's name, unique in the cluster and stable over restarts.
    pub id: String,
    /// The listen address of the host's runner, `address:port`; port 0 is any free port.
    pub listen_at: String,
    /// The host's attributes for placement, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
}

/// The server of this host's [`Runner`] for the schedulers of a cluster. Dropping it ends the
/// server, but no container.
pub struct RunnerServer {
    host: Arc<Host>,
    tasks: Vec<JoinHandle<()>>,
}

/// The state shared by both tasks.
struct Host {
    id: String,
    path: StatePath,
    runner: Runner,
    record: HostRecord,
    state: Arc<dyn MetadataStore>,
    security: Security,
    trouble: Mutex<Option<Error>>,
}

impl RunnerServer {
    /// Starts to listen, and registers the host with the resources of its runner.
    ///
    /// # Errors
    ///
    /// If the server can't listen or the metadata store does not answer. [`ErrorCode::NameTaken`]
    /// if another live host has the same name.
    pub async fn start(
        identity: HostIdentity,
        runner: Runner,
        state: Arc<dyn MetadataStore>,
        security: Security,
    ) -> Result<Self> {
        let listener = Listener::bind(&identity.listen_at, security.clone()).await?;
        let config = runner.config();
        let host = match config.host.contains(':') && !config.host.starts_with('[') {
            true => format!("[{}]", config.host),
            false => config.host.clone(),
        };
        let record = HostRecord {
            address: format!("{host}:{}", listener.address().port()),
            host: config.host.clone(),
            total: config.capacity,
            used: runner.used().await?,
            attributes: identity.attributes,
            holds: runner.holds().await?,
        };
        let host = Arc::new(Host {
            path: layout::worker(&identity.id)?,
            id: identity.id,
            runner,
            record,
            state,
            security,
            trouble: Mutex::new(None),
        });
        // The runner accepts connections before the host is registered.
        let serving = tokio::spawn(serve(listener, Arc::clone(&host)));
        let mut server = RunnerServer {
            host: Arc::clone(&host),
            tasks: vec![serving],
        };
        let registered = host.register().await?;
        server
            .tasks
            .push(tokio::spawn(keep_registered(host, registered)));
        Ok(server)
    }

    /// Returns the host's record as registered at the start.
    pub fn record(&self) -> &HostRecord {
        &self.host.record
    }

    /// Returns the reason why the host is not registered at present, if any: its name was taken by
    /// another host, or the metadata store does not answer.
    pub fn trouble(&self) -> Option<Error> {
        self.host.trouble().clone()
    }
}

impl Drop for RunnerServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for RunnerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerServer")
            .field("record", &self.host.record)
            .finish_non_exhaustive()
    }
}

/// The node of a registered host, and the session that owns the node.
struct Registered {
    version: Version,
    written: HostRecord,
    session: Box<dyn Session>,
    ending: SessionEnding,
}

impl Registered {
    /// Returns true if `node` is the host's own node. A write of this host whose answer was lost
    /// may have given the node a newer version.
    fn is_own_node(&mut self, id: &str, node: &Node) -> bool {
        if node.version == self.version {
            return true;
        }
        let is_of_its_session = node.session.as_ref() == Some(self.session.id());
        let Ok(found) = HostRecord::read(id, &node.value) else {
            return false;
        };
        // Only these fields change in the host's own writes.
        let mut like_before = found.clone();
        like_before.used = self.written.used;
        like_before.holds.clone_from(&self.written.holds);
        if !is_of_its_session || like_before != self.written {
            return false;
        }
        (self.version, self.written) = (node.version, found);
        true
    }
}

impl Host {
    fn trouble(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the host, and retries until it succeeds.
    async fn register_again(&self) -> Registered {
        let mut wait = RETRY_DELAY;
        loop {
            let registered = self.register().await;
            *self.trouble() = registered.as_ref().err().cloned();
            wait = match registered {
                Ok(registered) => return registered,
                Err(error) if error.code() == ErrorCode::NameTaken => {
                    MAX_NAME_RETRY_DELAY.min(2 * wait)
                }
                Err(_) => RETRY_DELAY,
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn register(&self) -> Result<Registered> {
        let (session, ending) = self.state.open_session().await?;
        let mut written = self.record.clone();
        written.used = self.runner.used().await?;
        written.holds = self.runner.holds().await?;
        let value = written.written()?;
        let version = loop {
            match session.create(&self.path, &value).await {
                Ok(version) => break version,
                Err(error) if is_in_the_way(&error) => {
                    self.remove_stale_node().await?;
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Registered {
            version,
            written,
            session,
            ending,
        })
    }

    /// Removes the node that this host left behind when it died, unless another live host owns it.
    async fn remove_stale_node(&self) -> Result<()> {
        let found = read_node(&*self.state, &self.path).await?;
        // The owner of a damaged node can't be determined, and other processes can't reach the
        // owner either.
        if let ReadResult::Intact(node) = &found
            && let Ok(other) = HostRecord::read(&self.id, &node.value)
            && other.address != self.record.address
            && self.answers(&other.address).await
        {
            return Err(Error::new(
                ErrorCode::NameTaken,
                format!(
                    "another host of the name {:?} is at {}",
                    self.id, other.address
                ),
            )
            .hint("give each host of the cluster a name of its own"));
        }
        match self.state.delete(&self.path, found.expected()).await {
            Err(error) if error.code() != ErrorCode::MetastoreConflict => Err(error),
            _ => Ok(()),
        }
    }

    async fn answers(&self, address: &str) -> bool {
        let greeting = HandshakeRequest::new("host that checks whether its name is taken");
        let patience = Duration::from_secs(2);
        connect(address, &greeting, &self.security, patience)
            .await
            .is_ok()
    }

    /// Updates the record if the containers or resources have changed. If the host's node is
    /// damaged, missing or owned by another host, the error satisfies [`is_in_the_way`], and the
    /// host must register again.
    async fn refresh(&self, registered: &mut Registered) -> Result<()> {
        let (used, holds) = (self.runner.used().await?, self.runner.holds().await?);
        let node = self.state.get(&self.path).await?;
        if !node.is_some_and(|node| registered.is_own_node(&self.id, &node)) {
            let what = format!("the node of the host {:?} is not its own any more", self.id);
            return Err(Error::new(ErrorCode::MetastoreConflict, what));
        }
        if used == registered.written.used && holds == registered.written.holds {
            return Ok(());
        }
        let mut record = registered.written.clone();
        (record.used, record.holds) = (used, holds);
        // A node that is gone or belongs to another host must not be written. A node created
        // without a session would never be removed.
        let expected = Expected::Version(registered.version);
        match self
            .state
            .set(&self.path, &record.written()?, expected)
            .await
        {
            Ok(version) => {
                (registered.version, registered.written) = (version, record);
                Ok(())
            }
            // The node changed, or an earlier write whose answer was lost took effect. The next
            // refresh handles both cases.
            Err(error) if error.code() == ErrorCode::MetastoreConflict => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns true if `error` means that the node at this host's path is damaged, missing or owned by
/// another host.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::MetastoreConflict | ErrorCode::MetastoreCorrupt
    )
}

/// Keeps a host registered.
async fn keep_registered(host: Arc<Host>, mut registered: Registered) {
    let mut looks = tokio::time::interval(REFRESH);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut registered.ending => {}
            _ = looks.tick() => match host.refresh(&mut registered).await {
                Err(error) if is_in_the_way(&error) => {}
                // An unreachable metadata store comes back, or the session ends.
                _ => continue,
            }
        }
        registered = host.register_again().await;
    }
}

/// Serves every scheduler that connects.
async fn serve(mut listener: Listener, host: Arc<Host>) {
    let mut schedulers = JoinSet::new();
    loop {
        while schedulers.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(courier) if courier.greeting().purpose == PURPOSE => {
                schedulers.spawn(serve_scheduler(courier, Arc::clone(&host)));
            }
            // A connection for another purpose only checks that the host is alive.
            Ok(_) => {}
            Err(error) if error.code() == ErrorCode::Internal => return,
            // The error was reported to the peer, or is transient.
            Err(_) => {}
        }
    }
}

/// Serves one scheduler until it disconnects or is lost.
async fn serve_scheduler(courier: RpcConnection, host: Arc<Host>) {
    let (sender, mut receiver) = courier.split();
    let begin = tokio::time::timeout(SCHEDULER_TIMEOUT, receiver.receive()).await;
    let Ok(Ok(Some(ToRunner::Begin(launch)))) = begin else {
        return;
    };
    let (outbox, letters) = mpsc::unbounded_channel();
    let work = async {
        match host.runner.job(*launch).await {
            Ok((job, events)) => {
                // Several jobs may place containers on this host at once, so the runner checks its
                // capacity.
                let job = job.bounded();
                tokio::join!(
                    serve_requests(&host, job, &mut receiver, outbox.clone()),
                    forward_events(events, outbox),
                );
            }
            Err(error) => {
                let _ = outbox.send(FromRunner::Refused(error.into()));
                // The peer disconnects after it has read the refusal.
                let _ =
                    tokio::time::timeout(SCHEDULER_TIMEOUT, receiver.receive::<ToRunner>()).await;
            }
        }
    };
    // Either may be the first to notice that the scheduler is gone.
    tokio::select! {
        () = work => {}
        () = deliver(sender, letters) => {}
    }
}

async fn forward_events(mut events: ContainerEvents, outbox: mpsc::UnboundedSender<FromRunner>) {
    while let Some(event) = events.next().await {
        if outbox.send(FromRunner::Event(event)).is_err() {
            return;
        }
    }
}

async fn deliver(mut sender: Sender, mut letters: mpsc::UnboundedReceiver<FromRunner>) {
    while let Some(letter) = letters.recv().await {
        if sender.send(&letter).await.is_err() {
            return;
        }
    }
}

/// Serves requests concurrently. A request that has begun is completed even if the scheduler
/// disconnects.
async fn serve_requests(
    host: &Arc<Host>,
    job: RunnerJob,
    receiver: &mut Receiver,
    outbox: mpsc::UnboundedSender<FromRunner>,
) {
    loop {
        let message = tokio::time::timeout(SCHEDULER_TIMEOUT, receiver.receive::<ToRunner>()).await;
        match message {
            Ok(Ok(Some(ToRunner::Ping))) => {
                let _ = outbox.send(FromRunner::Pong);
            }
            Ok(Ok(Some(ToRunner::Ask(number, question)))) => {
                let (host, job, outbox) = (Arc::clone(host), job.clone(), outbox.clone());
                tokio::spawn(async move {
                    let answer = answer(&host, &job, question).await;
                    let _ = outbox.send(FromRunner::Answer(number, answer.map_err(Into::into)));
                });
            }
            Ok(Ok(Some(ToRunner::Begin(_)) | None) | Err(_)) | Err(_) => {
                job.close();
                return;
            }
        }
    }
}

async fn answer(host: &Host, job: &RunnerJob, question: RunnerRequest) -> Result<RunnerResponse> {
    match question {
        RunnerRequest::Have {
            order,
            wanted,
            floor,
        } => job
            .have(order, wanted, floor)
            .await
            .map(|()| RunnerResponse::Done),
        RunnerRequest::Restart {
            order,
            request,
            floor,
        } => {
            let id = request.id;
            let incarnation = job.restart(order, id, Some(request), floor).await?;
            Ok(RunnerResponse::Restarted(incarnation))
        }
        RunnerRequest::Release { id, up_to } => {
            job.release(id, up_to).await.map(|()| RunnerResponse::Done)
        }
        RunnerRequest::Kill { order } => job.kill(order).await.map(|()| RunnerResponse::Done),
        RunnerRequest::Stock => Ok(RunnerResponse::Stock(HostInventory {
            held: job.held().await?,
            total: host.record.total,
            used: host.runner.used().await?,
            attributes: host.record.attributes.clone(),
        })),
        RunnerRequest::Containers => job.containers().await.map(RunnerResponse::Containers),
        RunnerRequest::Logs { id, request } => {
            job.logs(id, request).await.map(RunnerResponse::Logs)
        }
    }
}
