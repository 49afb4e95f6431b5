//! Answers those who ask from other processes.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Courier, Fault, Listener};

use crate::cluster::ask::{Ask, Request, Shelter, Told};
use crate::cluster::telling::{Letters, Listeners};

/// How long to wait after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers whoever connects, until the listener is dropped.
pub(crate) async fn serve(mut listener: Listener, shelter: Arc<dyn Shelter>) {
    let listeners = Listeners::default();
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

/// One thing after the other: who wants several at a time has several connections.
async fn answer(courier: Courier, shelter: Arc<dyn Shelter>, listeners: Listeners) {
    let (mut sender, mut receiver) = courier.split();
    while let Ok(Some(Request { job, ask })) = receiver.receive::<Request>().await {
        let (shelter, listeners) = (Arc::clone(&shelter), listeners.clone());
        let done = done(move || match ask {
            Ask::Listen(map) => {
                let letters = Letters::of(&*shelter, &map, &listeners)?;
                Ok((Told::Done, Some(letters)))
            }
            ask => Ok((shelter.ask(&job, ask)?, None)),
        });
        let (told, letters) = match done.await {
            Ok((told, letters)) => (Ok(told), letters),
            Err(error) => (Err(Fault::from(&error)), None),
        };
        if sender.send(&told).await.is_err() {
            return;
        }
        if let Some(letters) = letters {
            return letters.send(sender, receiver).await;
        }
    }
}

/// Does something beside the runtime's threads.
async fn done<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let what = "what was asked of a host's memory was not done";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}
