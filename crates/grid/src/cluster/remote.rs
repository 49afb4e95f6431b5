//! A worker's way to what its cluster's hosts keep in memory.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StateManager;
use ardea_network::rpc::{Encoded, Fault, Greeting, Receiver, Security, Sender, connect};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use crate::cluster::ask::{Ask, Hearing, Request, Shelter, Told};
use crate::cluster::host::note_wanted;
use crate::cluster::maps::WHO;
use crate::cluster::record::places;
use crate::cluster::remote_hearing::RemoteHearing;

/// For how long something is asked for, of one host or another.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a host may take to answer: longer than its grid tries.
const ANSWERS_WITHIN: Duration = Duration::from_secs(12);

/// How long connecting may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// For how long a host is looked for that tells what happens to a map: whoever listens asks again.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens the cluster's state.
pub type OpenState =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn StateManager>>> + Send>> + Send + Sync;

/// Asks whichever host of the cluster answers, its own machine's first.
///
/// Nothing is opened, and no thread started, before something is asked for.
pub struct RemoteShelter {
    ways: Arc<Ways>,
    runtime: Mutex<Option<Runtime>>,
}

struct Ways {
    open: Box<OpenState>,
    state: OnceCell<Arc<dyn StateManager>>,
    near: String,
    security: Security,
    greeting: Greeting,
    /// Connections that nobody uses at the moment.
    idle: Mutex<Vec<Way>>,
}

/// A connection, on which one thing is asked for at a time.
struct Way {
    sender: Sender,
    receiver: Receiver,
}

impl RemoteShelter {
    /// That of the cluster with this security, whose state `open` opens. `near` is the name or address of this machine, and `who` says who asks.
    pub fn new(
        open: Box<OpenState>,
        security: Security,
        near: impl Into<String>,
        who: impl fmt::Display,
    ) -> Self {
        RemoteShelter {
            ways: Arc::new(Ways {
                open,
                state: OnceCell::new(),
                near: near.into(),
                security,
                greeting: Greeting::new(format!("{who}, which keeps snapshots or maps in memory")),
                idle: Mutex::default(),
            }),
            runtime: Mutex::default(),
        }
    }

    /// Has its thread do something.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            none => {
                let built = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("ardea-shelter")
                    .enable_all()
                    .build();
                none.insert(built.map_err(|error| {
                    Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
                })?)
            }
        };
        Ok(runtime.spawn(work))
    }
}

impl Shelter for RemoteShelter {
    fn ask(&self, job: &str, ask: Ask) -> Result<Told> {
        let request = Encoded::new(&Request {
            job: job.to_string(),
            ask,
        })?;
        let (done, answer) = mpsc::sync_channel(1);
        let ways = Arc::clone(&self.ways);
        self.spawn(async move {
            // Nobody waits for it any more when the process ends.
            let _ = done.send(ways.ask(&request).await);
        })?;
        waited_for(&answer)
    }

    fn listen(&self, map: &str) -> Result<Box<dyn Hearing>> {
        let request = Encoded::new(&Request {
            job: WHO.to_string(),
            ask: Ask::Listen(map.to_string()),
        })?;
        let (done, answer) = mpsc::sync_channel(1);
        let ways = Arc::clone(&self.ways);
        let hearing = RemoteHearing::begin(|hears| {
            self.spawn(async move {
                match ways.told(&request, LISTENS_WITHIN).await {
                    Ok((Told::Done, way)) => {
                        if done.send(Ok(())).is_ok() {
                            hears.all_of(way.receiver, way.sender).await;
                        }
                    }
                    Ok((told, _)) => {
                        let what = format!("a host that was to tell of a map answered {told:?}");
                        let _ = done.send(Err(Error::new(ErrorCode::BadMessage, what)));
                    }
                    Err(error) => drop(done.send(Err(error))),
                }
            })
        })?;
        waited_for(&answer)?;
        Ok(Box::new(hearing))
    }
}

fn waited_for<T>(answer: &mpsc::Receiver<Result<T>>) -> Result<T> {
    answer.recv().unwrap_or_else(|error| {
        let what = "what was asked of a host's memory was dropped";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

impl Ways {
    async fn ask(&self, request: &Encoded) -> Result<Told> {
        let (told, way) = self.told(request, PATIENCE).await?;
        self.idle().push(way);
        Ok(told)
    }

    /// Asks until somebody answers; what was told, and by which connection. What was asked for may be done twice, which does no harm.
    async fn told(&self, request: &Encoded, patience: Duration) -> Result<(Told, Way)> {
        let until = Instant::now() + patience;
        let mut tries = 0;
        loop {
            let tried = tokio::time::timeout_at(until.into(), self.try_to_ask(request, tries));
            let error = match tried.await {
                Ok(Ok(Ok(told))) => return Ok(told),
                // Another one may, or this one when it has a part again.
                Ok(Ok(Err(error))) if is_passing(error.code()) => error,
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => {
                    let what = format!("none answered within {} s", patience.as_secs());
                    Error::new(ErrorCode::Network, what)
                }
            };
            if Instant::now() >= until {
                let what = "no host answers that keeps snapshots and maps in memory";
                return Err(Error::new(ErrorCode::StateUnavailable, what)
                    .because(error.without_hint())
                    .hint("it works again when the cluster has a host: ardea cluster start"));
            }
            tries += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What one host says, or why none says anything.
    async fn try_to_ask(&self, request: &Encoded, tries: usize) -> Result<Result<(Told, Way)>> {
        let idle = self.idle().pop();
        let mut way = match idle {
            Some(way) => way,
            None => self.connected(tries).await?,
        };
        let asked = async {
            way.sender.send_encoded(request.clone()).await?;
            way.receiver.expect::<Result<Told, Fault>>().await
        };
        match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
            Ok(told) => match told?.map_err(Error::from) {
                Ok(told) => Ok(Ok((told, way))),
                Err(error) => {
                    // Of a host that has no part in the grid another one is asked.
                    if !is_passing(error.code()) {
                        self.idle().push(way);
                    }
                    Ok(Err(error))
                }
            },
            Err(_) => {
                let what = format!(
                    "{} did not answer within {} s",
                    way.sender.peer(),
                    ANSWERS_WITHIN.as_secs()
                );
                Err(Error::new(ErrorCode::Network, what))
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Way>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the nearest host that takes one; after so many tries that failed another one comes first.
    async fn connected(&self, tries: usize) -> Result<Way> {
        let state = self.state.get_or_try_init(|| (self.open)()).await?;
        let mut last = Error::new(ErrorCode::Network, "no host has a part in it");
        // A map may be the first that is to be kept.
        note_wanted(&**state).await?;
        let mut places = places(&**state, &self.near).await?;
        let first = tries % places.len().max(1);
        places.rotate_left(first);
        for place in places {
            match connect(&place, &self.greeting, &self.security, CONNECTS_WITHIN).await {
                Ok(courier) => {
                    let (sender, receiver) = courier.split();
                    return Ok(Way { sender, receiver });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn is_passing(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::StateUnavailable | ErrorCode::StateUnknown)
}

impl fmt::Debug for RemoteShelter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteShelter(near {})", self.ways.near)
    }
}

impl Drop for RemoteShelter {
    fn drop(&mut self) {
        let runtime = self
            .runtime
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}
