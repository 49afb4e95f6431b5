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

/// How the path of a check ends, of which nothing is left.
const CHECK: &str = "/snapshots/check";

/// How long this request may take: the usual time, unless all of a job's state has to be read for it.
fn within(method: &Method, uri: &Uri, usual: Duration) -> Duration {
    let reads_all = ["/savepoint", CHECK];
    let reads_all = reads_all.iter().any(|end| uri.path().ends_with(end));
    match *method == Method::POST && reads_all {
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
    let leaves_nothing = *request.method() == Method::GET || request.uri().path().ends_with(CHECK);
    let next_step = match leaves_nothing {
        true => "try again",
        false => DOUBTFUL,
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
        for uri in ["/v1/jobs/words/savepoint", "/v1/jobs/words/snapshots/check"] {
            assert_eq!(by(Method::POST, uri), CHECKED_WITHIN, "{uri}");
            assert_eq!(by(Method::GET, uri), usual, "{uri}");
        }
        assert_eq!(by(Method::GET, "/v1/jobs/words/snapshots"), usual);
        assert_eq!(by(Method::POST, "/v1/jobs/words/upgrade"), usual);
    }
}
