//! A running server, and a client that sends plain HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Token;
use ardea_rest::testing::{FakeCluster, word_count};
use ardea_rest::{Client, Server, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout of a test step.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that runs until this is dropped.
pub struct Served {
    pub cluster: FakeCluster,
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn loopback() -> ServerConfig {
    ServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// Starts the server of a cluster without jobs.
pub async fn serve(config: ServerConfig) -> Served {
    let cluster = FakeCluster::new();
    let server = Server::bind(Arc::new(cluster.clone()), config)
        .await
        .unwrap();
    Served {
        cluster,
        address: server.address().unwrap(),
        task: tokio::spawn(server.serve()),
    }
}

/// Starts the server of a cluster with the job `word-count`.
pub async fn serve_word_count() -> Served {
    let served = serve(loopback()).await;
    let request = word_count("pretended", "word-count", 42);
    served.client(None).submit(&request).await.unwrap();
    served
}

/// A response, read to the end of the connection.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Served {
    pub fn client(&self, token: Option<&str>) -> Client {
        let token = token.map(Token::new);
        Client::new(&format!("http://{}", self.address), token)
            .unwrap()
            .timeout(TIMEOUT)
    }

    /// Sends these bytes and nothing else, and reads until the server closes the connection.
    pub async fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may close the connection before everything is written.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        Self::read(stream).await
    }

    /// Reads until the server closes the connection.
    async fn read(mut stream: TcpStream) -> Option<Answer> {
        let mut answer = Vec::new();
        let read = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the server neither answers nor hangs up");
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some(Answer {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head: head.to_string(),
            body: body.to_string(),
        })
    }

    /// Requests an endless response, and reads until its body contains `text`.
    pub async fn begin(&self, path: &str, text: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = async {
            loop {
                assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{path}");
                let so_far = String::from_utf8_lossy(&answer);
                if let Some((head, body)) = so_far.split_once("\r\n\r\n")
                    && body.contains(text)
                {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    return Answer {
                        status,
                        head: head.to_string(),
                        body: body.to_string(),
                    };
                }
            }
        };
        let read = timeout(TIMEOUT, read).await;
        read.unwrap_or_else(|_| panic!("{path} does not contain {text}"))
    }

    /// Sends a valid request, with additional header lines.
    pub async fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> Answer {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{head}\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The stream stays open: the server drops a request whose client has hung up.
        let _ = stream.write_all(text.as_bytes()).await;
        let answer = Self::read(stream).await;
        answer.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }
}
