//! A TCP proxy between a state manager and its server, which can break, hold up and refuse connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// It hands on what comes.
    Pass,
    /// It hands on what comes, so much later.
    Slow(Duration),
    /// It takes connections, keeps them open, and hands nothing on: a network that swallows packets.
    Stall,
    /// It breaks connections, and new ones as soon as they are made.
    Cut,
}

/// A proxy in front of one server, on a thread of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
}

impl Proxy {
    /// Listens on a free port, for connections to `server`.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (sender, receiver) = watch::channel(Mode::Pass);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("proxy".to_string())
            .spawn(move || runtime.block_on(accept(listener, server, receiver)))?;
        Ok(Proxy {
            address,
            mode: Arc::new(sender),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections, and refuses new ones.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Hands nothing on any more, in both directions, and keeps it.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    /// Hands everything on so much later, in each direction: a server that is far away.
    pub fn slow(&self, delay: Duration) {
        self.mode.send_replace(Mode::Slow(delay));
    }

    /// Hands everything on again, what was kept first.
    pub fn heal(&self) {
        self.mode.send_replace(Mode::Pass);
    }
}

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    mut mode: watch::Receiver<Mode>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if *mode.borrow() != Mode::Cut {
                    tokio::spawn(join(client, server, mode.clone()));
                }
            }
            changed = mode.changed() => if changed.is_err() { return },
        }
    }
}

/// One connection, until an end closes it or the proxy cuts it.
async fn join(client: TcpStream, server: SocketAddr, mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = hand_on(from_client, to_server, mode.clone()) => {}
        () = hand_on(from_server, to_client, mode.clone()) => {}
        _ = until(mode, |mode| mode == Mode::Cut) => {}
    }
}

async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => 0,
            Ok(read) => read,
        };
        let passing = |mode| matches!(mode, Mode::Pass | Mode::Slow(_));
        if let Some(Mode::Slow(delay)) = until(mode.clone(), passing).await {
            tokio::time::sleep(delay).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Waits for a mode; `None` if the proxy is gone.
async fn until(mut mode: watch::Receiver<Mode>, wanted: impl Fn(Mode) -> bool) -> Option<Mode> {
    mode.wait_for(|mode| wanted(*mode))
        .await
        .ok()
        .map(|mode| *mode)
}
