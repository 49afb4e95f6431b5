//! Answers those who ask from other processes.

use std::sync::Arc;
use std::time::Duration;

use ardea_api::Fault;
use ardea_core::{Error, ErrorCode};
use ardea_courier::{Courier, Listener};

use crate::ask::{Request, Shelter, Told};

/// How long to wait after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers whoever connects, until the listener is dropped.
pub(crate) async fn serve(mut listener: Listener, shelter: Arc<dyn Shelter>) {
    loop {
        match listener.accept().await {
            Ok(courier) => drop(tokio::spawn(answer(courier, Arc::clone(&shelter)))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One thing after the other: who wants several at a time has several connections.
async fn answer(courier: Courier, shelter: Arc<dyn Shelter>) {
    let (mut sender, mut receiver) = courier.split();
    while let Ok(Some(Request { job, ask })) = receiver.receive::<Request>().await {
        let shelter = Arc::clone(&shelter);
        let asked = tokio::task::spawn_blocking(move || shelter.ask(&job, ask)).await;
        let told: Result<Told, Fault> = match asked {
            Ok(told) => told.map_err(|error| Fault::from(&error)),
            Err(error) => {
                let what = "what was asked of a host's memory was not done";
                let error = Error::new(ErrorCode::Internal, what).because(error);
                Err(Fault::from(&error))
            }
        };
        if sender.send(&told).await.is_err() {
            return;
        }
    }
}
