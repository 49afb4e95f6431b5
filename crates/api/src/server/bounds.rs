//! How much of a client's time, memory and words the server takes in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;

use super::handlers::failed;
use crate::DOUBTFUL;

/// The largest head of a request.
pub(super) const MOST_HEAD_BYTES: usize = 64 * 1024;

/// How long reading all of a job's state may take.
const CHECKED_WITHIN: Duration = Duration::from_secs(3_600);

/// How long this request may take: the usual time, unless all of a job's state has to be read for it.
fn within(method: &Method, uri: &Uri, usual: Duration) -> Duration {
    let query = uri.query().unwrap_or_default();
    let is_check = query.split('&').any(|one| one == "check=true");
    let is_savepoint = *method == Method::POST && uri.path().ends_with("/savepoint");
    match is_savepoint || (is_check && uri.path().ends_with("/snapshots")) {
        true => usual.max(CHECKED_WITHIN),
        false => usual,
    }
}

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
    let patience = within(request.method(), request.uri(), *patience);
    match tokio::time::timeout(patience, next.run(request)).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_all_of_a_jobs_state_may_take_longer() {
        let usual = Duration::from_secs(30);
        let by = |method, uri: &'static str| within(&method, &Uri::from_static(uri), usual);
        let of = |uri| by(Method::GET, uri);
        let saves = by(Method::POST, "/v1/jobs/words/savepoint");
        assert_eq!(saves, CHECKED_WITHIN);
        assert_eq!(of("/v1/jobs/words/snapshots?check=true"), CHECKED_WITHIN);
        for uri in [
            "/v1/jobs/words/snapshots",
            "/v1/jobs/words/snapshots?check=false",
            "/v1/jobs/words?check=true",
            "/v1/jobs/words/savepoint",
        ] {
            assert_eq!(of(uri), usual, "{uri}");
        }
    }
}
