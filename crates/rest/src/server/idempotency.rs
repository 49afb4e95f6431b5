//! Idempotency keys: an action that is repeated with the same key is carried out once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, LINK};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use sha2::{Digest, Sha256};

use super::handlers::{failed, failed_with};
use super::rights::Caller;

/// The header with the key of an action.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header of a response that is repeated.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 255;
/// Maximum number of stored responses; the oldest one is dropped first.
const MAX_RESPONSES: usize = 1_000;
/// Maximum size of a stored body. A larger response is not stored.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Time for which a response is stored.
const STORED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// A key of a caller.
type CallerKey = (String, String);

/// The digest of a request.
type Fingerprint = [u8; 32];

/// A response that can be repeated.
#[derive(Clone, PartialEq, Debug)]
struct StoredResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// The state of a key.
#[derive(Clone, Debug)]
enum Entry {
    Running(Fingerprint),
    Done(Fingerprint, StoredResponse),
}

/// The decision about a request with a key.
#[derive(Debug)]
enum Decision {
    /// The request is new.
    Run,
    /// The request has been carried out with this response.
    Repeat(StoredResponse),
    /// The request is being carried out.
    InProgress,
    /// The key belongs to another request.
    OtherRequest,
}

/// The keys of a host and their responses, in memory and bounded.
#[derive(Default)]
pub(super) struct IdempotencyKeys(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    entries: HashMap<CallerKey, Entry>,
    /// The keys in the order of their first use.
    order: VecDeque<(Instant, CallerKey)>,
}

impl Keys {
    fn begin(&mut self, now: Instant, key: &CallerKey, fingerprint: Fingerprint) -> Decision {
        self.expire(now);
        match self.entries.get(key) {
            Some(Entry::Running(known) | Entry::Done(known, _)) if *known != fingerprint => {
                Decision::OtherRequest
            }
            Some(Entry::Running(_)) => Decision::InProgress,
            Some(Entry::Done(_, response)) => Decision::Repeat(response.clone()),
            None => {
                self.entries
                    .insert(key.clone(), Entry::Running(fingerprint));
                self.order.push_back((now, key.clone()));
                Decision::Run
            }
        }
    }

    /// Stores the response to a request, or forgets the key if there is none to repeat.
    fn end(&mut self, key: &CallerKey, response: Option<StoredResponse>) {
        match (self.entries.get_mut(key), response) {
            (Some(entry), Some(response)) => {
                if let Entry::Running(fingerprint) = *entry {
                    *entry = Entry::Done(fingerprint, response);
                }
            }
            (_, None) => {
                self.entries.remove(key);
                self.order.retain(|(_, known)| known != key);
            }
            (None, Some(_)) => {}
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((since, _)) = self.order.front() {
            let is_old = now.saturating_duration_since(*since) >= STORED_FOR;
            if !is_old && self.order.len() < MAX_RESPONSES {
                return;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.entries.remove(&key);
            }
        }
    }
}

impl IdempotencyKeys {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key whose request is being carried out. The key is forgotten if this is dropped without a
/// response, because the action has failed.
struct RunningKey {
    keys: Arc<IdempotencyKeys>,
    key: CallerKey,
    response: Option<StoredResponse>,
}

impl RunningKey {
    /// Ends the action with its response.
    fn end(mut self, response: Option<StoredResponse>) {
        self.response = response;
    }
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        let response = self.response.take();
        self.keys.lock().end(&self.key, response);
    }
}

/// Answers an action with a known key with its first response. Other requests are passed on.
pub(super) async fn repeat(
    State(keys): State<Arc<IdempotencyKeys>>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let key = request.headers().get(IDEMPOTENCY_KEY).filter(|_| !is_read);
    let Some(key) = key else {
        return next.run(request).await;
    };
    let key = match key.to_str() {
        Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => key.to_string(),
        _ => return failed(&invalid_key()),
    };
    let caller = request.extensions().get::<Caller>();
    let key = (caller.map_or_else(String::new, |it| it.name.clone()), key);
    let (parts, body) = request.into_parts();
    // The body was read by `receive`, which bounds its size.
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => {
            let what = "the body can't be read";
            return failed(&Error::new(ErrorCode::BadRequest, what).because(error));
        }
    };
    let target = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    let fingerprint = fingerprint(&parts.method, target, &body);
    let decision = keys.lock().begin(Instant::now(), &key, fingerprint);
    match decision {
        Decision::Run => {}
        Decision::Repeat(response) => return replayed(response),
        Decision::InProgress => {
            let what = "the request with this idempotency key is being carried out";
            let error = Error::new(ErrorCode::WrongState, what);
            return failed(&error.hint("repeat it in a moment"));
        }
        Decision::OtherRequest => {
            let what = "the idempotency key belongs to another request";
            let error = Error::new(ErrorCode::BadRequest, what);
            let error = error.hint("use a new key for each action");
            return failed_with(StatusCode::UNPROCESSABLE_ENTITY, &error);
        }
    }
    let running = RunningKey {
        keys,
        key,
        response: None,
    };
    // A task of its own: the action ends and has an outcome also if its client disconnects.
    let action = tokio::spawn(async move {
        let response = next.run(Request::from_parts(parts, Body::from(body))).await;
        let (response, stored) = stored(response).await;
        running.end(stored);
        response
    });
    action.await.unwrap_or_else(|error| {
        let what = "the action was interrupted";
        failed(&Error::new(ErrorCode::Internal, what).because(error))
    })
}

fn invalid_key() -> Error {
    let what = format!("an idempotency key has 1 to {MAX_KEY_BYTES} visible ASCII characters");
    Error::new(ErrorCode::BadRequest, what).hint("use a random one, such as a UUID")
}

fn fingerprint(method: &Method, target: &str, body: &[u8]) -> Fingerprint {
    let mut digest = Sha256::new();
    for part in [method.as_str().as_bytes(), target.as_bytes(), body] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Returns true if the response is the outcome of the action. Redirects and requests for a retry
/// are none, and after an error of the server the action may be tried again.
fn is_outcome(status: StatusCode) -> bool {
    let is_retry = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .contains(&status);
    status.is_success() || status.is_client_error() && !is_retry
}

/// Returns a response, and a copy if it can be repeated.
async fn stored(response: Response) -> (Response, Option<StoredResponse>) {
    let is_small = {
        use hyper::body::Body as _;
        let size = response.body().size_hint().upper();
        size.is_some_and(|size| size <= MAX_BODY_BYTES as u64)
    };
    if !is_outcome(response.status()) || !is_small {
        return (response, None);
    }
    let (parts, body) = response.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let what = "the response can't be read";
            return (
                failed(&Error::new(ErrorCode::Internal, what).because(error)),
                None,
            );
        }
    };
    let mut headers = HeaderMap::new();
    for name in [CONTENT_TYPE, LINK] {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let stored = StoredResponse {
        status: parts.status,
        headers,
        body: body.clone(),
    };
    (Response::from_parts(parts, Body::from(body)), Some(stored))
}

fn replayed(stored: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers;
    let is_replayed = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, is_replayed);
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::sync::{Notify, mpsc};

    use super::*;

    #[tokio::test]
    async fn an_action_whose_client_disconnects_is_carried_out_once() {
        let (count, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (entered, mut has_entered) = mpsc::channel(1);
        let (counted, opened) = (Arc::clone(&count), Arc::clone(&gate));
        let action = move || async move {
            entered.send(()).await.unwrap();
            opened.notified().await;
            counted.fetch_add(1, Ordering::Relaxed);
            StatusCode::ACCEPTED
        };
        let keys = Arc::<IdempotencyKeys>::default();
        let app = Router::new().route("/", post(action));
        let app = TowerToHyperService::new(app.layer(from_fn_with_state(keys, repeat)));
        let request = || {
            let request = Request::post("/").header(IDEMPOTENCY_KEY, "one");
            request.body(Body::empty()).unwrap()
        };
        let first = tokio::spawn(app.call(request()));
        has_entered.recv().await.unwrap();
        first.abort();
        assert!(first.await.is_err());
        gate.notify_one();
        loop {
            let status = app.call(request()).await.unwrap().status();
            if status == StatusCode::ACCEPTED {
                break;
            }
            assert_eq!(status, StatusCode::CONFLICT);
            tokio::task::yield_now().await;
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    fn response() -> StoredResponse {
        StoredResponse {
            status: StatusCode::ACCEPTED,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    fn key(number: usize) -> CallerKey {
        ("ci".into(), number.to_string())
    }

    #[test]
    fn a_key_is_run_once_and_belongs_to_one_request_of_one_caller() {
        let mut keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.begin(now, &key(1), [1; 32]), Decision::Run));
        let again = keys.begin(now, &key(1), [1; 32]);
        assert!(matches!(again, Decision::InProgress));
        keys.end(&key(1), Some(response()));
        let again = keys.begin(now, &key(1), [1; 32]);
        assert!(matches!(again, Decision::Repeat(it) if it == response()));
        let other = keys.begin(now, &key(1), [2; 32]);
        assert!(matches!(other, Decision::OtherRequest));
        let other_caller = ("ops".to_string(), "1".to_string());
        let other = keys.begin(now, &other_caller, [2; 32]);
        assert!(matches!(other, Decision::Run));
    }

    #[test]
    fn a_request_without_an_outcome_may_be_tried_again() {
        let mut keys = Keys::default();
        let now = Instant::now();
        keys.begin(now, &key(1), [1; 32]);
        keys.end(&key(1), None);
        assert!(matches!(keys.begin(now, &key(1), [2; 32]), Decision::Run));
        assert!(is_outcome(StatusCode::ACCEPTED) && is_outcome(StatusCode::NOT_FOUND));
        for status in [307, 401, 403, 408, 429, 500, 503] {
            assert!(
                !is_outcome(StatusCode::from_u16(status).unwrap()),
                "{status}"
            );
        }
    }

    #[test]
    fn keys_are_bounded_by_their_number_and_by_time() {
        let mut keys = Keys::default();
        let now = Instant::now();
        for number in 0..3 * MAX_RESPONSES {
            keys.begin(now, &key(number), [0; 32]);
            keys.end(&key(number), Some(response()));
        }
        assert_eq!(keys.entries.len(), MAX_RESPONSES);
        assert_eq!(keys.order.len(), MAX_RESPONSES);
        keys.begin(now + STORED_FOR, &key(0), [0; 32]);
        assert_eq!(keys.entries.len(), 1);
    }
}
