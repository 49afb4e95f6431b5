//! Requests that a server forwards to another host.

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::tls::Tls;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};

use super::endpoint::Endpoint;
use super::request::{connect, send};

/// Sends a request to the host at `url`, and returns its response, whatever its status.
///
/// # Errors
///
/// [`Network`](ErrorCode::Network) if the host can't be reached or does not respond.
pub(crate) async fn forward_request(
    method: Method,
    url: &str,
    headers: HeaderMap,
    body: Bytes,
    tls: Option<&Tls>,
) -> Result<Response<Incoming>> {
    let place = Endpoint::parse(url)?;
    let invalid = |error: axum::http::Error| {
        let what = format!("the request can't be forwarded to {place}");
        Error::new(ErrorCode::Internal, what).because(error)
    };
    let uri: Uri = url
        .parse()
        .map_err(|error| invalid(axum::http::Error::from(error)))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, place.authority());
    let mut request = request.body(Full::new(body)).map_err(invalid)?;
    request.headers_mut().extend(headers);
    let stream = connect(&place, tls).await?;
    send(request, stream, &place).await
}
