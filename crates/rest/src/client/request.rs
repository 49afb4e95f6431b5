//! One request and its answer, over a connection of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_network::tls::Tls;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::hosts::{AGAIN_AFTER, Left};
use super::place::Place;
use crate::Fault;
use crate::routes::DOCUMENT_PATH;

/// A larger answer is no cluster's.
const MOST_ANSWER_BYTES: usize = 256 << 20;
/// From one host to the job's master's, and on if that has just changed.
const MOST_REDIRECTIONS: u32 = 4;

/// What is left to do where no answer came; whether that is safe is added by who knows what was asked.
pub(super) const AGAIN: &str = "try again";

/// After how long without an answer it is looked whether the host answers anything.
const LOOKS_AFTER: Duration = Duration::from_secs(1);
/// How long a host may take for an answer that costs it nothing: a twentieth of the asker's patience, within bounds.
const OF_PATIENCE: u32 = 20;
const AT_LEAST: Duration = Duration::from_millis(2500);
const AT_MOST: Duration = Duration::from_secs(15);

/// By whom it is asked.
type Credentials<'a> = (Option<&'a Token>, Option<&'a Tls>);

/// The head of an answer, and what comes of its body.
type Response = axum::http::Response<Incoming>;

/// What is asked.
pub(super) struct Asked {
    method: Method,
    path: String,
    body: Option<Bytes>,
    may_be_repeated: bool,
    is_read: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) error: Error,
    /// Where it was asked last.
    pub(super) place: Place,
    pub(super) how: Miss,
}

/// How a request came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Miss {
    /// It has not been sent.
    NotSent,
    /// A host says that nothing was done, and after how long it is to be asked again.
    NotYet(Duration),
    /// Somebody says something else.
    Said,
    /// It has been sent, and there is no answer.
    Lost,
    /// The host answers nothing at all.
    Hung {
        /// Whether it got that far that the request was sent.
        is_sent: bool,
    },
}

impl Missed {
    fn new(how: Miss, place: &Place, error: Error) -> Self {
        Missed {
            error,
            place: place.clone(),
            how,
        }
    }

    /// Whether it may have been done all the same.
    pub(super) fn may_be_taken(&self) -> bool {
        match self.how {
            Miss::NotSent | Miss::NotYet(_) | Miss::Hung { is_sent: false } => false,
            // Whoever has lost the lead does not know what became of it.
            Miss::Said => self.error.code() == ErrorCode::Superseded,
            Miss::Lost | Miss::Hung { is_sent: true } => true,
        }
    }

    /// Whether another host, or the same one later, may answer.
    pub(super) fn is_passing(&self) -> bool {
        match self.how {
            Miss::NotYet(_) | Miss::Lost | Miss::Hung { .. } => true,
            // That others can't be reached is an answer, that this one can't be is none.
            Miss::Said => self.error.code() == ErrorCode::Superseded,
            Miss::NotSent => {
                let code = self.error.code();
                matches!(code, ErrorCode::Network | ErrorCode::Superseded)
            }
        }
    }

    /// Whether whoever was asked could not be reached, or gave no answer.
    pub(super) fn is_away(&self) -> bool {
        match self.how {
            Miss::NotYet(_) | Miss::Said => false,
            Miss::Lost | Miss::Hung { .. } => true,
            Miss::NotSent => self.error.code() == ErrorCode::Network,
        }
    }
}

/// The path of something of a job.
pub(super) fn path(job: &str, rest: &str) -> String {
    format!("/v1/jobs/{}{rest}", encoded(job))
}

/// A name as a part of a path.
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

impl Asked {
    pub(super) fn get(path: String) -> Self {
        Asked::new(Method::GET, path)
    }

    pub(super) fn post(path: String) -> Self {
        Asked::new(Method::POST, path)
    }

    pub(super) fn put(path: String) -> Self {
        Asked::new(Method::PUT, path)
    }

    pub(super) fn delete(path: String) -> Self {
        Asked::new(Method::DELETE, path)
    }

    fn new(method: Method, path: String) -> Self {
        Asked {
            is_read: method == Method::GET,
            method,
            path,
            body: None,
            may_be_repeated: false,
        }
    }

    /// Done twice it is as if done once.
    pub(super) fn repeatable(mut self) -> Self {
        self.may_be_repeated = true;
        self
    }

    /// Nothing that lasts comes of it, although it is no mere look.
    pub(super) fn passing(mut self) -> Self {
        self.is_read = true;
        self
    }

    /// Whether it changes nothing that lasts.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Whether it does no harm to ask again for what may have been done.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.may_be_repeated || self.is_read()
    }

    /// With a body.
    pub(super) fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_vec(body).map_err(unwritable)?;
        self.body = Some(Bytes::from(json));
        Ok(self)
    }

    /// With parameters.
    pub(super) fn query(mut self, query: &impl Serialize) -> Result<Self> {
        let query = serde_urlencoded::to_string(query).map_err(unwritable)?;
        if !query.is_empty() {
            self.path += &format!("?{query}");
        }
        Ok(self)
    }

    /// Asks there, and where that leads, unless that is one of those that are left alone.
    pub(super) async fn of(
        &self,
        place: &Place,
        by: Credentials<'_>,
        patience: Duration,
        left: &Left,
    ) -> Result<Answered, Missed> {
        let deadline = Instant::now() + patience;
        let (mut place, mut path) = (place.clone(), self.path.clone());
        for _ in 0..=MOST_REDIRECTIONS {
            let response = self.at(&place, &path, by, (deadline, patience)).await?;
            if response.status() != StatusCode::TEMPORARY_REDIRECT {
                let answered = Answered {
                    response,
                    place,
                    deadline,
                    patience,
                };
                return answered.checked().await;
            }
            let not_sent = |error| Missed::new(Miss::NotSent, &place, error);
            let (next, on) = target(&response, &place).map_err(not_sent)?;
            if left.has(&next) {
                return Err(Missed::new(Miss::NotSent, &next, hung(&next)));
            }
            (place, path) = (next, on);
        }
        let what = "the hosts of the cluster send a request from one to the other";
        let error = Error::new(ErrorCode::Superseded, what)
            .hint("the job is changing its master: try again in a moment");
        Err(Missed::new(Miss::NotSent, &place, error))
    }

    /// Asks there, until there is an answer, or a host that answers nothing.
    async fn at(
        &self,
        place: &Place,
        path: &str,
        by: Credentials<'_>,
        (deadline, patience): (Instant, Duration),
    ) -> Result<Response, Missed> {
        let missed = |how, error| Missed::new(how, place, error);
        let is_sent = AtomicBool::new(false);
        let asking = async {
            let not_sent = |error| missed(Miss::NotSent, error);
            let request = self.request(place, path, by.0).map_err(not_sent)?;
            let stream = connect(place, by.1).await.map_err(not_sent)?;
            is_sent.store(true, Ordering::Relaxed);
            let answer = send(request, stream, place).await;
            answer.map_err(|error| missed(Miss::Lost, error))
        };
        tokio::select! {
            biased;
            answer = timeout_at(deadline, asking) => match answer {
                Ok(answer) => answer,
                Err(_) => {
                    let how = if is_sent.load(Ordering::Relaxed) { Miss::Lost } else { Miss::NotSent };
                    Err(missed(how, silent(place, patience)))
                }
            },
            () = until_hung(place, by, patience) => {
                let is_sent = is_sent.load(Ordering::Relaxed);
                Err(missed(Miss::Hung { is_sent }, hung(place)))
            }
        }
    }

    fn request(
        &self,
        place: &Place,
        path: &str,
        token: Option<&Token>,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
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

/// Sends a request, and waits for the head of the answer.
async fn send(
    request: Request<Full<Bytes>>,
    stream: Box<dyn Stream>,
    place: &Place,
) -> Result<Response> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(place, error))?;
    // Ends with the answer, or when the answer is dropped.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(|error| broken(place, error))
}

/// Ends when a host does not even say what it always knows: its process was stopped, or its machine hangs.
async fn until_hung(place: &Place, (token, tls): Credentials<'_>, patience: Duration) {
    let within = (patience / OF_PATIENCE).clamp(AT_LEAST, AT_MOST);
    let known = Asked::get(DOCUMENT_PATH.into());
    loop {
        tokio::time::sleep(LOOKS_AFTER).await;
        let looking = async {
            let request = known.request(place, &known.path, token)?;
            send(request, connect(place, tls).await?, place).await
        };
        // A host that refuses is no host that hangs: what was asked is told so as well.
        if tokio::time::timeout(within, looking).await.is_err() {
            return;
        }
    }
}

/// What a connection is, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to the place. Nothing goes over one that is not encrypted if it has to be.
async fn connect(place: &Place, tls: Option<&Tls>) -> Result<Box<dyn Stream>> {
    match (place.is_encrypted, tls) {
        (true, None) => {
            let what = format!("{place} wants certificates, and there are none");
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

/// Where a redirection leads: an address and a path.
fn target(response: &Response, place: &Place) -> Result<(Place, String)> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    let (Some(location), stranger) = (location, strange(place, response.status())) else {
        return Err(strange(place, response.status()));
    };
    let next = Place::parse(location).map_err(|_| stranger.clone())?;
    let uri: axum::http::Uri = location.parse().map_err(|_| stranger)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((next, path.to_string()))
}

/// An answer that has begun.
#[derive(Debug)]
pub(super) struct Answered {
    response: Response,
    place: Place,
    deadline: Instant,
    patience: Duration,
}

impl Answered {
    /// The answer if it is a good one.
    async fn checked(self) -> Result<Self, Missed> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let (place, again_after) = (self.place.clone(), again_after(self.response.headers()));
        let missed = |how, error| Missed::new(how, &place, error);
        let body = self.whole().await;
        let body = body.map_err(|error| missed(Miss::Lost, error))?;
        Err(match serde_json::from_slice::<Fault>(&body) {
            Ok(fault) => missed(again_after.map_or(Miss::Said, Miss::NotYet), fault.into()),
            Err(_) => missed(Miss::Said, strange(&place, status)),
        })
    }

    /// The answer as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let (place, status) = (self.place.clone(), self.response.status());
        let body = self.whole().await?;
        serde_json::from_slice(&body).map_err(|error| strange(&place, status).because(error))
    }

    /// The answer as it comes, and where from.
    pub(super) fn streamed(self) -> (Incoming, Place) {
        (self.response.into_body(), self.place)
    }

    async fn whole(self) -> Result<Bytes> {
        let body = Limited::new(self.response.into_body(), MOST_ANSWER_BYTES).collect();
        match timeout_at(self.deadline, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(broken(&self.place, error)),
            Err(_) => Err(silent(&self.place, self.patience)),
        }
    }
}

/// When to ask again, of an answer that says that nothing was done, and that it is to be asked again. A day and time are as good as soon,
/// and nobody is asked without a pause.
fn again_after(head: &HeaderMap) -> Option<Duration> {
    let after = head.get(RETRY_AFTER)?;
    let seconds = after
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let after = seconds.map_or(AGAIN_AFTER, Duration::from_secs);
    Some(after.max(AGAIN_AFTER))
}

fn unreachable(place: &Place, error: std::io::Error) -> Error {
    let what = format!("cannot reach the cluster's interface at {place}");
    Error::new(ErrorCode::Network, what)
        .because(error)
        .hint("start the cluster (ardea cluster start), or name its interface with --at")
}

fn silent(place: &Place, patience: Duration) -> Error {
    let what = format!(
        "the cluster's interface at {place} did not answer within {} s",
        patience.as_secs_f64()
    );
    Error::new(ErrorCode::Network, what).hint(AGAIN)
}

fn hung(place: &Place) -> Error {
    let what = format!("the host whose interface is at {place} answers nothing");
    Error::new(ErrorCode::Network, what)
        .hint("its process was stopped, or its machine hangs: end it, or let it go on")
}

/// The connection broke.
pub(super) fn broken(
    place: &Place,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let what = format!("the connection to the cluster's interface at {place} broke");
    Error::new(ErrorCode::Network, what)
        .because(error)
        .hint(AGAIN)
}

fn strange(place: &Place, status: StatusCode) -> Error {
    let what = format!("what answers at {place} is no cluster's interface ({status})");
    Error::new(ErrorCode::BadAnswer, what)
        .hint("check the address, and that both are of the same version")
}

fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorCode::Internal, "a request can't be written")
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
            again_after(&head)
        };
        assert_eq!(told("3"), Some(Duration::from_secs(3)));
        assert_eq!(told("Fri, 31 Dec 1999 23:59:59 GMT"), Some(AGAIN_AFTER));
        assert_eq!(told("-1"), Some(AGAIN_AFTER));
        assert_eq!(again_after(&HeaderMap::new()), None);
    }

    #[test]
    fn any_name_of_a_job_makes_a_path() {
        assert_eq!(path("word-count", "/top"), "/v1/jobs/word-count/top");
        assert_eq!(path("a b/ä?.", ""), "/v1/jobs/a%20b%2F%C3%A4%3F%2E");
    }
}
