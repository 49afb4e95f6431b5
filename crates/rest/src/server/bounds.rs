//! The time and the number of bytes that a request may take.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::Semaphore;

use super::ServerLimits;
use super::connections::Exchange;
use super::handlers::{failed, failed_with, retry_soon, shortened};
use crate::DOUBTFUL;

/// The time limit of requests that read all of a job's state.
const CHECKED_WITHIN: Duration = Duration::from_secs(3_600);

/// The end of the path of a check of snapshots, which leaves nothing behind.
const CHECK: &str = "/snapshots/check";

/// The bounds of all requests of a server.
pub(super) struct Bounds {
    limits: ServerLimits,
    /// A permit for each answer whose lines are followed.
    followed: Arc<Semaphore>,
    /// A permit for each answer that reads all of a job's state. Clients that follow lines and
    /// vanish must not keep savepoints away.
    state_readings: Arc<Semaphore>,
}

impl Bounds {
    pub(super) fn of(limits: &ServerLimits) -> Self {
        Bounds {
            limits: *limits,
            followed: Arc::new(Semaphore::new(limits.followed())),
            state_readings: Arc::new(Semaphore::new(limits.state_readings())),
        }
    }
}

/// Whether answering a request means reading all of a job's state.
fn reads_all(method: &Method, uri: &Uri) -> bool {
    let ends = ["/savepoint", CHECK];
    *method == Method::POST && ends.iter().any(|end| uri.path().ends_with(end))
}

/// Whether the answer is a stream of lines, which may never end.
fn is_followed(method: &Method, uri: &Uri) -> bool {
    let ends = ["/logs", "/changes"];
    *method == Method::GET && ends.iter().any(|end| uri.path().ends_with(end))
}

/// Returns the time limit of the answer.
fn within(method: &Method, uri: &Uri, usual: Duration) -> Duration {
    match reads_all(method, uri) {
        true => usual.max(CHECKED_WITHIN),
        false => usual,
    }
}

/// Reads the whole request before anything is done for it, within the client's time limit and the
/// maximum size. Until then the connection may be closed for another one.
pub(super) async fn receive(
    State(bounds): State<Arc<Bounds>>,
    request: Request,
    next: Next,
) -> Response {
    let limits = &bounds.limits;
    let exchange = request.extensions().get::<Arc<Exchange>>().cloned();
    let (parts, body) = request.into_parts();
    let read = Limited::new(body, limits.body_bytes).collect();
    let body = match tokio::time::timeout(limits.client_timeout, read).await {
        Ok(Ok(read)) => read.to_bytes(),
        Ok(Err(error)) => return not_read(&*error, limits),
        Err(_) => return too_slow(limits),
    };
    if let Some(exchange) = exchange {
        exchange.received();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// The answer to a request whose body is too large or broke off.
fn not_read(error: &(dyn std::error::Error + 'static), limits: &ServerLimits) -> Response {
    let is_too_large = error.is::<LengthLimitError>();
    if is_too_large {
        let what = format!("the body has more than {} bytes", limits.body_bytes);
        let error = Error::new(ErrorCode::BadRequest, what);
        let error = error.hint("cluster.api_body_size is the largest body that a host reads");
        return last(failed_with(StatusCode::PAYLOAD_TOO_LARGE, &error));
    }
    let what = format!("the body can't be read: {}", shortened(&error.to_string()));
    last(failed(&Error::new(ErrorCode::BadRequest, what)))
}

fn too_slow(limits: &ServerLimits) -> Response {
    let within = limits.client_timeout.as_secs_f64();
    let what = format!("the request was not complete within {within} s");
    let error = Error::new(ErrorCode::BadRequest, what);
    let error = error.hint("send it faster; cluster.api_timeout is the time that a host waits");
    last(failed_with(StatusCode::REQUEST_TIMEOUT, &error))
}

/// The last answer of its connection: the rest of the request is not waited for.
fn last(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// Gives up on an answer that takes too long, and bounds the number of those that may take long.
/// Lines that are followed are answered at once, and are not given up.
pub(super) async fn in_time(
    State(bounds): State<Arc<Bounds>>,
    request: Request,
    next: Next,
) -> Response {
    let (method, uri) = (request.method(), request.uri());
    let permits = match (reads_all(method, uri), is_followed(method, uri)) {
        (true, _) => Some((&bounds.state_readings, bounds.limits.state_readings())),
        (_, true) => Some((&bounds.followed, bounds.limits.followed())),
        _ => None,
    };
    if let Some((permits, most)) = permits {
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return too_many(most);
        };
        if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
            exchange.takes_long(permit);
        }
    }
    let leaves_nothing = *method == Method::GET || uri.path().ends_with(CHECK);
    let next_step = match leaves_nothing {
        true => "try again",
        false => DOUBTFUL,
    };
    let within = within(method, uri, bounds.limits.answer_timeout);
    match tokio::time::timeout(within, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let within = within.as_secs_f64();
            let what = format!("the cluster did not answer within {within} s");
            failed(&Error::new(ErrorCode::StateUnavailable, what).hint(next_step))
        }
    }
}

fn too_many(most: usize) -> Response {
    let what = format!("this host answers {most} requests of this kind already, which take long");
    let error = Error::new(ErrorCode::LimitReached, what);
    retry_soon(
        &error
            .hint("try again later, or raise cluster.api_connections: 3/8 of them may follow logs and maps, 1/8 may read state"),
    )
}

/// Waits after a connection that could not be accepted: at the limit of open files others have to close theirs first.
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
