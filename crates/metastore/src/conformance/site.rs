//! The environment of a test: a directory, or a server behind a proxy.

use super::{Proxy, Server, Skipped};
use crate::{FileState, MetadataStore, Pending, SessionId, StateOptions, StatePath};
use ardea_core::Result;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A function that connects to a server, below a root.
pub type Connect =
    fn(Vec<String>, StatePath, StateOptions) -> Pending<'static, Arc<dyn MetadataStore>>;

/// The metadata store under test, and its environment.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// [`FileState`] in a folder.
    Files,
    /// A store that needs a server.
    Server {
        /// The server's script in `scripts/services`.
        script: &'static str,
        /// The function that connects to the server.
        connect: Connect,
    },
}

/// The server requirement of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerRequirement {
    /// The test breaks nothing, and can share the server.
    Shared,
    /// The test kills the server, or breaks its connections.
    Alone,
}

/// Environment variables for a child process: the address and root of the site, and the path of the
/// node to hold.
const SITE: &str = "ARDEA_CONFORMANCE_SITE";
const HOLD: &str = "ARDEA_CONFORMANCE_HOLD";

/// The environment of one test, with a separate root.
#[derive(Clone, Debug)]
pub struct Site {
    plan: Plan,
    base: Arc<Base>,
    root: String,
}

#[derive(Debug)]
enum Base {
    Folder(tempfile::TempDir),
    /// The address of a site that belongs to another process.
    Address(String),
    Server(Box<Server>, Proxy),
}

/// The server that tests share. It stops when its last user drops it.
static SHARED: Mutex<Weak<Base>> = Mutex::new(Weak::new());

/// The number of the next root.
static ROOTS: AtomicU64 = AtomicU64::new(0);

impl Site {
    /// Creates the site of one test.
    pub(super) fn of(plan: Plan, need: ServerRequirement) -> Result<Site, Skipped> {
        let base = match (plan, need) {
            (Plan::Files, _) => Arc::new(Base::Folder(tempfile::tempdir().expect("a folder"))),
            (Plan::Server { script, .. }, ServerRequirement::Alone) => Arc::new(serve(script)?),
            (Plan::Server { script, .. }, ServerRequirement::Shared) => {
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

    /// Opens a metadata store below the test's root, through the proxy.
    pub(super) async fn open(&self) -> Arc<dyn MetadataStore> {
        self.open_with(options()).await
    }

    /// Opens a metadata store with these options.
    pub(super) async fn open_with(&self, options: StateOptions) -> Arc<dyn MetadataStore> {
        self.try_open(&self.root, options).await.expect("it opens")
    }

    /// Opens a metadata store below another root of the same site, with the suffix `name`.
    pub(super) async fn open_root(&self, name: &str) -> Arc<dyn MetadataStore> {
        let root = format!("{}-{name}", self.root);
        self.try_open(&root, options()).await.expect("it opens")
    }

    async fn try_open(&self, root: &str, options: StateOptions) -> Result<Arc<dyn MetadataStore>> {
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

    /// Opens a metadata store below the test's root without the proxy.
    pub(super) async fn open_direct(&self, server: &Server) -> Arc<dyn MetadataStore> {
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

    /// Returns the server and its proxy, if there is a server.
    pub(super) fn server(&self) -> Option<(&Server, &Proxy)> {
        match &*self.base {
            Base::Server(server, proxy) => Some((server, proxy)),
            _ => None,
        }
    }

    /// Expires a session from outside: deletes its file, or cuts the connections to the server.
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

    /// Repairs the network.
    pub(super) fn heal(&self) {
        if let Some((_, proxy)) = self.server() {
            proxy.heal();
        }
    }

    /// Starts a process that creates a node of a session and holds it until it is killed. Does not
    /// wait for the node.
    pub(super) fn holder(&self, path: &StatePath) -> Holder {
        let test = std::env::current_exe().expect("this program");
        // The process bypasses the proxy, so that only its death can end its session.
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
    /// Kills the process with `kill -9`.
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

/// Returns the options of tests: sessions expire soon.
pub(super) fn options() -> StateOptions {
    StateOptions {
        session_timeout: Duration::from_secs(3),
        timeout: Duration::from_secs(15),
    }
}

fn serve(script: &str) -> Result<Base, Skipped> {
    let server = Server::start(script)?;
    let proxy = Proxy::start(server.address()).expect("a proxy");
    Ok(Base::Server(Box::new(server), proxy))
}

/// The main function of the child process that holds a node until it is killed; does nothing in
/// other processes.
///
/// # Panics
///
/// If it can't create the node.
pub fn run_holder(plan: Plan) {
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
        // The end of the test that started this process closes its input.
        let ended = tokio::task::spawn_blocking(|| {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
        });
        let _ = ended.await;
        let _ = std::io::stdout().flush();
    });
}
