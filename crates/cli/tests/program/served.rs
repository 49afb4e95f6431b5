//! A simulated cluster, and the program that connects to it.

use std::net::SocketAddr;
use std::sync::Arc;

use ardea_core::Token;
use ardea_rest::testing::{FakeCluster, word_count};
use ardea_rest::{Client, Server, ServerConfig};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::ardea::{Finished, ardea, finish};

/// A cluster that answers until this value is dropped, with a folder for the program under test.
pub struct Served {
    pub cluster: FakeCluster,
    pub base: String,
    pub folder: TempDir,
    runtime: Runtime,
}

impl Served {
    /// Creates a cluster without jobs.
    pub fn new(token: Option<&str>) -> Self {
        let runtime = Runtime::new().unwrap();
        let cluster = FakeCluster::new();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig::at(loopback).token(token.map(Token::new));
        let server = runtime
            .block_on(Server::bind(Arc::new(cluster.clone()), config))
            .unwrap();
        let base = format!("http://{}", server.address().unwrap());
        runtime.spawn(server.serve());
        Served {
            cluster,
            base,
            folder: tempfile::tempdir().unwrap(),
            runtime,
        }
    }

    /// Creates a cluster with a job `word-count`.
    pub fn with_word_count() -> Self {
        let served = Served::new(None);
        served.submit("word-count", 42);
        served
    }

    /// Submits a job with the given name and submission number.
    pub fn submit(&self, name: &str, submission: u64) {
        let client = Client::new(&self.base, None).unwrap();
        let request = word_count("pretended", name, submission);
        self.runtime.block_on(client.submit(&request)).unwrap();
    }

    /// Runs the program with these arguments, and the cluster's address in its settings; `{folder}`
    /// stands for the folder.
    pub fn run(&self, line: &str) -> Finished {
        let folder = self.folder.path().display().to_string();
        let words = line
            .split(' ')
            .map(|word| word.replace("{folder}", &folder));
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = ardea(&words);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env("ARDEA_CLUSTER_API", &self.base);
        finish(command.spawn().unwrap())
    }

    /// Like [`run`](Self::run), and fails the test unless the program succeeds.
    pub fn succeed(&self, line: &str) -> String {
        let finished = self.run(line);
        assert_eq!(finished.code, Some(0), "{line}: {finished:?}");
        finished.out
    }
}
