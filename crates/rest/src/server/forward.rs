//! Forwarding of requests about jobs that other hosts lead, for the web page. A browser reaches
//! perhaps one host only, and does not follow redirects to other sites with a token.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::tls::Tls;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Bytes;

use super::ServerConfig;
use super::handlers::{failed, retry_soon};
use crate::client::forward_request;

/// The header of a request that may be forwarded. Forwarded requests do not have it.
const FORWARD: &str = "ardea-forward";
/// Maximum number of hosts that a request is sent to: the job's leader, and another one if the
/// leader changes meanwhile.
const MAX_HOSTS: u32 = 2;

/// Sends requests to other hosts.
pub(super) struct Forwarder {
    tls: Option<Tls>,
}

impl Forwarder {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Forwarder {
            tls: config.tls.clone(),
        }
    }

    /// Sends the request to the host at `location`, and returns its response. The request has the
    /// caller's token, so that the other host decides what the caller may do.
    async fn send(&self, parts: &Parts, body: &Bytes, location: &str) -> Result<Response> {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, CONTENT_TYPE] {
            if let Some(value) = parts.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let method = parts.method.clone();
        let sent = forward_request(method, location, headers, body.clone(), self.tls.as_ref());
        let (head, body) = sent.await?.into_parts();
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = head.status;
        for name in [CONTENT_TYPE, CACHE_CONTROL, RETRY_AFTER, LOCATION] {
            if let Some(value) = head.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    }
}

/// Answers a request that asks for forwarding with the response of the host that leads the job,
/// instead of a redirect.
pub(super) async fn forward(
    State(forwarder): State<Arc<Forwarder>>,
    request: Request,
    next: Next,
) -> Response {
    if !request.headers().contains_key(FORWARD) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    // The body was read by `receive`, which bounds its size.
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => {
            let what = "the body can't be read";
            return failed(&Error::new(ErrorCode::BadRequest, what).because(error));
        }
    };
    let here = Request::from_parts(parts.clone(), Body::from(body.clone()));
    let mut response = next.run(here).await;
    for _ in 0..MAX_HOSTS {
        let Some(location) = target(&response) else {
            return response;
        };
        response = match forwarder.send(&parts, &body, &location).await {
            Ok(answered) => answered,
            Err(error) => return failed(&error),
        };
    }
    match target(&response) {
        None => response,
        Some(_) => {
            let what = "the hosts of the cluster redirect the request to each other";
            let error = Error::new(ErrorCode::Superseded, what);
            retry_soon(&error.hint("the job is changing its leader: try again in a moment"))
        }
    }
}

/// Returns the address to which a response redirects.
fn target(response: &Response) -> Option<String> {
    if response.status() != StatusCode::TEMPORARY_REDIRECT {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    Some(location.to_string())
}
