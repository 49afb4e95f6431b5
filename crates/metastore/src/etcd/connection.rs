//! The connection to the servers, which is replaced when it fails.
//!
//! The client reconnects by itself when a connection breaks, but not when it merely stops
//! responding. So every request has a timeout, after which the whole client is replaced.

use crate::etcd::failure::{RetryAction, reason, retry_action};
use crate::etcd::keys::Keys;
use crate::{RetryDeadline, StateOptions, StatePath, StoreAddress};
use ardea_core::{Error, Result};
use etcd_client::{Client, ConnectOptions, Error as EtcdError};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;

/// The connection to the servers, and the root of the tree on them.
#[derive(Debug)]
pub(crate) struct EtcdConnection {
    place: StoreAddress,
    servers: Vec<String>,
    keys: Keys,
    options: StateOptions,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Number of clients before the current one.
    generation: u64,
    client: Option<Client>,
}

/// A client, and its generation.
pub(crate) struct ClientGeneration {
    pub(crate) client: Client,
    generation: u64,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl EtcdConnection {
    /// Creates a connection that is not established yet.
    pub(crate) fn new(servers: &[String], root: &StatePath, options: StateOptions) -> Self {
        EtcdConnection {
            place: StoreAddress::new(format!("etcd at {}, root {root}", servers.join(","))),
            servers: servers.to_vec(),
            keys: Keys::below(root),
            options,
            current: Mutex::default(),
        }
    }

    /// Returns the address of the store, for messages.
    pub(crate) fn place(&self) -> &StoreAddress {
        &self.place
    }

    /// Returns the mapping of nodes to keys.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns a new deadline for an operation.
    pub(crate) fn deadline(&self) -> RetryDeadline {
        RetryDeadline::new(self.options.timeout)
    }

    /// Returns the session timeout.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.options.session_timeout
    }

    /// Returns the shared client. The connection is made by its first request.
    pub(crate) async fn shared_client(&self) -> Result<ClientGeneration, EtcdError> {
        let mut current = self.current.lock().await;
        let client = match &current.client {
            Some(client) => client.clone(),
            None => {
                let options = ConnectOptions::new().with_connect_timeout(self.try_timeout());
                let client = Client::connect(&self.servers, Some(options)).await?;
                current.client = Some(client.clone());
                client
            }
        };
        Ok(ClientGeneration {
            client,
            generation: current.generation,
        })
    }

    /// Marks a client as broken: the next request creates another.
    pub(crate) async fn replace(&self, line: &ClientGeneration) {
        let mut current = self.current.lock().await;
        if current.generation == line.generation {
            current.client = None;
            current.generation += 1;
        }
    }

    /// Returns the timeout of a request, after which another connection is tried.
    pub(crate) fn try_timeout(&self) -> Duration {
        (self.options.timeout / 3).max(Duration::from_millis(500))
    }

    /// Sends a read-only request, with retries.
    pub(crate) async fn read<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let mut patience = self.deadline();
        loop {
            let why = match self.attempt(&patience, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Late) => LATE.to_string(),
                Err(Failed::With(error)) => match retry_action(&error) {
                    RetryAction::None | RetryAction::LeaseOver => {
                        return Err(self.failed(path, error));
                    }
                    RetryAction::RetryAny | RetryAction::RetryReads => reason(error),
                },
            };
            if !patience.pause().await {
                return Err(self.place.unavailable(format!("read {path}"), why));
            }
        }
    }

    /// Sends a change; retries only if the previous try was certainly not executed.
    pub(crate) async fn write<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let mut patience = self.deadline();
        loop {
            let why = match self.attempt(&patience, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Late) => return Err(self.place.unknown(path, LATE)),
                Err(Failed::With(error)) => match retry_action(&error) {
                    RetryAction::None => return Err(self.failed(path, error)),
                    RetryAction::LeaseOver => return Err(self.place.session_ended(reason(error))),
                    RetryAction::RetryReads => return Err(self.place.unknown(path, reason(error))),
                    RetryAction::RetryAny => reason(error),
                },
            };
            if !patience.pause().await {
                return Err(self.unreachable(format!("change {path}"), why));
            }
        }
    }

    /// Creates the error of an operation that got no response in time and changed nothing.
    pub(crate) fn unreachable(&self, doing: impl std::fmt::Display, why: String) -> Error {
        self.place.unavailable(doing, why)
    }

    /// Sends one request, and replaces the client if it does not respond.
    pub(crate) async fn attempt<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        patience: &RetryDeadline,
        ask: impl Fn(Client) -> F,
    ) -> Result<T, Failed> {
        let line = self.shared_client().await.map_err(Failed::With)?;
        let limit = patience.rest().min(self.try_timeout());
        match tokio::time::timeout(limit, ask(line.client.clone())).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if matches!(
                    retry_action(&error),
                    RetryAction::RetryAny | RetryAction::RetryReads
                ) {
                    self.replace(&line).await;
                }
                Err(Failed::With(error))
            }
            Err(_) => {
                self.replace(&line).await;
                Err(Failed::Late)
            }
        }
    }
}

/// The failure of a request.
pub(crate) enum Failed {
    /// There was no response in time.
    Late,
    /// The server returned an error, or could not be reached.
    With(EtcdError),
}

const LATE: &str = "there was no answer in time";
