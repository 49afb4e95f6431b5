//! Where connections come in.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use crate::rpc::TurnedAway;
use crate::rpc::frame::Cutter;
use crate::rpc::greeting::{Answer, Greeting, Reason, answer, judge};
use crate::rpc::halves::Courier;
use crate::rpc::security::{Security, Stream, may_listen};

/// How many who have greeted may wait to be accepted.
const WAITING: usize = 64;

/// How long to wait after a connection could not be taken, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether somebody who has greeted is wanted here; if not, why.
type Admission = dyn Fn(&Greeting) -> Result<(), String> + Send + Sync;

/// Takes connections, and greets whoever comes. When it is dropped, nobody listens any more; couriers that were accepted go on.
pub struct Listener {
    address: SocketAddr,
    greeted: mpsc::Receiver<Result<Courier>>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens at `address` (`host:port`), and lets in everybody of the cluster.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the address makes no sense or is taken; [`ErrorCode::InvalidConfig`] if others could reach it and members
    /// prove nothing.
    pub async fn bind(address: &str, security: Security) -> Result<Self> {
        Listener::bind_for(address, security, |_| Ok(())).await
    }

    /// Listens at `address` for those of the cluster whom `admission` wants; the others are told what it says. It must not block.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_for(
        address: &str,
        security: Security,
        admission: impl Fn(&Greeting) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::Network, format!("cannot listen at {address}"))
                .because(error)
                .hint("choose another port, or 0 for any that is free")
        };
        for at in tokio::net::lookup_host(address).await.map_err(failed)? {
            may_listen(&security, &at)?;
        }
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (greeted_in, greeted) = mpsc::channel(WAITING);
        let task = tokio::spawn(take(listener, security, Arc::new(admission), greeted_in));
        Ok(Listener {
            address,
            greeted,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next one who has greeted and is welcome. The future may be dropped: nobody is lost.
    ///
    /// # Errors
    /// If a connection could not be taken, such as for want of file descriptors; later ones may be.
    pub async fn accept(&mut self) -> Result<Courier> {
        match self.greeted.recv().await {
            Some(outcome) => outcome,
            None => Err(Error::new(
                ErrorCode::Internal,
                format!("nobody listens at {} any more", self.address),
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

/// Takes connections for as long as somebody wants them.
async fn take(
    listener: TcpListener,
    security: Security,
    admission: Arc<Admission>,
    greeted: mpsc::Sender<Result<Courier>>,
) {
    let strangers = Arc::new(Semaphore::new(security.limits.strangers.max(1)));
    let turned_away = Arc::new(TurnedAway::default());
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
                    let courier = greet(stream, from, &security, &*admission, &turned_away).await;
                    if let Some(courier) = courier {
                        // If nobody waits for it any more, it is closed.
                        let _ = greeted.send(Ok(courier)).await;
                    }
                    // Those that wait to be accepted are bounded as well.
                    drop(place);
                });
            }
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                let failed = Error::new(ErrorCode::Network, "cannot take a connection")
                    .because(error)
                    .hint("raise the limit of open files for this process");
                // With nobody there to hear it, once is enough.
                let _ = greeted.try_send(Err(failed));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whoever it was has hung up meanwhile.
fn is_of_the_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Greets a stranger, within the time that it has.
async fn greet(
    stream: TcpStream,
    from: SocketAddr,
    security: &Security,
    admission: &Admission,
    turned_away: &TurnedAway,
) -> Option<Courier> {
    let within = security.limits.greeting_within;
    let peer: Arc<str> = from.to_string().into();
    let listening = listen_to(stream, &peer, security, admission);
    let (read, write) = match tokio::time::timeout(within, listening).await {
        Ok(Ok(Heard::Member(courier))) => return Some(*courier),
        Ok(Ok(Heard::Refused(why, read, write))) => {
            if let Some(why) = why {
                turned_away.note(&peer, &why);
            }
            (read, write)
        }
        Ok(Ok(Heard::Nothing)) => return None,
        Ok(Err(error)) => {
            turned_away.note(&peer, &error.to_string());
            return None;
        }
        Err(_) => {
            turned_away.note(&peer, &format!("it sent no greeting within {within:?}"));
            return None;
        }
    };
    let _ = tokio::time::timeout(within, send_off(read, write)).await;
    None
}

/// The result of a first conversation.
enum Heard {
    /// A process that is welcome.
    Member(Box<Courier>),
    /// A process that is not, and was told so, with the reason if it is worth a line in the log.
    Refused(
        Option<String>,
        ReadHalf<Box<dyn Stream>>,
        WriteHalf<Box<dyn Stream>>,
    ),
    /// A peer that closed the connection without a word, such as a check whether the port is open.
    Nothing,
}

async fn listen_to(
    stream: TcpStream,
    peer: &Arc<str>,
    security: &Security,
    admission: &Admission,
) -> Result<Heard> {
    if security.tune(&stream).is_err() {
        return Ok(Heard::Nothing);
    }
    let stream = security.wrap_accepted(stream, peer).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let mut cutter = Cutter::default();
    let most = security.limits.greeting_bytes;
    let judged = match cutter.next(&mut read, most, peer).await {
        Ok(Some(frame)) => judge(frame, security),
        Ok(None) => return Ok(Heard::Nothing),
        Err(error) if error.code() == ErrorCode::BadMessage => Err(Answer::Refused(
            Reason::Unreadable,
            "that is no greeting".into(),
        )),
        Err(error) => return Err(error),
    };
    let judged = judged.and_then(|greeting| match admission(&greeting) {
        Ok(()) => Ok(greeting),
        Err(why) => Err(Answer::Refused(Reason::Unwanted, why)),
    });
    let reply = answer(judged.as_ref().err().unwrap_or(&Answer::Welcome))?;
    let answered = async {
        write.write_all(reply.bytes()).await?;
        write.flush().await
    };
    let is_answered = answered.await.is_ok();
    Ok(match judged {
        Ok(_) if !is_answered => Heard::Nothing,
        Ok(greeting) => Heard::Member(Box::new(Courier::new(
            greeting,
            Arc::clone(peer),
            read,
            write,
            cutter,
            security.limits.message_bytes,
        ))),
        // Members of the cluster that are not wanted just now are told so, which is enough.
        Err(Answer::Refused(Reason::Unwanted, _) | Answer::Welcome) => {
            Heard::Refused(None, read, write)
        }
        Err(Answer::Refused(_, why)) => Heard::Refused(Some(why), read, write),
    })
}

/// Closes a connection so that what was said last arrives: bytes that were not read would make the system throw it away.
async fn send_off(mut read: ReadHalf<Box<dyn Stream>>, mut write: WriteHalf<Box<dyn Stream>>) {
    use tokio::io::AsyncReadExt;
    if write.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 1024];
    while matches!(read.read(&mut rest).await, Ok(bytes) if bytes > 0) {}
}
