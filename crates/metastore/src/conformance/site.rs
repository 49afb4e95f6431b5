//! Where a state manager is tried: a directory, or a server behind a proxy.

use super::{Proxy, Server, Skipped};
use crate::{FileState, Pending, SessionId, StateManager, StateOptions, StatePath};
use ardea_core::Result;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Connects to a server, below a root.
pub type Connect =
    fn(Vec<String>, StatePath, StateOptions) -> Pending<'static, Arc<dyn StateManager>>;

/// Which state manager, and how it is tried.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// [`FileState`] in a folder.
    Files,
    /// One that needs a server.
    Server {
        /// The server's script in `scripts/services`.
        script: &'static str,
        /// How to connect.
        connect: Connect,
    },
}

/// Whether a test needs a server for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// It breaks nothing.
    Shared,
    /// It kills the server, or breaks its connections.
    Alone,
}

/// Tells a child process where the site is, and what it is to hold.
const SITE: &str = "ARDEA_CONFORMANCE_SITE";
const HOLD: &str = "ARDEA_CONFORMANCE_HOLD";

/// Where a state manager is tried. Each test gets a root of its own in it.
#[derive(Clone, Debug)]
pub struct Site {
    plan: Plan,
    base: Arc<Base>,
    root: String,
}

#[derive(Debug)]
enum Base {
    Folder(tempfile::TempDir),
    /// Somebody else's.
    Address(String),
    Server(Box<Server>, Proxy),
}

/// The server that tests share. It stops with the last that uses it.
static SHARED: Mutex<Weak<Base>> = Mutex::new(Weak::new());

/// Numbers the roots.
static ROOTS: AtomicU64 = AtomicU64::new(0);

impl Site {
    /// A site for one test.
    pub(super) fn of(plan: Plan, need: Need) -> Result<Site, Skipped> {
        let base = match (plan, need) {
            (Plan::Files, _) => Arc::new(Base::Folder(tempfile::tempdir().expect("a folder"))),
            (Plan::Server { script, .. }, Need::Alone) => Arc::new(serve(script)?),
            (Plan::Server { script, .. }, Need::Shared) => {
                let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
                match shared.upgrade() {
                    Some(base) => base,
                    None => {
                        let base = Arc::new(serve(script)?);
                        *shared = Arc::downgrade(&base);
                        base
                    }
                }
            }
        };
        let root = format!("root-{}", ROOTS.fetch_add(1, Ordering::Relaxed));
        Ok(Site { plan, base, root })
    }

    /// A state manager below the test's root, through the proxy.
    pub(super) async fn open(&self) -> Arc<dyn StateManager> {
        self.open_with(options()).await
    }

    /// One with other options.
    pub(super) async fn open_with(&self, options: StateOptions) -> Arc<dyn StateManager> {
        self.try_open(&self.root, options).await.expect("it opens")
    }

    /// One below another root of the same site.
    pub(super) async fn open_root(&self, name: &str) -> Arc<dyn StateManager> {
        let root = format!("{}-{name}", self.root);
        self.try_open(&root, options()).await.expect("it opens")
    }

    async fn try_open(&self, root: &str, options: StateOptions) -> Result<Arc<dyn StateManager>> {
        match self.plan {
            Plan::Files => {
                let directory = PathBuf::from(self.address()).join(root);
                Ok(Arc::new(FileState::open(&directory, options).await?))
            }
            Plan::Server { connect, .. } => {
                let root = StatePath::root().child("conformance")?.child(root)?;
                connect(vec![self.address()], root, options).await
            }
        }
    }

    /// One below the same root, past the proxy.
    pub(super) async fn open_direct(&self, server: &Server) -> Arc<dyn StateManager> {
        let direct = Site {
            base: Arc::new(Base::Address(server.address().to_string())),
            ..self.clone()
        };
        direct.open().await
    }

    fn address(&self) -> String {
        match &*self.base {
            Base::Folder(folder) => folder.path().display().to_string(),
            Base::Address(address) => address.clone(),
            Base::Server(_, proxy) => proxy.address().to_string(),
        }
    }

    /// The server and what is in front of it, if there is one.
    pub(super) fn server(&self) -> Option<(&Server, &Proxy)> {
        match &*self.base {
            Base::Server(server, proxy) => Some((server, proxy)),
            _ => None,
        }
    }

    /// Ends somebody's session from outside: an administrator deletes its file, or nothing reaches the server.
    pub(super) fn expire(&self, session: &SessionId) {
        match self.server() {
            Some((_, proxy)) => proxy.cut(),
            None => {
                let root = PathBuf::from(self.address()).join(&self.root);
                let file = root.join("sessions").join(session.as_str());
                std::fs::remove_file(file).expect("the session's file is there");
            }
        }
    }

    /// The network is whole again.
    pub(super) fn heal(&self) {
        if let Some((_, proxy)) = self.server() {
            proxy.heal();
        }
    }

    /// A process that makes a node of a session and keeps it until it is killed. It is not awaited.
    pub(super) fn holder(&self, path: &StatePath) -> Holder {
        let test = std::env::current_exe().expect("this program");
        // Its connection is not the proxy's business: nothing but its death is to be told.
        let address = match self.server() {
            Some((server, _)) => server.address().to_string(),
            None => self.address(),
        };
        let child = Command::new(test)
            .args(["--exact", "held_by_another_process", "--nocapture"])
            .env(SITE, format!("{address} {}", self.root))
            .env(HOLD, path.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        Holder(child)
    }
}

/// A process that holds a node; killed when it is dropped.
#[derive(Debug)]
pub(super) struct Holder(Child);

impl Holder {
    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What tests open with: sessions end soon.
pub(super) fn options() -> StateOptions {
    StateOptions {
        session_timeout: Duration::from_secs(3),
        patience: Duration::from_secs(15),
    }
}

fn serve(script: &str) -> Result<Base, Skipped> {
    let server = Server::start(script)?;
    let proxy = Proxy::start(server.address()).expect("a proxy");
    Ok(Base::Server(Box::new(server), proxy))
}

/// What a process does that is to hold a node until it is killed; nothing, in any other process.
///
/// # Panics
///
/// If it can't make the node.
pub fn hold(plan: Plan) {
    let (Ok(site), Ok(path)) = (std::env::var(SITE), std::env::var(HOLD)) else {
        return;
    };
    let (address, root) = site.split_once(' ').expect("an address and a root");
    let site = Site {
        plan,
        base: Arc::new(Base::Address(address.to_string())),
        root: root.to_string(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let state = site.open().await;
        let (session, _ending) = state.open_session().await.expect("a session");
        let path = StatePath::parse(&path).expect("a path");
        let pid = std::process::id().to_string();
        session
            .create(&path, pid.as_bytes())
            .await
            .expect("it is made");
        // The end of the test that started this ends it, too.
        let ended = tokio::task::spawn_blocking(|| {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
        });
        let _ = ended.await;
        let _ = std::io::stdout().flush();
    });
}
