//! The connection to the servers: thrown away when it misbehaves, and made again when it is needed.
//!
//! The client reconnects by itself when a connection breaks, but not when it merely falls silent. So every request has
//! a time limit, and after one that was missed the whole client is replaced.

use crate::etcd::failure::{Remedy, reason, remedy};
use crate::etcd::keys::Keys;
use crate::{Patience, Place, StateOptions, StatePath};
use ardea_core::{Error, Result};
use etcd_client::{Client, ConnectOptions, Error as EtcdError};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;

/// Some servers and a root on them.
#[derive(Debug)]
pub(crate) struct Link {
    place: Place,
    servers: Vec<String>,
    keys: Keys,
    options: StateOptions,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// How many clients there were before.
    generation: u64,
    client: Option<Client>,
}

/// A client, and which of those that there were.
pub(crate) struct Line {
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

impl Link {
    /// A link that is not connected yet.
    pub(crate) fn new(servers: &[String], root: &StatePath, options: StateOptions) -> Self {
        Link {
            place: Place::new(format!("etcd at {}, root {root}", servers.join(","))),
            servers: servers.to_vec(),
            keys: Keys::below(root),
            options,
            current: Mutex::default(),
        }
    }

    /// Which etcd, for messages.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Which keys nodes have.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// How long an operation waits.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.options.patience)
    }

    /// For how long a session is to live without a renewal.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.options.session_timeout
    }

    /// The client that all share. Makes no connection yet.
    pub(crate) async fn line(&self) -> Result<Line, EtcdError> {
        let mut current = self.current.lock().await;
        let client = match &current.client {
            Some(client) => client.clone(),
            None => {
                let options = ConnectOptions::new().with_connect_timeout(self.one_try());
                let client = Client::connect(&self.servers, Some(options)).await?;
                current.client = Some(client.clone());
                client
            }
        };
        Ok(Line {
            client,
            generation: current.generation,
        })
    }

    /// This client misbehaves: the next request makes another.
    pub(crate) async fn replace(&self, line: &Line) {
        let mut current = self.current.lock().await;
        if current.generation == line.generation {
            current.client = None;
            current.generation += 1;
        }
    }

    /// After this long a request is tried on another connection.
    pub(crate) fn one_try(&self) -> Duration {
        (self.options.patience / 3).max(Duration::from_millis(500))
    }

    /// Asks for something that changes nothing, as often as it takes.
    pub(crate) async fn read<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let mut patience = self.patience();
        loop {
            let why = match self.attempt(&patience, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Late) => LATE.to_string(),
                Err(Failed::With(error)) => match remedy(&error) {
                    Remedy::None | Remedy::LeaseOver => return Err(self.failed(path, error)),
                    Remedy::Again | Remedy::Lost => reason(error),
                },
            };
            if !patience.pause().await {
                return Err(self.place.unavailable(format!("read {path}"), why));
            }
        }
    }

    /// Asks for a change, as often as can be without making it twice.
    pub(crate) async fn write<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<T> {
        let mut patience = self.patience();
        loop {
            let why = match self.attempt(&patience, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::Late) => return Err(self.place.unknown(path, LATE)),
                Err(Failed::With(error)) => match remedy(&error) {
                    Remedy::None => return Err(self.failed(path, error)),
                    Remedy::LeaseOver => return Err(self.place.session_ended(reason(error))),
                    Remedy::Lost => return Err(self.place.unknown(path, reason(error))),
                    Remedy::Again => reason(error),
                },
            };
            if !patience.pause().await {
                return Err(self.unreachable(format!("change {path}"), why));
            }
        }
    }

    /// Nobody answered in time, and nothing was done.
    pub(crate) fn unreachable(&self, doing: impl std::fmt::Display, why: String) -> Error {
        self.place.unavailable(doing, why)
    }

    /// One request, on a connection that is replaced if it fails to answer.
    pub(crate) async fn attempt<T, F: Future<Output = Result<T, EtcdError>>>(
        &self,
        patience: &Patience,
        ask: impl Fn(Client) -> F,
    ) -> Result<T, Failed> {
        let line = self.line().await.map_err(Failed::With)?;
        let limit = patience.rest().min(self.one_try());
        match tokio::time::timeout(limit, ask(line.client.clone())).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if matches!(remedy(&error), Remedy::Again | Remedy::Lost) {
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

/// Why a request failed.
pub(crate) enum Failed {
    /// There was no answer in time.
    Late,
    /// With an answer, or without a connection.
    With(EtcdError),
}

const LATE: &str = "there was no answer in time";
