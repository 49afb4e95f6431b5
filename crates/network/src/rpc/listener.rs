//! Accepting connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use crate::rpc::RefusedLog;
use crate::rpc::connection::RpcConnection;
use crate::rpc::frame::FrameReader;
use crate::rpc::handshake::{HandshakeRequest, HandshakeResponse, Reason, answer, check_request};
use crate::rpc::security::{Security, Stream, check_listen_address};

/// Capacity of the queue of connections that completed the handshake and wait to be accepted.
const ACCEPT_QUEUE_LEN: usize = 64;

/// Pause after a connection could not be accepted, for example for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A callback that decides if a peer that completed the handshake is accepted, and returns the
/// reason if not.
type Admission = dyn Fn(&HandshakeRequest) -> Result<(), String> + Send + Sync;

/// Accepts connections and performs the handshake. Dropping it stops listening; accepted
/// connections stay open.
pub struct Listener {
    address: SocketAddr,
    greeted: mpsc::Receiver<Result<RpcConnection>>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens at `address` (`host:port`), and accepts all members of the cluster.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the address is invalid or in use; [`ErrorCode::InvalidConfig`] if
    /// it is reachable from other machines and members are not authenticated.
    pub async fn bind(address: &str, security: Security) -> Result<Self> {
        Listener::bind_for(address, security, |_| Ok(())).await
    }

    /// Listens at `address` for the members of the cluster that `admission` accepts. Other members
    /// receive the reason that `admission` returns. `admission` must not block.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_for(
        address: &str,
        security: Security,
        admission: impl Fn(&HandshakeRequest) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::Network, format!("cannot listen at {address}"))
                .because(error)
                .hint("choose another port, or 0 for any that is free")
        };
        for at in tokio::net::lookup_host(address).await.map_err(failed)? {
            check_listen_address(&security, &at)?;
        }
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (greeted_in, greeted) = mpsc::channel(ACCEPT_QUEUE_LEN);
        let task = tokio::spawn(accept_loop(
            listener,
            security,
            Arc::new(admission),
            greeted_in,
        ));
        Ok(Listener {
            address,
            greeted,
            task,
        })
    }

    /// Returns the address it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next accepted connection. Cancel safe: no connection is lost.
    ///
    /// # Errors
    /// If a connection could not be accepted, for example for lack of file descriptors; later calls
    /// may succeed.
    pub async fn accept(&mut self) -> Result<RpcConnection> {
        match self.greeted.recv().await {
            Some(outcome) => outcome,
            None => Err(Error::new(
                ErrorCode::Internal,
                format!("the listener at {} has stopped", self.address),
            )),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

/// Accepts connections until the listener is dropped.
async fn accept_loop(
    listener: TcpListener,
    security: Security,
    admission: Arc<Admission>,
    greeted: mpsc::Sender<Result<RpcConnection>>,
) {
    let strangers = Arc::new(Semaphore::new(security.limits.max_handshakes.max(1)));
    let turned_away = Arc::new(RefusedLog::default());
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&strangers).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (security, admission) = (security.clone(), Arc::clone(&admission));
                let greeted = greeted.clone();
                let turned_away = Arc::clone(&turned_away);
                tasks.spawn(async move {
                    let courier =
                        perform_handshake(stream, from, &security, &*admission, &turned_away).await;
                    if let Some(courier) = courier {
                        // If the listener is gone, this closes the connection.
                        let _ = greeted.send(Ok(courier)).await;
                    }
                    // Connections that wait to be accepted count against the limit as well.
                    drop(place);
                });
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                let failed = Error::new(ErrorCode::Network, "cannot take a connection")
                    .because(error)
                    .hint("raise the limit of open files for this process");
                // Without a caller waiting, one queued error is enough.
                let _ = greeted.try_send(Err(failed));
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Returns true if the peer closed the connection before it was accepted.
fn is_of_the_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Performs the handshake with a peer, within the time limit.
async fn perform_handshake(
    stream: TcpStream,
    from: SocketAddr,
    security: &Security,
    admission: &Admission,
    turned_away: &RefusedLog,
) -> Option<RpcConnection> {
    let within = security.limits.handshake_timeout;
    let peer: Arc<str> = from.to_string().into();
    let listening = read_request(stream, &peer, security, admission);
    let (read, write) = match tokio::time::timeout(within, listening).await {
        Ok(Ok(HandshakeResult::Member(courier))) => return Some(*courier),
        Ok(Ok(HandshakeResult::Refused(why, read, write))) => {
            if let Some(why) = why {
                turned_away.note(&peer, &why);
            }
            (read, write)
        }
        Ok(Ok(HandshakeResult::Nothing)) => return None,
        Ok(Err(error)) => {
            turned_away.note(&peer, &error.to_string());
            return None;
        }
        Err(_) => {
            turned_away.note(
                &peer,
                &format!("it sent no handshake request within {within:?}"),
            );
            return None;
        }
    };
    let _ = tokio::time::timeout(within, close_gracefully(read, write)).await;
    None
}

/// The result of a handshake.
enum HandshakeResult {
    /// The peer was accepted.
    Member(Box<RpcConnection>),
    /// The peer was refused and informed, with the reason if it is worth logging.
    Refused(
        Option<String>,
        ReadHalf<Box<dyn Stream>>,
        WriteHalf<Box<dyn Stream>>,
    ),
    /// The peer closed the connection without sending anything, for example a check if the port is
    /// open.
    Nothing,
}

async fn read_request(
    stream: TcpStream,
    peer: &Arc<str>,
    security: &Security,
    admission: &Admission,
) -> Result<HandshakeResult> {
    if security.set_socket_options(&stream).is_err() {
        return Ok(HandshakeResult::Nothing);
    }
    let stream = security.wrap_accepted(stream, peer).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let mut cutter = FrameReader::default();
    let most = security.limits.greeting_bytes;
    let judged = match cutter.next(&mut read, most, peer).await {
        Ok(Some(frame)) => check_request(frame, security),
        Ok(None) => return Ok(HandshakeResult::Nothing),
        Err(error) if error.code() == ErrorCode::BadMessage => Err(HandshakeResponse::Refused(
            Reason::Unreadable,
            "it sent no handshake request".into(),
        )),
        Err(error) => return Err(error),
    };
    let judged = judged.and_then(|greeting| match admission(&greeting) {
        Ok(()) => Ok(greeting),
        Err(why) => Err(HandshakeResponse::Refused(Reason::Unwanted, why)),
    });
    let reply = answer(judged.as_ref().err().unwrap_or(&HandshakeResponse::Welcome))?;
    let answered = async {
        write.write_all(reply.bytes()).await?;
        write.flush().await
    };
    let is_answered = answered.await.is_ok();
    Ok(match judged {
        Ok(_) if !is_answered => HandshakeResult::Nothing,
        Ok(greeting) => HandshakeResult::Member(Box::new(RpcConnection::new(
            greeting,
            Arc::clone(peer),
            read,
            write,
            cutter,
            security.limits.message_bytes,
        ))),
        // Members of the cluster that are currently refused are informed, which is enough.
        Err(HandshakeResponse::Refused(Reason::Unwanted, _) | HandshakeResponse::Welcome) => {
            HandshakeResult::Refused(None, read, write)
        }
        Err(HandshakeResponse::Refused(_, why)) => HandshakeResult::Refused(Some(why), read, write),
    })
}

/// Closes a connection so that the last response arrives: with unread bytes the kernel would reset
/// the connection and discard it.
async fn close_gracefully(
    mut read: ReadHalf<Box<dyn Stream>>,
    mut write: WriteHalf<Box<dyn Stream>>,
) {
    use tokio::io::AsyncReadExt;
    if write.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 1024];
    while matches!(read.read(&mut rest).await, Ok(bytes) if bytes > 0) {}
}
