//! The client of an HTTP package store.
//!
//! Each request opens a new connection. Requests are few and large, and a pooled connection could
//! be broken.

use std::io;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::body::{FileBody, Progress};
use crate::artifacts::directory::ENDING;
use crate::artifacts::failure::{missing, too_large, unreadable};
use crate::artifacts::stores::invalid;
use crate::artifacts::{Digest, Download, PackageStore, Packed, Pending, StoreOptions, Stored};

/// The maximum size of a list of packages; the next constant limits the text of an error.
const MOST_LIST_BYTES: usize = 16 << 20;
const MOST_WORDS_BYTES: usize = 4 << 10;

type Sent = BoxBody<Bytes, io::Error>;

/// A package store at an HTTP server, such as a [`PackageServer`](super::PackageServer).
#[derive(Clone, Debug)]
pub struct HttpStore {
    place: String,
    /// The server's `HOST:PORT`.
    authority: String,
    /// The path of the packages at the server, without a trailing slash.
    path: String,
    options: StoreOptions,
}

impl HttpStore {
    /// Creates a store at a URL such as `http://10.0.0.7:7070/packages`.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) if the URL is invalid.
    pub fn new(url: &str, options: &StoreOptions) -> Result<Self> {
        let uri: Uri = url.parse().map_err(|_| invalid(url, "it is no URL"))?;
        let authority = uri
            .authority()
            .ok_or_else(|| invalid(url, "it has no host"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid(url, "its scheme is not http"));
        }
        if authority.host().is_empty() {
            return Err(invalid(url, "it has no host"));
        }
        if authority.as_str().contains('@') {
            return Err(invalid(url, "it names a user; give a token instead"));
        }
        let port = match authority.port() {
            Some(port) => port.as_str().parse::<u16>().ok(),
            None if authority.as_str() == authority.host() => Some(80),
            None => None,
        };
        let port = port.ok_or_else(|| invalid(url, "it is no URL: its port is no port"))?;
        if url.contains(['?', '#']) {
            return Err(invalid(url, "there is a ? or # in it"));
        }
        let authority = format!("{}:{port}", authority.host());
        let path = uri.path().trim_end_matches('/').to_string();
        Ok(HttpStore {
            place: format!("http://{authority}{path}"),
            authority,
            path,
            options: options.clone(),
        })
    }

    async fn request(&self, method: Method, name: &str, body: Sent) -> Result<Response<Incoming>> {
        self.request_with_progress(method, name, body, &Progress::default())
            .await
    }

    /// Sends a request, and waits for the response head as long as the transfer makes progress.
    async fn request_with_progress(
        &self,
        method: Method,
        name: &str,
        body: Sent,
        progress: &Progress,
    ) -> Result<Response<Incoming>> {
        let patience = self.options.timeout;
        let stream = timeout(patience, TcpStream::connect(&self.authority)).await;
        let stream = stream
            .map_err(|_| self.timed_out())?
            .map_err(|error| self.unreachable(error))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.unreachable(error))?;
        // The connection's task ends with the response, or when the response is dropped. The
        // response reports its errors.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/{name}", self.path))
            .header(header::HOST, &self.authority)
            .header(header::CONNECTION, "close");
        if let Some(token) = &self.options.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.secret()));
        }
        let request = request.body(body).map_err(|error| {
            let what = format!("package store {} can't be queried", self.place);
            Error::new(ErrorCode::InvalidConfig, what)
                .because(error)
                .hint("check the path of its URL, and the token for characters that HTTP does not carry")
        })?;
        let answer = sender.send_request(request);
        tokio::pin!(answer);
        let mut moved = progress.count();
        loop {
            tokio::select! {
                answer = &mut answer => return answer.map_err(|error| self.unreachable(error)),
                () = sleep(patience) => {
                    if progress.count() == moved {
                        return Err(self.timed_out());
                    }
                    moved = progress.count();
                }
            }
        }
    }

    /// Returns a successful response. Otherwise returns the error that corresponds to the
    /// response's status.
    async fn check_response(
        &self,
        answer: Response<Incoming>,
        digest: Option<&Digest>,
    ) -> Result<Response<Incoming>> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let words = timeout(
            self.options.timeout,
            Limited::new(answer.into_body(), MOST_WORDS_BYTES).collect(),
        );
        let words = match words.await {
            Ok(Ok(words)) => String::from_utf8_lossy(&words.to_bytes())
                .trim()
                .to_string(),
            _ => String::new(),
        };
        let name = digest.map_or("the request".to_string(), |digest| {
            format!("package {digest}")
        });
        let what = format!("{} answers {status} for {name}", self.place);
        Err(match (status, digest) {
            (StatusCode::NOT_FOUND, Some(digest)) => missing(digest, &self.place),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Error::new(ErrorCode::PackageRefused, what).hint("give the token of this store")
            }
            (StatusCode::PAYLOAD_TOO_LARGE, _) => {
                Error::new(ErrorCode::PackageRefused, what).because(words)
            }
            (StatusCode::UNPROCESSABLE_ENTITY, _) => {
                Error::new(ErrorCode::PackageCorrupt, what).because(words)
            }
            (StatusCode::INSUFFICIENT_STORAGE, _) => {
                Error::new(ErrorCode::DiskFull, what).because(words)
            }
            (status, _) if status.is_server_error() => {
                Error::new(ErrorCode::PackageStoreUnavailable, what).because(words)
            }
            _ => Error::new(ErrorCode::PackageRefused, what)
                .because(words)
                .hint("check the URL: this server does not behave like a package store"),
        })
    }

    fn unreachable(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let what = format!(
            "package store {} is unreachable or closed the connection",
            self.place
        );
        Error::new(ErrorCode::PackageStoreUnavailable, what)
            .because(error)
            .hint("check that it runs and can be reached from here")
    }

    fn timed_out(&self) -> Error {
        self.unreachable(format!("no response within {:?}", self.options.timeout))
    }
}

fn nothing() -> Sent {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn name(digest: &Digest) -> String {
    format!("{digest}{ENDING}")
}

impl PackageStore for HttpStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn put<'a>(&'a self, package: &'a Packed) -> Pending<'a, ()> {
        Box::pin(async move {
            let digest = package.digest();
            // Before the upload, checks that the package is missing and the token accepted.
            let found = self.request(Method::HEAD, &name(digest), nothing()).await?;
            match self.check_response(found, Some(digest)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == ErrorCode::PackageMissing => {}
                Err(error) => return Err(error),
            }
            let path = package.path();
            let file = tokio::fs::File::open(path).await;
            let file = file.map_err(|error| unreadable(path, error))?;
            let progress = Progress::default();
            let body = FileBody::new(file, package.bytes(), progress.clone()).boxed();
            let answer = self
                .request_with_progress(Method::PUT, &name(digest), body, &progress)
                .await?;
            self.check_response(answer, Some(digest)).await.map(drop)
        })
    }

    fn get<'a>(&'a self, digest: &'a Digest) -> Pending<'a, Box<dyn Download>> {
        Box::pin(async move {
            let answer = self.request(Method::GET, &name(digest), nothing()).await?;
            let answer = self.check_response(answer, Some(digest)).await?;
            let length = answer.headers().get(header::CONTENT_LENGTH);
            let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok());
            let limit = self.options.limits.packed_bytes;
            if bytes.is_some_and(|bytes: u64| bytes > limit) {
                return Err(too_large(
                    &format!("package {digest} has more bytes"),
                    limit,
                ));
            }
            let download = HttpDownload {
                store: self.clone(),
                body: answer.into_body(),
                bytes,
            };
            Ok(Box::new(download) as Box<dyn Download>)
        })
    }

    fn delete<'a>(&'a self, digest: &'a Digest) -> Pending<'a, bool> {
        Box::pin(async move {
            let answer = self
                .request(Method::DELETE, &name(digest), nothing())
                .await?;
            match self.check_response(answer, Some(digest)).await {
                Ok(_) => Ok(true),
                Err(error) if error.code() == ErrorCode::PackageMissing => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn list(&self) -> Pending<'_, Vec<Stored>> {
        Box::pin(async move {
            let answer = self.request(Method::GET, "", nothing()).await?;
            let answer = self.check_response(answer, None).await?;
            let list = Limited::new(answer.into_body(), MOST_LIST_BYTES).collect();
            let list = timeout(self.options.timeout, list).await;
            let list = list
                .map_err(|_| self.timed_out())?
                .map_err(|error| self.unreachable(error))?;
            serde_json::from_slice(&list.to_bytes()).map_err(|error| {
                let what = format!("{} gives no list of packages", self.place);
                Error::new(ErrorCode::PackageRefused, what)
                    .because(error)
                    .hint("a plain web server can't list packages; use an Ardea package server")
            })
        })
    }
}

/// A download from the server.
struct HttpDownload {
    store: HttpStore,
    body: Incoming,
    bytes: Option<u64>,
}

impl Download for HttpDownload {
    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn next(&mut self) -> Pending<'_, Option<Bytes>> {
        Box::pin(async move {
            loop {
                let frame = timeout(self.store.options.timeout, self.body.frame()).await;
                let frame = match frame.map_err(|_| self.store.timed_out())? {
                    None => return Ok(None),
                    Some(frame) => frame.map_err(|error| self.store.unreachable(error))?,
                };
                // Trailers are ignored.
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        })
    }
}
