//! One request and its response, over a new connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_network::tls::Tls;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::endpoint::Endpoint;
use super::hosts::{BackoffList, RETRY_DELAY};
use crate::ApiError;
use crate::routes::DOCUMENT_PATH;

/// Maximum size of a response body.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// Maximum number of redirects per request: one to the job's leader, and more if the leader changes
/// during the request.
const MAX_REDIRECTS: u32 = 4;

/// The hint of an error without a response. The caller replaces or completes it if a retry is not
/// safe.
pub(super) const TRY_AGAIN: &str = "try again";

/// Time without a response after which the client checks that the host responds at all.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Part of the request timeout that is the timeout of this check: a twentieth, within the following
/// bounds.
const PROBE_TIMEOUT_DIVISOR: u32 = 20;
const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(2500);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// The credentials of the client.
type Credentials<'a> = (Option<&'a Token>, Option<&'a Tls>);

/// The head of a response, with its body as a stream.
type Response = axum::http::Response<Incoming>;

/// A request.
pub(super) struct ApiRequest {
    method: Method,
    path: String,
    body: Option<Bytes>,
    may_be_repeated: bool,
    is_read: bool,
}

/// The failure of one try.
#[derive(Debug)]
pub(super) struct TryFailed {
    pub(super) error: Error,
    /// The host that was tried last.
    pub(super) place: Endpoint,
    pub(super) how: FailureKind,
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureKind {
    /// The request was not sent.
    NotSent,
    /// The host did not execute the request, and asks for a retry after this delay.
    RetryLater(Duration),
    /// The host responded with an error.
    ErrorResponse,
    /// The request was sent, but no response arrived.
    NoResponse,
    /// The host responds to no request at all.
    Unresponsive {
        /// True if the request was sent before this was detected.
        is_sent: bool,
    },
}

impl TryFailed {
    fn new(how: FailureKind, place: &Endpoint, error: Error) -> Self {
        TryFailed {
            error,
            place: place.clone(),
            how,
        }
    }

    /// Returns true if the request may have been executed in spite of the failure.
    pub(super) fn may_be_executed(&self) -> bool {
        match self.how {
            FailureKind::NotSent
            | FailureKind::RetryLater(_)
            | FailureKind::Unresponsive { is_sent: false } => false,
            // A deposed leader does not know the outcome.
            FailureKind::ErrorResponse => self.error.code() == ErrorCode::Superseded,
            FailureKind::NoResponse | FailureKind::Unresponsive { is_sent: true } => true,
        }
    }

    /// Returns true if a retry at another host, or later at the same host, may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self.how {
            FailureKind::RetryLater(_)
            | FailureKind::NoResponse
            | FailureKind::Unresponsive { .. } => true,
            // An error code `Network` in a response concerns other hosts and is final; without a
            // response it concerns this host and may be retried.
            FailureKind::ErrorResponse => self.error.code() == ErrorCode::Superseded,
            FailureKind::NotSent => {
                let code = self.error.code();
                matches!(code, ErrorCode::Network | ErrorCode::Superseded)
            }
        }
    }

    /// Returns true if the host could not be reached, or did not respond.
    pub(super) fn is_unreachable(&self) -> bool {
        match self.how {
            FailureKind::RetryLater(_) | FailureKind::ErrorResponse => false,
            FailureKind::NoResponse | FailureKind::Unresponsive { .. } => true,
            FailureKind::NotSent => self.error.code() == ErrorCode::Network,
        }
    }
}

/// Returns the URL path of a resource of a job.
pub(super) fn path(job: &str, rest: &str) -> String {
    format!("/v1/jobs/{}{rest}", encoded(job))
}

/// Percent-encodes a name as a path segment.
pub(super) fn encoded(name: &str) -> String {
    let mut part = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            part.push(char::from(byte));
        } else {
            part += &format!("%{byte:02X}");
        }
    }
    part
}

impl ApiRequest {
    pub(super) fn get(path: String) -> Self {
        ApiRequest::new(Method::GET, path)
    }

    pub(super) fn post(path: String) -> Self {
        ApiRequest::new(Method::POST, path)
    }

    pub(super) fn put(path: String) -> Self {
        ApiRequest::new(Method::PUT, path)
    }

    pub(super) fn delete(path: String) -> Self {
        ApiRequest::new(Method::DELETE, path)
    }

    fn new(method: Method, path: String) -> Self {
        ApiRequest {
            is_read: method == Method::GET,
            method,
            path,
            body: None,
            may_be_repeated: false,
        }
    }

    /// Marks the request as idempotent, so that it may be repeated.
    pub(super) fn repeatable(mut self) -> Self {
        self.may_be_repeated = true;
        self
    }

    /// Marks the request as one without a lasting effect, although its method is not GET.
    pub(super) fn without_effect(mut self) -> Self {
        self.is_read = true;
        self
    }

    /// Returns true if the request has no lasting effect.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns true if the request may be repeated even after it may have been executed.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.may_be_repeated || self.is_read()
    }

    /// Sets the body.
    pub(super) fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_vec(body).map_err(unwritable)?;
        self.body = Some(Bytes::from(json));
        Ok(self)
    }

    /// Sets the query parameters.
    pub(super) fn query(mut self, query: &impl Serialize) -> Result<Self> {
        let query = serde_urlencoded::to_string(query).map_err(unwritable)?;
        if !query.is_empty() {
            self.path += &format!("?{query}");
        }
        Ok(self)
    }

    /// Sends the request to the host `place`, and follows redirects, except to the hosts in `left`.
    pub(super) async fn send_following_redirects(
        &self,
        place: &Endpoint,
        by: Credentials<'_>,
        patience: Duration,
        left: &BackoffList,
    ) -> Result<SuccessResponse, TryFailed> {
        let deadline = Instant::now() + patience;
        let (mut place, mut path) = (place.clone(), self.path.clone());
        for _ in 0..=MAX_REDIRECTS {
            let response = self.at(&place, &path, by, (deadline, patience)).await?;
            if response.status() != StatusCode::TEMPORARY_REDIRECT {
                let answered = SuccessResponse {
                    response,
                    place,
                    deadline,
                    patience,
                };
                return answered.checked().await;
            }
            let not_sent = |error| TryFailed::new(FailureKind::NotSent, &place, error);
            let (next, on) = target(&response, &place).map_err(not_sent)?;
            if left.has(&next) {
                return Err(TryFailed::new(FailureKind::NotSent, &next, hung(&next)));
            }
            (place, path) = (next, on);
        }
        let what = "the hosts of the cluster redirect the request to each other";
        let error = Error::new(ErrorCode::Superseded, what)
            .hint("the job is changing its leader: try again in a moment");
        Err(TryFailed::new(FailureKind::NotSent, &place, error))
    }

    /// Sends the request to one host. Returns the response; fails after a timeout, or when the host
    /// is found to hang.
    async fn at(
        &self,
        place: &Endpoint,
        path: &str,
        by: Credentials<'_>,
        (deadline, patience): (Instant, Duration),
    ) -> Result<Response, TryFailed> {
        let missed = |how, error| TryFailed::new(how, place, error);
        let is_sent = AtomicBool::new(false);
        let asking = async {
            let not_sent = |error| missed(FailureKind::NotSent, error);
            let request = self.request(place, path, by.0).map_err(not_sent)?;
            let stream = connect(place, by.1).await.map_err(not_sent)?;
            is_sent.store(true, Ordering::Relaxed);
            let answer = send(request, stream, place).await;
            answer.map_err(|error| missed(FailureKind::NoResponse, error))
        };
        tokio::select! {
            biased;
            answer = timeout_at(deadline, asking) => match answer {
                Ok(answer) => answer,
                Err(_) => {
                    let how = if is_sent.load(Ordering::Relaxed) { FailureKind::NoResponse } else { FailureKind::NotSent };
                    Err(missed(how, timed_out(place, patience)))
                }
            },
            () = until_hung(place, by, patience) => {
                let is_sent = is_sent.load(Ordering::Relaxed);
                Err(missed(FailureKind::Unresponsive { is_sent }, hung(place)))
            }
        }
    }

    fn request(
        &self,
        place: &Endpoint,
        path: &str,
        token: Option<&Token>,
    ) -> Result<HttpRequest<Full<Bytes>>> {
        let mut request = HttpRequest::builder()
            .method(self.method.clone())
            .uri(path)
            .header(HOST, place.authority());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.secret()));
        }
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(self.body.clone().unwrap_or_default());
        request.body(body).map_err(|error| {
            let what = "the request can't be made";
            Error::new(ErrorCode::InvalidConfig, what)
                .because(error)
                .hint("check the token: it has to be one line of plain letters")
        })
    }
}

/// Sends a request, and waits for the head of the response.
pub(super) async fn send(
    request: HttpRequest<Full<Bytes>>,
    stream: Box<dyn Stream>,
    place: &Endpoint,
) -> Result<Response> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(place, error))?;
    // The task ends with the response, or when the response is dropped.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(|error| broken(place, error))
}

/// Completes when a host does not serve even the constant OpenAPI document in time, because its
/// process is stopped or its machine hangs.
async fn until_hung(place: &Endpoint, (token, tls): Credentials<'_>, patience: Duration) {
    let within = (patience / PROBE_TIMEOUT_DIVISOR).clamp(MIN_PROBE_TIMEOUT, MAX_PROBE_TIMEOUT);
    let known = ApiRequest::get(DOCUMENT_PATH.into());
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let looking = async {
            let request = known.request(place, &known.path, token)?;
            send(request, connect(place, tls).await?, place).await
        };
        // A host that refuses the connection does not hang. The request itself fails then.
        if tokio::time::timeout(within, looking).await.is_err() {
            return;
        }
    }
}

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to the host. With certificates, an unencrypted connection is refused.
pub(super) async fn connect(place: &Endpoint, tls: Option<&Tls>) -> Result<Box<dyn Stream>> {
    match (place.is_encrypted, tls) {
        (true, None) => {
            let what = format!("{place} requires certificates, and none are configured");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint(CERTIFICATES));
        }
        (false, Some(_)) => {
            let what = format!("{place} is not encrypted, but the cluster has certificates");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint("write https://HOST:PORT"));
        }
        _ => {}
    }
    let stream = TcpStream::connect((place.host.as_str(), place.port))
        .await
        .map_err(|error| unreachable(place, error))?;
    Ok(match tls {
        Some(tls) => Box::new(tls.connect(stream, &place.host).await?),
        None => Box::new(stream),
    })
}

const CERTIFICATES: &str =
    "name the files: cluster.tls_authority, cluster.tls_certificate and cluster.tls_key";

/// Returns the target of a redirect: an address and a path.
fn target(response: &Response, place: &Endpoint) -> Result<(Endpoint, String)> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    let (Some(location), stranger) = (location, strange(place, response.status())) else {
        return Err(strange(place, response.status()));
    };
    let next = Endpoint::parse(location).map_err(|_| stranger.clone())?;
    let uri: axum::http::Uri = location.parse().map_err(|_| stranger)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((next, path.to_string()))
}

/// A response with a success status and an unread body.
#[derive(Debug)]
pub(super) struct SuccessResponse {
    response: Response,
    place: Endpoint,
    deadline: Instant,
    patience: Duration,
}

impl SuccessResponse {
    /// Returns the response if its status is a success; otherwise the failure that it reports.
    async fn checked(self) -> Result<Self, TryFailed> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let (place, again_after) = (self.place.clone(), retry_after(self.response.headers()));
        let missed = |how, error| TryFailed::new(how, &place, error);
        let body = self.whole().await;
        let body = body.map_err(|error| missed(FailureKind::NoResponse, error))?;
        Err(match serde_json::from_slice::<ApiError>(&body) {
            Ok(fault) => missed(
                again_after.map_or(FailureKind::ErrorResponse, FailureKind::RetryLater),
                fault.into(),
            ),
            Err(_) => missed(FailureKind::ErrorResponse, strange(&place, status)),
        })
    }

    /// Decodes the body as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let (place, status) = (self.place.clone(), self.response.status());
        let body = self.whole().await?;
        serde_json::from_slice(&body).map_err(|error| strange(&place, status).because(error))
    }

    /// Returns the body as a stream, with the host that sends it.
    pub(super) fn streamed(self) -> (Incoming, Endpoint) {
        (self.response.into_body(), self.place)
    }

    async fn whole(self) -> Result<Bytes> {
        let body = Limited::new(self.response.into_body(), MAX_RESPONSE_BYTES).collect();
        match timeout_at(self.deadline, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(broken(&self.place, error)),
            Err(_) => Err(timed_out(&self.place, self.patience)),
        }
    }
}

/// Returns the retry delay in the `Retry-After` header; `None` without the header. For an HTTP
/// date, the result is [`RETRY_DELAY`], which is also the minimum.
fn retry_after(head: &HeaderMap) -> Option<Duration> {
    let after = head.get(RETRY_AFTER)?;
    let seconds = after
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let after = seconds.map_or(RETRY_DELAY, Duration::from_secs);
    Some(after.max(RETRY_DELAY))
}

fn unreachable(place: &Endpoint, error: std::io::Error) -> Error {
    let what = format!("cannot reach the cluster's interface at {place}");
    Error::new(ErrorCode::Network, what)
        .because(error)
        .hint("start the cluster (ardea cluster start), or name its interface with --at")
}

fn timed_out(place: &Endpoint, patience: Duration) -> Error {
    let what = format!(
        "the cluster's interface at {place} did not answer within {} s",
        patience.as_secs_f64()
    );
    Error::new(ErrorCode::Network, what).hint(TRY_AGAIN)
}

fn hung(place: &Endpoint) -> Error {
    let what = format!("the host with the interface at {place} does not respond");
    Error::new(ErrorCode::Network, what)
        .hint("its process is stopped, or its machine hangs: kill it, or resume it")
}

/// Creates the error for a broken connection to `place`.
pub(super) fn broken(
    place: &Endpoint,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let what = format!("the connection to the cluster's interface at {place} broke");
    Error::new(ErrorCode::Network, what)
        .because(error)
        .hint(TRY_AGAIN)
}

fn strange(place: &Endpoint, status: StatusCode) -> Error {
    let what = format!("the server at {place} is not a cluster's interface ({status})");
    Error::new(ErrorCode::BadResponse, what)
        .hint("check the address, and that both are of the same version")
}

fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorCode::Internal, "a request can't be encoded")
        .because(error)
        .hint("please report this")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_host_says_in_how_many_seconds_it_is_to_be_asked_again() {
        let told = |text: &'static str| {
            let head = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&head)
        };
        assert_eq!(told("3"), Some(Duration::from_secs(3)));
        assert_eq!(told("Fri, 31 Dec 1999 23:59:59 GMT"), Some(RETRY_DELAY));
        assert_eq!(told("-1"), Some(RETRY_DELAY));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn any_name_of_a_job_makes_a_path() {
        assert_eq!(path("word-count", "/top"), "/v1/jobs/word-count/top");
        assert_eq!(path("a b/ä?.", ""), "/v1/jobs/a%20b%2F%C3%A4%3F%2E");
    }
}
