//! How much of a client's time, memory and words the server takes in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::handlers::failed;
use crate::DOUBTFUL;

/// The largest head of a request.
pub(super) const MOST_HEAD_BYTES: usize = 64 * 1024;

/// Gives up on a request that takes too long, be it the client's body or the cluster's answer. Lines that are followed are answered at
/// once, and are not given up.
pub(super) async fn in_time(
    State(patience): State<Arc<Duration>>,
    request: Request,
    next: Next,
) -> Response {
    let next_step = match *request.method() {
        Method::GET => "try again",
        _ => DOUBTFUL,
    };
    match tokio::time::timeout(*patience, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let what = format!(
                "the cluster did not answer within {} s",
                patience.as_secs_f64()
            );
            failed(&Error::new(ErrorCode::StateUnavailable, what).hint(next_step))
        }
    }
}

/// After a connection that could not be accepted: when there are no more files to be opened, it takes others to close theirs.
pub(super) async fn rest_after(error: &io::Error) {
    let is_the_clients = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if !is_the_clients {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
