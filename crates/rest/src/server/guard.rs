//! Authentication of requests.

use std::net::IpAddr;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Token};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::handlers::failed;
use super::{ServerConfig, page};
use crate::routes::DOCUMENT_PATH;

/// The authentication requirements for a request.
pub(super) struct Guard {
    token: Option<Token>,
    /// True if clients are authenticated by a certificate of the cluster.
    is_member: bool,
}

impl Guard {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Guard {
            token: config.token.clone(),
            is_member: config.tls.is_some(),
        }
    }
}

/// Passes a request on if it is authenticated, or rejects it. The web page and the OpenAPI document
/// are not protected, because they reveal nothing about the cluster.
pub(super) async fn check(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let refusal = match &guard.token {
        _ if is_public(request.uri().path()) => None,
        Some(token) => check_token(token, request.headers()),
        None if guard.is_member => check_origin(request.headers()),
        None => check_site(request.headers()),
    };
    match refusal {
        None => next.run(request).await,
        Some(error) => {
            let mut response = failed(&error);
            if error.code() == ErrorCode::Unauthorized {
                let scheme = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

fn is_public(path: &str) -> bool {
    path == DOCUMENT_PATH || page::is_part_of_page(path)
}

fn check_token(token: &Token, headers: &HeaderMap) -> Option<Error> {
    let given = text(headers, AUTHORIZATION);
    let given = given.and_then(|text| text.split_once(' '));
    let what = match given {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case("bearer") => {
            if token.is(given.trim()) {
                return None;
            }
            "the token is not the cluster's"
        }
        _ => "the cluster's interface requires a token",
    };
    let error = Error::new(ErrorCode::Unauthorized, what);
    Some(error.hint("name the file with the cluster's token: cluster.token_file"))
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

    #[test]
    fn a_token_is_taken_as_it_is_and_nothing_else() {
        let token = Token::new("sesame");
        let code = |value| {
            let refusal = check_token(&token, &headers(&[(AUTHORIZATION, value)]));
            refusal.map(|error| error.code())
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
        assert!(check_token(&token, &HeaderMap::new()).is_some());
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
