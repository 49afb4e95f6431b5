//! A scheduler's connection to the runner of one host. A broken connection is re-established.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{MetadataStore, layout};
use ardea_network::rpc::{HandshakeRequest, RpcConnection, Security, connect};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::message::{FromRunner, RunnerRequest, RunnerResponse, ToRunner};
use super::record::HostRecord;
use super::server::PURPOSE;
use crate::{ContainerEvent, LaunchPlan};

/// The time for which a host may be unreachable before requests to it fail immediately. A host can
/// be restarted within this time.
const RECONNECT_GRACE: Duration = Duration::from_secs(2);

/// The timeout of one connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The interval between two pings to the host.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// The time without a message after which a host is unreachable; equal to the timeout of workers.
const HOST_TIMEOUT: Duration = Duration::from_secs(3);

/// The first and the longest delay before the next connection attempt.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// An event of a link, for its scheduler.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// An event of a container on the host.
    Event(ContainerEvent),
    /// The host is connected.
    Connected,
}

/// The connection to the runner of one host. Dropping it closes the connection.
pub(super) struct Link {
    host: String,
    requests: mpsc::UnboundedSender<PendingCall>,
    reach: watch::Receiver<LinkState>,
    last_error: LinkError,
    task: JoinHandle<()>,
}

/// The connection state of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkState {
    /// The host is connected.
    Connected,
    /// The host is disconnected. Contains the time of the host's last message.
    AwaySince(Instant),
}

struct PendingCall {
    question: RunnerRequest,
    answer: oneshot::Sender<Result<RunnerResponse>>,
}

/// The reason why there is no connection at present.
#[derive(Clone, Default)]
struct LinkError(Arc<Mutex<Option<Error>>>);

impl LinkError {
    fn set(&self, why: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn get(&self) -> Option<Error> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Link {
    /// Creates a link for a job to the host registered under the name `host`.
    pub(super) fn new(
        host: &str,
        launch: Arc<LaunchPlan>,
        state: Arc<dyn MetadataStore>,
        security: Security,
        news: mpsc::UnboundedSender<(String, LinkEvent)>,
    ) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let (tell_reach, reach) = watch::channel(LinkState::AwaySince(Instant::now()));
        let trouble = LinkError::default();
        let line = LinkTask {
            host: host.to_string(),
            launch,
            state,
            security,
            news,
            reach: tell_reach,
            last_error: trouble.clone(),
        };
        Link {
            host: host.to_string(),
            requests: questions,
            reach,
            last_error: trouble,
            task: tokio::spawn(line.hold(asked)),
        }
    }

    /// Sends a request to the host, and waits for the answer. Fails if the host becomes unreachable
    /// before.
    pub(super) async fn request(&self, question: RunnerRequest) -> Result<RunnerResponse> {
        let mut reach = self.reach.clone();
        let wait = match *reach.borrow() {
            LinkState::Connected => Duration::ZERO,
            LinkState::AwaySince(heard) => RECONNECT_GRACE.saturating_sub(heard.elapsed()),
        };
        let coming = reach.wait_for(|reach| *reach == LinkState::Connected);
        let is_there = matches!(timeout(wait, coming).await, Ok(Ok(_)));
        if !is_there {
            return Err(self.unreachable());
        }
        let (answer, answered) = oneshot::channel();
        let asked = PendingCall { question, answer };
        if self.requests.send(asked).is_err() {
            return Err(self.unreachable());
        }
        // The other end is dropped when the connection breaks.
        answered.await.unwrap_or_else(|_| Err(self.unreachable()))
    }

    fn unreachable(&self) -> Error {
        let error = Error::new(
            ErrorCode::SchedulerUnavailable,
            format!("the runner of host {} can't be reached", self.host),
        );
        match self.last_error.get() {
            Some(why) => error.because(why.without_hint()),
            None => error,
        }
        .hint("the connection is retried until the host is lost")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}, {:?})", self.host, *self.reach.borrow())
    }
}

/// The task of a link.
struct LinkTask {
    host: String,
    launch: Arc<LaunchPlan>,
    state: Arc<dyn MetadataStore>,
    security: Security,
    news: mpsc::UnboundedSender<(String, LinkEvent)>,
    reach: watch::Sender<LinkState>,
    last_error: LinkError,
}

impl LinkTask {
    async fn hold(self, mut asked: mpsc::UnboundedReceiver<PendingCall>) {
        let [mut wait, longest] = RETRY_DELAYS;
        loop {
            match self.connect().await {
                Ok(courier) => {
                    wait = RETRY_DELAYS[0];
                    let mut heard = Instant::now();
                    let why = self
                        .exchange_messages(courier, &mut asked, &mut heard)
                        .await;
                    self.last_error.set(why);
                    self.reach.send_replace(LinkState::AwaySince(heard));
                }
                Err(why) => self.last_error.set(why),
            }
            // Requests that arrived while the host was unreachable fail immediately.
            while asked.try_recv().is_ok() {}
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    /// Connects to the address that the host has registered.
    async fn connect(&self) -> Result<RpcConnection> {
        let path = layout::worker(&self.host)?;
        let Some(node) = self.state.get(&path).await? else {
            return Err(Error::new(ErrorCode::Network, "it is no longer registered"));
        };
        let record = HostRecord::read(&self.host, &node.value)?;
        let job = self.launch.job();
        let greeting = HandshakeRequest::new(PURPOSE).of_job(format!("{job}#{:x}", job.submission));
        connect(&record.address, &greeting, &self.security, CONNECT_TIMEOUT).await
    }

    /// Exchanges requests and answers until the connection breaks, and returns the reason. `heard`
    /// is set to the time of the host's last message.
    async fn exchange_messages(
        &self,
        courier: RpcConnection,
        asked: &mut mpsc::UnboundedReceiver<PendingCall>,
        heard: &mut Instant,
    ) -> Error {
        let (mut sender, mut receiver) = courier.split();
        let mut waiting = BTreeMap::new();
        let mut number = 0;
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = ToRunner::Begin(Box::new((*self.launch).clone()));
        if let Err(error) = sender.send(&begin).await {
            return error;
        }
        self.reach.send_replace(LinkState::Connected);
        self.send_event(LinkEvent::Connected);
        loop {
            let message = tokio::select! {
                Some(asked) = asked.recv() => {
                    number += 1;
                    waiting.insert(number, asked.answer);
                    ToRunner::Ask(number, asked.question)
                }
                _ = pings.tick() => {
                    if heard.elapsed() > HOST_TIMEOUT {
                        return Error::new(ErrorCode::Network, "it does not answer");
                    }
                    ToRunner::Ping
                }
                received = receiver.receive() => {
                    *heard = Instant::now();
                    match received {
                        Ok(Some(FromRunner::Event(event))) => self.send_event(LinkEvent::Event(event)),
                        Ok(Some(FromRunner::Answer(number, answer))) => {
                            let answer = answer.map_err(|failure| failure.on(&self.host));
                            if let Some(waiting) = waiting.remove(&number) {
                                let _ = waiting.send(answer);
                            }
                        }
                        Ok(Some(FromRunner::Refused(failure))) => return failure.on(&self.host),
                        Ok(Some(FromRunner::Pong)) => {}
                        Ok(None) => return Error::new(ErrorCode::Network, "it closed the connection"),
                        Err(error) => return error,
                    }
                    continue;
                }
            };
            match timeout(HOST_TIMEOUT, sender.send(&message)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => return Error::new(ErrorCode::Network, "it does not accept messages"),
            }
        }
    }

    fn send_event(&self, news: LinkEvent) {
        let _ = self.news.send((self.host.clone(), news));
    }
}
