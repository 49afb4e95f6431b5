//! The runner of a host, for schedulers in other processes: registered in the state manager, and asked over couriers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{
    Expected, Found, Node, Session, SessionEnding, StateManager, StatePath, Version, layout, look,
};
use ardea_network::rpc::{Courier, Greeting, Listener, Receiver, Security, Sender, connect};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::message::{Answer, FromRunner, Question, Stock, ToRunner};
use super::record::HostRecord;
use crate::runner::RunnerJob;
use crate::{ContainerEvents, Runner};

/// What a scheduler that asks a runner says that it wants.
pub(super) const PURPOSE: &str = "scheduler to the runner of a host";

/// A scheduler that has said nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// How often the record is compared with how things are.
const REFRESH: Duration = Duration::from_secs(1);

/// How long to wait before the state manager is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// How long to wait at most before the name is asked for again that another host has.
const RETRY_TAKEN: Duration = Duration::from_secs(8);

/// Who a host is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// Its name, unique in the cluster. A host that is started again has the same.
    pub id: String,
    /// Where its runner listens, `address:port`; port 0 is any that is free.
    pub listen_at: String,
    /// What schedulers may want to know of it, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
}

/// Serves the [`Runner`] of this host to the schedulers of a cluster, for as long as it is not dropped. Containers go on after that.
pub struct RunnerServer {
    host: Arc<Host>,
    tasks: Vec<JoinHandle<()>>,
}

/// What both tasks need.
struct Host {
    id: String,
    path: StatePath,
    runner: Runner,
    record: HostRecord,
    state: Arc<dyn StateManager>,
    security: Security,
    trouble: Mutex<Option<Error>>,
}

impl RunnerServer {
    /// Listens, and registers the host, with all that its runner has.
    ///
    /// # Errors
    ///
    /// When it can't listen there, when the state manager doesn't answer, and [`ErrorCode::NameTaken`] when another host of that name is
    /// alive.
    pub async fn start(
        identity: HostIdentity,
        runner: Runner,
        state: Arc<dyn StateManager>,
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
        // It can be asked before others learn of it.
        let serving = tokio::spawn(serve(listener, Arc::clone(&host)));
        let mut server = RunnerServer {
            host: Arc::clone(&host),
            tasks: vec![serving],
        };
        let registered = host.register().await?;
        server.tasks.push(tokio::spawn(stay(host, registered)));
        Ok(server)
    }

    /// How it has registered.
    pub fn record(&self) -> &HostRecord {
        &self.host.record
    }

    /// What keeps others from finding it at the moment, if anything does: it has lost its registration, and another host has its name, or the
    /// state manager does not answer.
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

/// A host's node, and the session that it goes with.
struct Registered {
    version: Version,
    written: HostRecord,
    session: Box<dyn Session>,
    ending: SessionEnding,
}

impl Registered {
    /// Whether this is its node, which may have been written since: by a write of this host whose answer was lost.
    fn recognizes(&mut self, id: &str, node: &Node) -> bool {
        if node.version == self.version {
            return true;
        }
        let is_of_its_session = node.session.as_ref() == Some(self.session.id());
        let Ok(found) = HostRecord::read(id, &node.value) else {
            return false;
        };
        // Of what it writes nothing else changes.
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

    /// Registers it, as soon as that is possible.
    async fn register_again(&self) -> Registered {
        let mut wait = RETRY;
        loop {
            let registered = self.register().await;
            *self.trouble() = registered.as_ref().err().cloned();
            wait = match registered {
                Ok(registered) => return registered,
                Err(error) if error.code() == ErrorCode::NameTaken => RETRY_TAKEN.min(2 * wait),
                Err(_) => RETRY,
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
                    self.take_over_from_the_dead().await?;
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

    /// Removes the node that this host has left behind when it died, unless one that lives has it.
    async fn take_over_from_the_dead(&self) -> Result<()> {
        let found = look(&*self.state, &self.path).await?;
        // Whoever left a damaged node can't be asked, nor reached by others.
        if let Found::Whole(node) = &found
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
            Err(error) if error.code() != ErrorCode::StateConflict => Err(error),
            _ => Ok(()),
        }
    }

    async fn answers(&self, address: &str) -> bool {
        let greeting = Greeting::new("host that wants to know whether its name is taken");
        let patience = Duration::from_secs(2);
        connect(address, &greeting, &self.security, patience)
            .await
            .is_ok()
    }

    /// Writes what it holds and how much that uses, if that has changed. Fails with an error that [is in the way](is_in_the_way) if its node is
    /// damaged, gone or another's: others do not find the host any more.
    async fn refresh(&self, registered: &mut Registered) -> Result<()> {
        let (used, holds) = (self.runner.used().await?, self.runner.holds().await?);
        let node = self.state.get(&self.path).await?;
        if !node.is_some_and(|node| registered.recognizes(&self.id, &node)) {
            let what = format!("the node of the host {:?} is not its own any more", self.id);
            return Err(Error::new(ErrorCode::StateConflict, what));
        }
        if used == registered.written.used && holds == registered.written.holds {
            return Ok(());
        }
        let mut record = registered.written.clone();
        (record.used, record.holds) = (used, holds);
        // A node that has become another's by now, or is gone, must not be made anew: it would stay for ever.
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
            // That, or a write whose answer was lost came first: the next look tells.
            Err(error) if error.code() == ErrorCode::StateConflict => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether what is where this host's node is to be is not that node, but another, none, or what is left of one.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::StateConflict | ErrorCode::StateCorrupt
    )
}

/// Keeps a host registered.
async fn stay(host: Arc<Host>, mut registered: Registered) {
    let mut looks = tokio::time::interval(REFRESH);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut registered.ending => {}
            _ = looks.tick() => match host.refresh(&mut registered).await {
                Err(error) if is_in_the_way(&error) => {}
                // A state manager that is away comes back, or the session ends.
                _ => continue,
            }
        }
        registered = host.register_again().await;
    }
}

/// Serves every scheduler that comes.
async fn serve(mut listener: Listener, host: Arc<Host>) {
    let mut schedulers = JoinSet::new();
    loop {
        while schedulers.try_join_next().is_some() {}
        match listener.accept().await {
            Ok(courier) if courier.greeting().purpose == PURPOSE => {
                schedulers.spawn(attend(courier, Arc::clone(&host)));
            }
            // Whoever only wanted to know that somebody is here knows it now.
            Ok(_) => {}
            Err(error) if error.code() == ErrorCode::Internal => return,
            // It was told to whoever connected, or will be better later.
            Err(_) => {}
        }
    }
}

/// Serves one scheduler, until it goes or is lost.
async fn attend(courier: Courier, host: Arc<Host>) {
    let (sender, mut receiver) = courier.split();
    let begin = tokio::time::timeout(SILENCE, receiver.receive()).await;
    let Ok(Ok(Some(ToRunner::Begin(launch)))) = begin else {
        return;
    };
    let (outbox, letters) = mpsc::unbounded_channel();
    let work = async {
        match host.runner.job(*launch).await {
            Ok((job, events)) => {
                // Others may have been promised what its scheduler has seen to be left.
                let job = job.bounded();
                tokio::join!(
                    answer_all(&host, job, &mut receiver, outbox.clone()),
                    pass_on(events, outbox),
                );
            }
            Err(error) => {
                let _ = outbox.send(FromRunner::Refused(error.into()));
                // It hangs up when it has read that.
                let _ = tokio::time::timeout(SILENCE, receiver.receive::<ToRunner>()).await;
            }
        }
    };
    // Either may be the first to notice that the scheduler is gone.
    tokio::select! {
        () = work => {}
        () = deliver(sender, letters) => {}
    }
}

async fn pass_on(mut events: ContainerEvents, outbox: mpsc::UnboundedSender<FromRunner>) {
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

/// Answers questions, any number of them at a time; what was begun is completed even if whoever asked is gone.
async fn answer_all(
    host: &Arc<Host>,
    job: RunnerJob,
    receiver: &mut Receiver,
    outbox: mpsc::UnboundedSender<FromRunner>,
) {
    loop {
        let message = tokio::time::timeout(SILENCE, receiver.receive::<ToRunner>()).await;
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

async fn answer(host: &Host, job: &RunnerJob, question: Question) -> Result<Answer> {
    match question {
        Question::Have {
            order,
            wanted,
            floor,
        } => job.have(order, wanted, floor).await.map(|()| Answer::Done),
        Question::Restart {
            order,
            request,
            floor,
        } => {
            let id = request.id;
            let incarnation = job.restart(order, id, Some(request), floor).await?;
            Ok(Answer::Restarted(incarnation))
        }
        Question::Release { id, up_to } => job.release(id, up_to).await.map(|()| Answer::Done),
        Question::Kill { order } => job.kill(order).await.map(|()| Answer::Done),
        Question::Stock => Ok(Answer::Stock(Stock {
            held: job.held().await?,
            total: host.record.total,
            used: host.runner.used().await?,
            attributes: host.record.attributes.clone(),
        })),
        Question::Containers => job.containers().await.map(Answer::Containers),
        Question::Logs { id, request } => job.logs(id, request).await.map(Answer::Logs),
    }
}
