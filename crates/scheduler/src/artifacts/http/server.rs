//! The HTTP server for the packages of a directory.
//!
//! A connection serves one request. The number of connections is limited. A stalled connection is
//! closed: its request does not arrive, its upload makes no progress, or its response is not read.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::body::{FileBody, Progress};
use crate::artifacts::directory::ENDING;
use crate::artifacts::failure::{missing, too_large, unreadable};
use crate::artifacts::{Digest, DirectoryStore, PackageStore, StoreOptions};

/// The maximum number of concurrent connections; further connections wait.
const MOST_CONNECTIONS: usize = 256;

type Sent = BoxBody<Bytes, io::Error>;

/// A server of the packages of a directory at `http://HOST:PORT/packages`, for clients with the
/// token. Dropping the server closes it and all connections.
///
/// ```
/// use ardea_core::Token;
/// use ardea_scheduler::artifacts::{Contents, DirectoryStore, HttpStore, PackageServer, PackageStore, StoreOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let options = StoreOptions { token: Some(Token::new("open sesame")), ..StoreOptions::default() };
/// let store = DirectoryStore::new(folder.path().join("store"), &options);
/// let server = PackageServer::bind("127.0.0.1:0", store, &options).await?;
///
/// let client = HttpStore::new(&server.url(), &options)?;
/// let packed = Contents::new().pack(folder.path())?;
/// client.put(&packed).await?;
/// assert_eq!(client.list().await?[0].digest, *packed.digest());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct PackageServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

/// The state shared by all connections.
#[derive(Debug)]
struct Shared {
    store: DirectoryStore,
    token: Option<Token>,
    patience: Duration,
}

impl PackageServer {
    /// Serves `store` at this address. Clients must send the token of `options`; the `timeout` of
    /// `options` limits stalled transfers.
    ///
    /// # Errors
    /// [`Network`](ErrorCode::Network) if the address is in use or does not belong to this machine.
    pub async fn bind(
        address: &str,
        store: DirectoryStore,
        options: &StoreOptions,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            let what = format!("packages can't be served at {address}");
            Error::new(ErrorCode::Network, what)
                .because(error)
                .hint("choose another port, or 0 for any that is free")
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            store,
            token: options.token.clone(),
            patience: options.timeout,
        });
        let accepting = tokio::spawn(accept(listener, shared));
        Ok(PackageServer { address, accepting })
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL, for an [`HttpStore`](super::HttpStore).
    pub fn url(&self) -> String {
        format!("http://{}/packages", self.address)
    }
}

impl Drop for PackageServer {
    fn drop(&mut self) {
        // The task owns the connections.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    serve(stream, shared).await;
                    drop(place);
                });
            }
            // Probably out of file descriptors: retry after a while.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until its request is answered or stalls. Errors of the connection are
/// dropped.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (progress, patience) = (Progress::default(), shared.patience);
    let noted = progress.clone();
    let service = service_fn(move |request| {
        let (shared, progress) = (Arc::clone(&shared), noted.clone());
        async move { Ok::<_, Infallible>(answer(request, &shared, &progress).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut moved = progress.count();
    while timeout(patience, connection.as_mut()).await.is_err() {
        if progress.count() == moved {
            return;
        }
        moved = progress.count();
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    progress: &Progress,
) -> Response<Sent> {
    let outcome = if is_allowed(&request, shared.token.as_ref()) {
        answer_allowed(request, shared, progress).await
    } else {
        return words(
            StatusCode::UNAUTHORIZED,
            "this package store asks for a token",
        );
    };
    outcome.unwrap_or_else(|error| {
        let status = match error.code() {
            ErrorCode::PackageMissing => StatusCode::NOT_FOUND,
            ErrorCode::PackageRefused => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::PackageCorrupt => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        words(status, &error.without_hint().to_string())
    })
}

fn is_allowed(request: &Request<Incoming>, token: Option<&Token>) -> bool {
    let Some(token) = token else {
        return true;
    };
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok()?.strip_prefix("Bearer "));
    given.is_some_and(|given| token.is(given))
}

async fn answer_allowed(
    request: Request<Incoming>,
    shared: &Shared,
    progress: &Progress,
) -> Result<Response<Sent>> {
    let store = &shared.store;
    let Some(name) = request.uri().path().strip_prefix("/packages/") else {
        return Ok(words(StatusCode::NOT_FOUND, "packages are at /packages/"));
    };
    if name.is_empty() {
        return match *request.method() {
            Method::GET => list(store).await,
            _ => Ok(words(
                StatusCode::METHOD_NOT_ALLOWED,
                "the list can only be read",
            )),
        };
    }
    let digest = name.strip_suffix(ENDING).and_then(|name| name.parse().ok());
    let Some(digest) = digest else {
        return Ok(words(
            StatusCode::NOT_FOUND,
            "a package is at its digest, with .tar.zst behind it",
        ));
    };
    match *request.method() {
        Method::GET => send(store, &digest, progress).await,
        // A client sends `HEAD` before an upload. A damaged package counts as missing, so that the
        // upload replaces it.
        Method::HEAD => {
            // The client has the same timeout. If the read takes longer, the client uploads the
            // package again, and the check is complete by then.
            let reading = timeout(shared.patience / 2, store.has_whole(&digest));
            match reading.await {
                Ok(Ok(true)) => Ok(words(StatusCode::OK, "")),
                Ok(Err(error)) => Err(error),
                Ok(Ok(false)) | Err(_) => Err(missing(&digest, store.place())),
            }
        }
        Method::PUT => take(store, digest, request.into_body(), progress).await,
        Method::DELETE => match store.delete(&digest).await? {
            true => Ok(words(StatusCode::OK, "")),
            false => Err(missing(&digest, store.place())),
        },
        _ => Ok(words(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET, HEAD, PUT and DELETE",
        )),
    }
}

async fn list(store: &DirectoryStore) -> Result<Response<Sent>> {
    let list = serde_json::to_vec(&store.list().await?).map_err(|error| {
        Error::new(ErrorCode::Internal, "a list of packages is no JSON").because(error)
    })?;
    let mut answer = Response::new(full(list));
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(answer)
}

async fn send(
    store: &DirectoryStore,
    digest: &Digest,
    progress: &Progress,
) -> Result<Response<Sent>> {
    let path = store.path(digest);
    let opened = async {
        let file = tokio::fs::File::open(&path).await?;
        let bytes = file.metadata().await?.len();
        Ok::<_, io::Error>((file, bytes))
    };
    let (file, bytes) = opened.await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(digest, store.place()),
        _ => unreadable(&path, error),
    })?;
    Ok(Response::new(
        FileBody::new(file, bytes, progress.clone()).boxed(),
    ))
}

async fn take(
    store: &DirectoryStore,
    digest: Digest,
    mut body: Incoming,
    progress: &Progress,
) -> Result<Response<Sent>> {
    let limit = store.limits().packed_bytes;
    if body.size_hint().lower() > limit {
        return Err(too_large(
            &format!("package {digest} has more bytes"),
            limit,
        ));
    }
    let mut incoming = store.receive(digest).await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(
                ErrorCode::PackageCorrupt,
                format!("the upload of package {digest} broke off"),
            )
            .because(error)
        })?;
        if let Ok(piece) = frame.into_data() {
            incoming.write(&piece).await?;
            progress.note();
        }
    }
    incoming.finish().await?;
    Ok(words(StatusCode::CREATED, ""))
}

fn full(bytes: Vec<u8>) -> Sent {
    Full::from(bytes).map_err(|never| match never {}).boxed()
}

fn words(status: StatusCode, text: &str) -> Response<Sent> {
    let mut answer = Response::new(full(text.as_bytes().to_vec()));
    *answer.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}
