//! The external systems: Kafka, PostgreSQL and an object store, accessed by their own client
//! programs.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;

use ardea_metastore::conformance::{Server, Skipped};

use crate::job::RATES;

/// The environment variables with the store's credentials.
pub const CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "ardea"),
    ("AWS_SECRET_ACCESS_KEY", "ardea-secret"),
];

/// A broker, a database, and a store if checkpoints are in a bucket.
pub struct Services {
    pub kafka: Server,
    pub postgres: Server,
    pub store: Option<Server>,
}

impl Services {
    /// Starts the systems, at an address that all hosts reach.
    pub fn start(at: IpAddr, has_bucket: bool) -> Result<Self, Skipped> {
        let (kafka, postgres) = thread::scope(|scope| {
            let kafka = scope.spawn(|| Server::start_at("kafka.sh", at));
            let postgres = Server::start_at("postgres.sh", at);
            (kafka.join().expect("it has started"), postgres)
        });
        let store = has_bucket.then(|| Server::start_at("minio.sh", at));
        Ok(Services {
            kafka: kafka?,
            postgres: postgres?,
            store: store.transpose()?,
        })
    }

    /// Returns a part of the store's bucket, if there is a store.
    pub fn bucket(&self) -> Option<String> {
        let store = self.store.as_ref()?;
        Some(format!(
            "s3://states/torture?endpoint=http://{}",
            store.address()
        ))
    }

    pub fn brokers(&self) -> String {
        self.kafka.address().to_string()
    }

    pub fn database(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.postgres.address())
    }

    /// Executes statements, and returns the rows of the last one, one per line.
    pub fn sql(&self, statements: &str) -> Result<Vec<String>, String> {
        let address = self.postgres.address();
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", "postgres", "-d", "postgres"])
            .args(["-h", &address.ip().to_string()])
            .args(["-p", &address.port().to_string()])
            .args(["-c", statements])
            .env("PGCONNECT_TIMEOUT", "5");
        said(&mut psql)
    }

    /// Returns the committed messages of the job's output topic.
    pub fn rates(&self) -> Result<Vec<String>, String> {
        let mut kcat = Command::new("kcat");
        kcat.args(["-C", "-q", "-e", "-o", "beginning", "-p", "0"])
            .args(["-b", &self.brokers(), "-t", RATES])
            .args(["-X", "isolation.level=read_committed"]);
        let mut lines = said(&mut kcat)?;
        lines.retain(|line| line.starts_with("rate "));
        Ok(lines)
    }
}

/// Writes lines to a topic, one message each, and returns when all are acknowledged. The topic is
/// created if it does not exist.
pub fn produce(brokers: &str, topic: &str, lines: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("kcat: {error}");
    let mut kcat = Command::new("kcat")
        .args(["-P", "-b", brokers, "-t", topic, "-p", "0"])
        .args(["-X", "enable.idempotence=true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = kcat.stdin.take() {
        input.write_all(lines.as_bytes()).map_err(failed)?;
    }
    let output = kcat.wait_with_output().map_err(failed)?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("kcat could not write: {complaint}")),
    }
}

/// Returns the output lines of a program, if it succeeds.
fn said(command: &mut Command) -> Result<Vec<String>, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_string).collect())
}
