//! Authentication of requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Token};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::handlers::{failed, failed_with, shortened, soon};
use super::rate::RequestRates;
use super::rights::{Caller, Right, needed};
use super::token_body::TokenBody;
use super::{ServerConfig, page};
use crate::access::now_ms;
use crate::{AuditEntry, AuditLog, TokenCheck, TokenRegistry};

/// Name of a caller with the cluster's token.
const CLUSTER_TOKEN: &str = "cluster token";
/// Name of a caller with a certificate of the cluster.
const CERTIFICATE: &str = "certificate";
/// Name of a caller of the same machine without a token.
const LOCAL: &str = "local";

/// The address of the client of a connection.
#[derive(Clone, Copy)]
pub(super) struct ClientAddress(pub(super) SocketAddr);

/// The authentication requirements for a request, and the audit log of actions.
pub(super) struct Guard {
    token: Option<Token>,
    tokens: Arc<TokenRegistry>,
    audit: Option<Arc<AuditLog>>,
    /// True if clients are authenticated by a certificate of the cluster.
    is_member: bool,
    rates: RequestRates,
}

impl Guard {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Guard {
            token: config.token.clone(),
            tokens: Arc::clone(&config.tokens),
            audit: config.audit.clone(),
            is_member: config.tls.is_some(),
            rates: RequestRates::new(config.limits.requests_per_second),
        }
    }

    /// Returns the caller of a request, proven by a token, a certificate, or the machine.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Error> {
        match bearer(headers) {
            Some(secret) => self.holder_of(secret),
            _ if self.token.is_some() => {
                Err(unauthorized("the cluster's interface requires a token"))
            }
            _ if self.is_member => match check_origin(headers) {
                None => Ok(Caller::admin(CERTIFICATE)),
                Some(error) => Err(error),
            },
            _ => match check_site(headers) {
                None => Ok(Caller::admin(LOCAL)),
                Some(error) => Err(error),
            },
        }
    }

    /// Returns a response that ends when the named token of its request is no longer valid.
    fn bounded(&self, response: Response, secret: Option<&str>) -> Response {
        match secret.filter(|secret| !self.is_cluster_token(secret)) {
            Some(secret) => response
                .map(|body| Body::new(TokenBody::new(body, secret, Arc::clone(&self.tokens)))),
            None => response,
        }
    }

    fn is_cluster_token(&self, secret: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.is(secret))
    }

    /// Returns the holder of a secret.
    fn holder_of(&self, secret: &str) -> Result<Caller, Error> {
        if self.is_cluster_token(secret) {
            return Ok(Caller::admin(CLUSTER_TOKEN));
        }
        match self.tokens.check(secret, now_ms()) {
            TokenCheck::Valid(token) => Ok(Caller {
                name: token.name,
                role: token.role,
                may_upload: token.may_upload,
            }),
            TokenCheck::Expired(token) => {
                let what = format!("the token {:?} has expired", token.name);
                let error = Error::new(ErrorCode::Unauthorized, what);
                Err(error.hint("ask an admin for a new one: ardea token create NAME --role ROLE"))
            }
            TokenCheck::Unknown => Err(unauthorized("the token is not one of the cluster's")),
        }
    }
}

fn unauthorized(what: &str) -> Error {
    let error = Error::new(ErrorCode::Unauthorized, what);
    error.hint("name the file with the token: cluster.token_file")
}

/// Passes a request on if its caller is authenticated and has the right that the route needs, or
/// rejects it. Records actions in the audit log, also those that a caller lacks the right for.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get::<ClientAddress>().copied();
    let client = client.map(|ClientAddress(address)| address.ip());
    if let Some(client) = client
        && !guard.rates.take(client)
    {
        return too_often(&guard.rates);
    }
    let right = needed(request.method(), request.extensions());
    if right == Right::Public || page::is_part_of_page(request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match guard.authenticate(request.headers()) {
        Ok(caller) => caller,
        Err(error) => return refused(&error),
    };
    let secret = bearer(request.headers()).map(str::to_string);
    let audit = guard.audit.clone().filter(|_| right != Right::View);
    let entry = audit.map(|log| (log, entry(&request, &caller, client)));
    let response = match caller.check(right) {
        Ok(()) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => failed(&error),
    };
    if let Some((log, mut entry)) = entry {
        (entry.at_ms, entry.status) = (now_ms(), response.status().as_u16());
        // The response waits for the entry, so that no answered action is missing.
        let _ = tokio::task::spawn_blocking(move || log.record(&entry)).await;
    }
    guard.bounded(response, secret.as_deref())
}

fn entry(request: &Request, caller: &Caller, client: Option<IpAddr>) -> AuditEntry {
    let path = request.uri().path_and_query();
    AuditEntry {
        at_ms: 0,
        caller: caller.name.clone(),
        role: caller.role,
        address: client.map(|address| address.to_string()),
        method: request.method().to_string(),
        path: shortened(path.map_or("/", |path| path.as_str())),
        status: 0,
    }
}

/// Returns the response to a caller that is not authenticated.
fn refused(error: &Error) -> Response {
    let mut response = failed(error);
    if error.code() == ErrorCode::Unauthorized {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Returns the response to a client that sends too many requests.
fn too_often(rates: &RequestRates) -> Response {
    let what = format!(
        "this address sends more than {} requests a second",
        rates.per_second()
    );
    let error = Error::new(ErrorCode::LimitReached, what);
    let error = error.hint("send fewer, or raise cluster.api_rate");
    soon(failed_with(StatusCode::TOO_MANY_REQUESTS, &error))
}

/// Rejects requests of a web page of another site in a local browser, for a server without a token.
/// Such a page is recognized by its `Origin`, or by a `Host` name of the other site that resolves
/// to this machine.
fn check_site(headers: &HeaderMap) -> Option<Error> {
    let host = text(headers, HOST).and_then(|host| host.parse::<Authority>().ok());
    let is_own = |authority: &Authority| {
        let name = authority.host().trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok()
    };
    if !host.is_some_and(|host| is_own(&host)) {
        let what = "the request names a host that is neither an address nor localhost";
        return Some(
            Error::new(ErrorCode::BadRequest, what).hint(
                "use the address, or give the cluster a token: then any host name is accepted",
            ),
        );
    }
    check_origin(headers)
}

/// Checks the `Origin` header, which contains the site of the web page that sends the request.
fn check_origin(headers: &HeaderMap) -> Option<Error> {
    let host = text(headers, HOST)?;
    let origin = headers.get(ORIGIN)?;
    let is_same = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .is_some_and(|(_, authority)| authority == host);
    (!is_same).then(|| {
        let what = "the request comes from a page of another site";
        Error::new(ErrorCode::BadRequest, what)
            .hint("give the cluster a token: then pages with the token are accepted")
    })
}

/// Returns the secret of a request with a bearer token.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = text(headers, AUTHORIZATION)?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| secret.trim())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (name.clone(), value)
        });
        pairs.collect()
    }

    fn config() -> ServerConfig {
        ServerConfig::at(([127, 0, 0, 1], 0).into())
    }

    #[test]
    fn a_wrong_token_is_refused_even_where_none_is_needed() {
        let guard = Guard::of(&config());
        let here = (HOST, "127.0.0.1:7400");
        assert!(
            guard
                .authenticate(&headers(std::slice::from_ref(&here)))
                .is_ok()
        );
        let wrong = headers(&[here, (AUTHORIZATION, "Bearer wrong")]);
        let error = guard.authenticate(&wrong).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthorized);
    }

    #[test]
    fn a_token_is_taken_as_it_is_and_nothing_else() {
        let guard = Guard::of(&config().token(Some(Token::new("sesame"))));
        let code = |value| {
            let caller = guard.authenticate(&headers(&[(AUTHORIZATION, value)]));
            caller.err().map(|error| error.code())
        };
        assert_eq!(code("Bearer sesame"), None);
        assert_eq!(code("bearer sesame"), None);
        for wrong in [
            "Bearer sesam",
            "Bearer",
            "Basic sesame",
            "sesame",
            "Bearer ",
        ] {
            assert_eq!(code(wrong), Some(ErrorCode::Unauthorized), "{wrong}");
        }
        assert!(guard.authenticate(&HeaderMap::new()).is_err());
    }

    #[test]
    fn without_a_token_pages_of_other_sites_are_refused() {
        for host in ["127.0.0.1:7400", "localhost", "[::1]:7400"] {
            assert!(check_site(&headers(&[(HOST, host)])).is_none(), "{host}");
            let same = format!("http://{host}");
            assert!(check_site(&headers(&[(HOST, host), (ORIGIN, &same)])).is_none());
            for origin in ["http://evil.example", "null", "http://localhost:1"] {
                let pair = [(HOST, host), (ORIGIN, origin)];
                assert!(check_site(&headers(&pair)).is_some(), "{origin}");
            }
        }
        for host in ["evil.example:7400", "", "a b", "localhost.evil.example"] {
            assert!(check_site(&headers(&[(HOST, host)])).is_some(), "{host}");
        }
        assert!(check_site(&HeaderMap::new()).is_some());
    }
}
