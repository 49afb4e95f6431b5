//! Limits on time, size and number of requests.

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
use crate::OUTCOME_UNKNOWN;

/// Time limit of requests that read all of a job's state or run a program.
const STATE_READ_TIMEOUT: Duration = Duration::from_secs(3_600);

/// End of the URL path of a check of checkpoints.
const CHECK: &str = "/checkpoints/check";

/// The limits of all requests of a server.
pub(super) struct Bounds {
    limits: ServerLimits,
    /// Permits for responses that stream lines without an end.
    followed: Arc<Semaphore>,
    /// Permits for responses that read all of a job's state. They are separate, so that clients
    /// that vanish while they follow lines can't block savepoints.
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

/// Returns true if the request reads all of a job's state, or runs a program.
fn reads_all(method: &Method, uri: &Uri) -> bool {
    let ends = ["/savepoint", CHECK, "/v1/programs"];
    *method == Method::POST && ends.iter().any(|end| uri.path().ends_with(end))
}

/// Returns true if the response is a stream of lines or events, which may never end.
fn is_followed(method: &Method, uri: &Uri) -> bool {
    let ends = ["/logs", "/changes", "/events"];
    *method == Method::GET && ends.iter().any(|end| uri.path().ends_with(end))
}

/// Returns the time limit of the response to a request; `usual` is the limit of most requests.
fn time_limit(method: &Method, uri: &Uri, usual: Duration) -> Duration {
    match reads_all(method, uri) {
        true => usual.max(STATE_READ_TIMEOUT),
        false => usual,
    }
}

/// Reads the complete request before it is handled, within the client's time limit and the maximum
/// size. Until the request is complete, the server may close the connection to make room for a new
/// one.
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

/// Returns the response to a request whose body is too large or incomplete.
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

/// Marks a response as the last one of its connection, because the rest of the request is not read.
fn last(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// Limits the time of responses, and the number of long-running responses. Streams of followed
/// lines start at once, and are not aborted.
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
            exchange.hold_permit(permit);
        }
    }
    let leaves_nothing = *method == Method::GET || uri.path().ends_with(CHECK);
    let next_step = match leaves_nothing {
        true => "try again",
        false => OUTCOME_UNKNOWN,
    };
    let within = time_limit(method, uri, bounds.limits.answer_timeout);
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
    let what = format!("this host already handles {most} long-running requests of this kind");
    let error = Error::new(ErrorCode::LimitReached, what);
    retry_soon(
        &error
            .hint("try again later, or raise cluster.api_connections: 3/8 of them may follow logs, maps and events, 1/8 may read state"),
    )
}

/// Waits after a failed accept. At the limit of open files, other connections must close first.
pub(super) async fn pause_after(error: &io::Error) {
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
        let by = |method, uri: &'static str| time_limit(&method, &Uri::from_static(uri), usual);
        for uri in [
            "/v1/jobs/words/savepoint",
            "/v1/jobs/words/checkpoints/check",
            "/v1/programs",
        ] {
            assert_eq!(by(Method::POST, uri), STATE_READ_TIMEOUT, "{uri}");
            assert_eq!(by(Method::GET, uri), usual, "{uri}");
        }
        assert_eq!(by(Method::GET, "/v1/jobs/words/checkpoints"), usual);
        assert_eq!(by(Method::POST, "/v1/jobs/words/upgrade"), usual);
    }
}
