//! A POST request to a collector.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use super::url::CollectorUrl;

/// Maximum number of bytes of a response that are read.
const MOST_ANSWER_BYTES: u64 = 64 << 10;

/// Sends a body in binary Protocol Buffers. Each step may take `timeout`.
///
/// # Errors
/// [`Network`](ErrorCode::Network) if the collector is unreachable or responds with another status
/// than 2xx.
pub(super) fn post(url: &CollectorUrl, body: &[u8], timeout: Duration) -> Result<()> {
    let failed = |why: String| {
        let what = format!("cannot send metrics to {url}");
        let error = Error::new(ErrorCode::Network, what).because(why);
        error.hint("check metrics.otlp and the collector")
    };
    let answer = exchange(url, body, timeout).map_err(|error| failed(error.to_string()))?;
    let status = status(&answer).ok_or_else(|| failed("the response is not HTTP".into()))?;
    match status {
        200..=299 => Ok(()),
        status => Err(failed(format!("it responds with status {status}"))),
    }
}

fn exchange(url: &CollectorUrl, body: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = connect(url, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        url.path,
        url.authority,
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    // The status is enough, so a connection that breaks after it is no failure.
    let read = stream.take(MOST_ANSWER_BYTES).read_to_end(&mut answer);
    match read {
        Err(error) if status(&answer).is_none() => Err(error),
        _ => Ok(answer),
    }
}

fn connect(url: &CollectorUrl, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in url.authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Reads the status from the first line of a response.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let is_http = version.starts_with("HTTP/1.");
    rest.get(..3)?.parse().ok().filter(|_| is_http)
}
