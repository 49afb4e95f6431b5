//! Workers that the leader does not expect: those of the job `numbers`, with a proxy between them
//! and their leader, or with the name of another cluster.

use std::fmt;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ardea::cluster::Modules;
use ardea::job::{as_worker, open_state, work};
use ardea::{Error, Result};
use ardea_coordination::control::{FromWorker, Lookup, ToMaster, ToWorker, WorkerStart};
use ardea_metastore::StateOptions;
use ardea_metrics::MetricsSinks;
use ardea_network::rpc::{Listener, RpcConnection, Security, VERSION, connect};
use ardea_server::leader::LeaseFinder;
use ardea_worker::{MasterFinder, Transports, WorkerDependencies};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::numbers;

/// The file in the job's folder with the kind of workers that are started from then on.
pub const FILE: &str = "disguise";

/// The time limit of connecting to the leader.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kind of an unexpected worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnexpectedWorker {
    /// The worker uses another version of the protocol between processes.
    Protocol,
    /// The worker uses another version of the messages between workers and leader.
    Messages,
    /// The worker belongs to another cluster.
    Cluster,
}

impl UnexpectedWorker {
    pub const ALL: [UnexpectedWorker; 3] = [
        UnexpectedWorker::Protocol,
        UnexpectedWorker::Messages,
        UnexpectedWorker::Cluster,
    ];
}

impl fmt::Display for UnexpectedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Returns the kind of this process, if it is to be an unexpected worker.
pub fn of_this_worker() -> Option<UnexpectedWorker> {
    std::env::var_os("ARDEA_WORKER")?;
    let folder = std::env::args_os().nth(1)?;
    let told = fs::read_to_string(Path::new(&folder).join(FILE)).ok()?;
    UnexpectedWorker::ALL
        .into_iter()
        .find(|it| it.to_string() == told)
}

/// Runs the unexpected worker until it is refused.
pub fn run(disguise: UnexpectedWorker) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let job = numbers::build(&arguments)?;
    let Some(mut start) = as_worker()? else {
        return Ok(());
    };
    if disguise == UnexpectedWorker::Cluster {
        start.job.cluster = "elsewhere".into();
        return work(start, &job, &Modules::builtin());
    }
    let surroundings = WorkerDependencies {
        finder: Box::new(move |start| Box::pin(finder(start.clone(), disguise))),
        sinks: MetricsSinks::builtin(),
        transports: Transports::builtin(),
        tls: None,
        command: None,
        snapshots: None,
        dead_letters: Arc::default(),
    };
    ardea_worker::run(&start, &job, surroundings)
}

async fn finder(start: WorkerStart, disguise: UnexpectedWorker) -> Result<Arc<dyn MasterFinder>> {
    let security = Security::new(start.job.cluster.as_str());
    let state = open_state(&start.state_url, StateOptions::default()).await?;
    let finder = LeaseFinder::new(state, start.job)?;
    Ok(Arc::new(Detour {
        finder,
        security,
        disguise,
    }))
}

/// A finder of the leader that returns the proxy's address.
struct Detour {
    finder: LeaseFinder,
    security: Security,
    disguise: UnexpectedWorker,
}

impl MasterFinder for Detour {
    fn look_up(&self) -> Pin<Box<dyn Future<Output = Lookup> + Send + '_>> {
        Box::pin(async {
            match self.finder.look_up().await {
                Lookup::Master { address, epoch } => Lookup::Master {
                    address: self.between(address).await.unwrap(),
                    epoch,
                },
                found => found,
            }
        })
    }
}

impl Detour {
    /// Starts a proxy that accepts one connection and changes its messages.
    async fn between(&self, master: String) -> Result<String> {
        match self.disguise {
            UnexpectedWorker::Messages => {
                let security = self.security.clone();
                let mut listener = Listener::bind("127.0.0.1:0", security.clone()).await?;
                let address = listener.address().to_string();
                tokio::spawn(async move {
                    let worker = listener.accept().await?;
                    let master = connect(&master, worker.greeting(), &security, PATIENCE).await?;
                    other_messages(worker, master).await
                });
                Ok(address)
            }
            _ => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap().to_string();
                tokio::spawn(other_protocol(listener, master));
                Ok(address)
            }
        }
    }
}

/// Makes a worker register with another version of the messages.
async fn other_messages(worker: RpcConnection, master: RpcConnection) -> Result<()> {
    let (mut to_worker, mut from_worker) = worker.split();
    let (mut to_master, mut from_master) = master.split();
    let there = async {
        while let Some(mut message) = from_worker.receive::<FromWorker>().await? {
            if let FromWorker::Control(ToMaster::Register(registration)) = &mut message {
                registration.who.protocol += 1;
            }
            to_master.send(&message).await?;
        }
        Ok::<(), Error>(())
    };
    let back = async {
        while let Some(message) = from_master.receive::<ToWorker>().await? {
            to_worker.send(&message).await?;
        }
        Ok::<(), Error>(())
    };
    tokio::try_join!(there, back).map(|_| ())
}

/// Changes the version in a worker's greeting: four bytes of length, four letters, and then the
/// version.
async fn other_protocol(listener: TcpListener, master: String) -> std::io::Result<()> {
    let (mut worker, _) = listener.accept().await?;
    let mut master = TcpStream::connect(master).await?;
    let mut first = [0; 10];
    worker.read_exact(&mut first).await?;
    first[8..].copy_from_slice(&(VERSION + 1).to_le_bytes());
    master.write_all(&first).await?;
    copy_bidirectional(&mut worker, &mut master)
        .await
        .map(|_| ())
}
