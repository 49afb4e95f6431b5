//! A TCP proxy between a metadata store and its server, which can break, delay and refuse
//! connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The current behaviour of the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Forwards data.
    Pass,
    /// Forwards data after this delay.
    Slow(Duration),
    /// Accepts connections and keeps them open, but forwards nothing: a network that drops packets.
    Stall,
    /// Breaks connections, and new ones as soon as they are made.
    Cut,
}

/// A proxy in front of one server, on a separate thread. Dropping the proxy ends the thread.
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

    /// Returns the address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks all connections, and refuses new ones.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Stops forwarding in both directions, and buffers the data.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    /// Delays data in each direction, like a distant server.
    pub fn slow(&self, delay: Duration) {
        self.mode.send_replace(Mode::Slow(delay));
    }

    /// Resumes forwarding, the buffered data first.
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

/// Serves one connection, until one end closes it or the proxy cuts it.
async fn join(client: TcpStream, server: SocketAddr, mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = forward(from_client, to_server, mode.clone()) => {}
        () = forward(from_server, to_client, mode.clone()) => {}
        _ = until(mode, |mode| mode == Mode::Cut) => {}
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>) {
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

/// Waits for a mode; returns `None` if the proxy is gone.
async fn until(mut mode: watch::Receiver<Mode>, wanted: impl Fn(Mode) -> bool) -> Option<Mode> {
    mode.wait_for(|mode| wanted(*mode))
        .await
        .ok()
        .map(|mode| *mode)
}
