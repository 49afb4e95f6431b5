//! A minimal HTTP server with a single page. A connection serves one request, and all resources are
//! limited.
//!
//! Prometheus scrapes every few seconds, so a thread per request is cheap and needs no runtime. A
//! client that sends slowly, too much or nothing occupies one of the [`MOST_CONNECTIONS`]
//! connections for some seconds only.

use std::io::{ErrorKind, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};

use super::{Format, LatestBatches};

/// The maximum number of concurrent connections; further connections are refused with status 503.
const MOST_CONNECTIONS: usize = 16;
/// The maximum size of a request's head in bytes.
const MOST_HEAD_BYTES: usize = 8 * 1_024;
/// The timeout for a request, and for each write of the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of ports that are tried for an address with a `+`.
const PORTS: u16 = 100;

/// The listening thread. Dropping this ends the thread and frees the address.
pub(super) struct Endpoint {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Endpoint {
    pub(super) fn bind(text: &str, shelf: Arc<LatestBatches>) -> Result<Self> {
        let listener = listen(text)?;
        let address = listener.local_addr().map_err(|error| in_use(text, error))?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let listening = thread::Builder::new()
            .name("metrics endpoint".to_string())
            .spawn(move || accept(&listener, &shelf, &closed))
            .map_err(|error| {
                Error::new(
                    ErrorCode::LimitReached,
                    "the metrics endpoint gets no thread",
                )
                .because(error)
            })?;
        Ok(Endpoint {
            address,
            is_closed,
            listening: Some(listening),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // A connection to the listen address wakes the listening thread.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let woken = TcpStream::connect_timeout(&SocketAddr::new(ip, self.address.port()), TIMEOUT);
        if let (Ok(_), Some(listening)) = (woken, self.listening.take()) {
            let _ = listening.join();
        }
    }
}

/// Returns true if the text is `HOST:PORT` or `HOST:PORT+`. The host is not resolved.
pub(super) fn is_address(text: &str) -> bool {
    let plain = text.strip_suffix('+').unwrap_or(text);
    plain.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_host = !host.is_empty() && (is_bracketed || !host.contains(':'));
        is_host && port.parse::<u16>().is_ok()
    })
}

pub(super) fn no_address(text: &str) -> Error {
    let what = format!("{text:?} is no address for metrics");
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("write HOST:PORT, or HOST:PORT+ for the first free port from there")
}

/// Listens at `HOST:PORT`, or for `HOST:PORT+` at the first free port from `PORT` on.
fn listen(text: &str) -> Result<TcpListener> {
    let plain = text.strip_suffix('+').unwrap_or(text);
    let addresses: Vec<SocketAddr> = match plain.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(no_address(text).because(error)),
    };
    let ports = if plain.len() < text.len() { PORTS } else { 1 };
    let mut why = None;
    for offset in 0..ports {
        for address in &addresses {
            let Some(port) = address.port().checked_add(offset) else {
                continue;
            };
            match TcpListener::bind(SocketAddr::new(address.ip(), port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => why = Some(error),
            }
        }
    }
    Err(in_use(
        text,
        why.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()),
    ))
}

fn in_use(text: &str, error: std::io::Error) -> Error {
    let what = format!("metrics can't be served at {text}");
    Error::new(ErrorCode::Network, what)
        .because(error)
        .hint("choose another port, or write + behind it for the first free one from there")
}

fn accept(listener: &TcpListener, shelf: &Arc<LatestBatches>, is_closed: &AtomicBool) {
    let served = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_closed.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Probably out of descriptors: the pause prevents a busy loop.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = ConnectionPermit::take(&served) else {
            refuse(stream);
            continue;
        };
        let shelf = Arc::clone(shelf);
        let serving = move || {
            serve(stream, &shelf);
            drop(place);
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new()
            .name("metrics reader".to_string())
            .spawn(serving);
    }
}

/// The permit of one connection. Dropping it permits another connection.
struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    fn take(served: &Arc<AtomicUsize>) -> Option<Self> {
        if served.load(Ordering::Acquire) >= MOST_CONNECTIONS {
            return None;
        }
        served.fetch_add(1, Ordering::AcqRel);
        Some(ConnectionPermit(Arc::clone(served)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Refuses a connection because there are too many. A new connection has room for the short
/// response, so the write doesn't block.
fn refuse(mut stream: TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(refusal("503 Service Unavailable", "too many readers").as_bytes());
}

/// Serves one request and closes the connection. Errors of the connection are dropped.
fn serve(mut stream: TcpStream, shelf: &LatestBatches) {
    let _ = stream.set_write_timeout(Some(TIMEOUT));
    let answer = match read_head(&mut stream) {
        Some(head) => answer(&head, shelf),
        None => refusal("400 Bad Request", "no request that can be understood"),
    };
    if stream.write_all(answer.as_bytes()).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Reads the head of the request. Returns `None` if the head does not arrive in time or is too
/// long.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let deadline = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut part = [0; 1_024];
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .ok()?;
        let read = match stream.read(&mut part) {
            Ok(0) => return None,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        head.extend_from_slice(&part[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return String::from_utf8(head).ok();
        }
        if head.len() > MOST_HEAD_BYTES {
            return None;
        }
    }
}

fn answer(head: &str, shelf: &LatestBatches) -> String {
    let mut lines = head.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (request.next(), request.next().unwrap_or_default());
    if !matches!(method, Some("GET" | "HEAD")) {
        return refusal("405 Method Not Allowed", "only GET");
    }
    if path.split('?').next() != Some("/metrics") {
        return refusal("404 Not Found", "metrics are at /metrics");
    }
    let accept = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("accept"));
    let format = Format::accepted(accept.map_or("", |(_, value)| value));
    let page = shelf.render(format, Instant::now());
    let body = if method == Some("HEAD") { "" } else { &page };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        format.content_type(),
        page.len()
    )
}

fn refusal(status: &str, why: &str) -> String {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{why}\n",
        why.len() + 1
    )
}
