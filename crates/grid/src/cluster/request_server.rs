//! Server for store requests from other processes.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{ApiError, Listener, RpcConnection};

use crate::cluster::request::{GridStoreClient, Request, StoreRequest, StoreResponse};
use crate::cluster::watch_server::{WatchBatches, WatchCounter};

/// Delay after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until the listener is dropped.
pub(crate) async fn serve(mut listener: Listener, shelter: Arc<dyn GridStoreClient>) {
    let listeners = WatchCounter::default();
    loop {
        match listener.accept().await {
            Ok(courier) => {
                let answering = answer(courier, Arc::clone(&shelter), listeners.clone());
                drop(tokio::spawn(answering));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one connection, one request at a time. Clients open several connections for concurrency.
async fn answer(
    courier: RpcConnection,
    shelter: Arc<dyn GridStoreClient>,
    listeners: WatchCounter,
) {
    let (mut sender, mut receiver) = courier.split();
    while let Ok(Some(Request { job, ask })) = receiver.receive::<Request>().await {
        let (shelter, listeners) = (Arc::clone(&shelter), listeners.clone());
        let done = done(move || match ask {
            StoreRequest::Watch(map) => {
                let letters = WatchBatches::of(&*shelter, &map, &listeners)?;
                Ok((StoreResponse::Done, Some(letters)))
            }
            ask => Ok((shelter.request(&job, ask)?, None)),
        });
        let (told, letters) = match done.await {
            Ok((told, letters)) => (Ok(told), letters),
            Err(error) => (Err(ApiError::from(&error)), None),
        };
        if sender.send(&told).await.is_err() {
            return;
        }
        if let Some(letters) = letters {
            return letters.send(sender, receiver).await;
        }
    }
}

/// Runs blocking work outside of the runtime's threads.
async fn done<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let what = "a request to the in-memory store was not carried out";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}
