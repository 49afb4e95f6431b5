//! Store client for workers, which sends requests to the cluster's hosts.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MetadataStore;
use ardea_network::rpc::{
    ApiError, Encoded, HandshakeRequest, Receiver, Security, Sender, connect,
};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use crate::cluster::maps::MAPS_JOB;
use crate::cluster::membership::note_wanted;
use crate::cluster::record::request_addresses;
use crate::cluster::request::{
    GridStoreClient, MapEventStream, Request, StoreRequest, StoreResponse,
};
use crate::cluster::watch_client::WatchClient;

/// Total timeout of a request, over all hosts.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Response timeout of one host; longer than the retries of its grid operations.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Total timeout for starting a watch; the caller retries.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Opens the cluster's metadata store.
pub type OpenState =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn MetadataStore>>> + Send>> + Send + Sync;

/// Store client that sends each request to any host that responds, preferring the one on its own
/// machine.
///
/// The first request opens the metadata store and starts the thread.
pub struct RemoteGridStore {
    ways: Arc<HostConnections>,
    runtime: Mutex<Option<Runtime>>,
}

struct HostConnections {
    open: Box<OpenState>,
    state: OnceCell<Arc<dyn MetadataStore>>,
    near: String,
    security: Security,
    greeting: HandshakeRequest,
    /// Connections not in use.
    idle: Mutex<Vec<RpcConnection>>,
}

/// A connection with one outstanding request at a time.
struct RpcConnection {
    sender: Sender,
    receiver: Receiver,
}

impl RemoteGridStore {
    /// Creates a client for the cluster with this security, whose metadata store `open` opens.
    /// `near` is the name or address of this machine, and `who` identifies the client in the
    /// handshake.
    pub fn new(
        open: Box<OpenState>,
        security: Security,
        near: impl Into<String>,
        who: impl fmt::Display,
    ) -> Self {
        RemoteGridStore {
            ways: Arc::new(HostConnections {
                open,
                state: OnceCell::new(),
                near: near.into(),
                security,
                greeting: HandshakeRequest::new(format!("{who}, a client of the in-memory store")),
                idle: Mutex::default(),
            }),
            runtime: Mutex::default(),
        }
    }

    /// Spawns a task on the client's thread, which is started on first use.
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

impl GridStoreClient for RemoteGridStore {
    fn request(&self, job: &str, ask: StoreRequest) -> Result<StoreResponse> {
        let request = Encoded::new(&Request {
            job: job.to_string(),
            ask,
        })?;
        let (done, answer) = mpsc::sync_channel(1);
        let ways = Arc::clone(&self.ways);
        self.spawn(async move {
            // The receiver is gone if the process is shutting down.
            let _ = done.send(ways.ask(&request).await);
        })?;
        waited_for(&answer)
    }

    fn watch(&self, map: &str) -> Result<Box<dyn MapEventStream>> {
        let request = Encoded::new(&Request {
            job: MAPS_JOB.to_string(),
            ask: StoreRequest::Watch(map.to_string()),
        })?;
        let (done, answer) = mpsc::sync_channel(1);
        let ways = Arc::clone(&self.ways);
        let hearing = WatchClient::begin(|hears| {
            self.spawn(async move {
                match ways.request_with_retries(&request, WATCH_TIMEOUT).await {
                    Ok((StoreResponse::Done, way)) => {
                        if done.send(Ok(())).is_ok() {
                            hears.all_of(way.receiver, way.sender).await;
                        }
                    }
                    Ok((told, _)) => {
                        let what = format!("unexpected answer of a host to a map watch: {told:?}");
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
        let what = "a request to the in-memory store was dropped";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

impl HostConnections {
    async fn ask(&self, request: &Encoded) -> Result<StoreResponse> {
        let (told, way) = self.request_with_retries(request, TIMEOUT).await?;
        self.idle().push(way);
        Ok(told)
    }

    /// Sends a request until a host responds, and returns the response with its connection. The
    /// request may be carried out twice, so it must be idempotent.
    async fn request_with_retries(
        &self,
        request: &Encoded,
        patience: Duration,
    ) -> Result<(StoreResponse, RpcConnection)> {
        let until = Instant::now() + patience;
        let mut tries = 0;
        loop {
            let tried = tokio::time::timeout_at(until.into(), self.try_to_ask(request, tries));
            let error = match tried.await {
                Ok(Ok(Ok(told))) => return Ok(told),
                // Another host may succeed, or this one after it has rejoined.
                Ok(Ok(Err(error))) if is_passing(error.code()) => error,
                Ok(Ok(Err(error))) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => {
                    let what = format!("no host answered within {} s", patience.as_secs());
                    Error::new(ErrorCode::Network, what)
                }
            };
            if Instant::now() >= until {
                let what = "no host with the in-memory store of checkpoints and maps answers";
                return Err(Error::new(ErrorCode::StateUnavailable, what)
                    .because(error.without_hint())
                    .hint("it works again when the cluster has a host: ardea cluster start"));
            }
            tries += 1;
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Sends the request to one host. The outer error is a connection failure, the inner one the
    /// host's response.
    async fn try_to_ask(
        &self,
        request: &Encoded,
        tries: usize,
    ) -> Result<Result<(StoreResponse, RpcConnection)>> {
        let idle = self.idle().pop();
        let mut way = match idle {
            Some(way) => way,
            None => self.connected(tries).await?,
        };
        let asked = async {
            way.sender.send_encoded(request.clone()).await?;
            way.receiver
                .expect::<Result<StoreResponse, ApiError>>()
                .await
        };
        match tokio::time::timeout(RESPONSE_TIMEOUT, asked).await {
            Ok(told) => match told?.map_err(Error::from) {
                Ok(told) => Ok(Ok((told, way))),
                Err(error) => {
                    // The connection is dropped, so that the next try may use another host.
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
                    RESPONSE_TIMEOUT.as_secs()
                );
                Err(Error::new(ErrorCode::Network, what))
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<RpcConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the nearest host that accepts. `tries` rotates the order, so that repeated
    /// failures reach other hosts.
    async fn connected(&self, tries: usize) -> Result<RpcConnection> {
        let state = self.state.get_or_try_init(|| (self.open)()).await?;
        let mut last = Error::new(ErrorCode::Network, "no host is registered");
        // The first request may be about a map, before any job has requested the grid.
        note_wanted(&**state).await?;
        let mut places = request_addresses(&**state, &self.near).await?;
        let first = tries % places.len().max(1);
        places.rotate_left(first);
        for place in places {
            match connect(&place, &self.greeting, &self.security, CONNECT_TIMEOUT).await {
                Ok(courier) => {
                    let (sender, receiver) = courier.split();
                    return Ok(RpcConnection { sender, receiver });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown
    )
}

impl fmt::Debug for RemoteGridStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteGridStore(near {})", self.ways.near)
    }
}

impl Drop for RemoteGridStore {
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
