//! Log requests for ended jobs: the available lines, and errors about missing ones.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode};
use ardea_metastore::conformance::FaultyStore;
use ardea_metastore::layout::{JobLayout, past_job, worker};
use ardea_metastore::{Expected, MetadataStore, StatePath};
use ardea_rest::{Client, LogQuery};
use ardea_scheduler::HostRecord;
use ardea_server::daemon::Host;
use ardea_server::leader::Jobs;
use serde_json::json;

use crate::{job, setup, state};

/// A host, and the first submission of a job that ran on several machines and has ended.
struct Harbour {
    folder: tempfile::TempDir,
    /// The folder of the host's files.
    kept: PathBuf,
    state: Arc<FaultyStore>,
    host: Host,
    client: Client,
}

impl Harbour {
    async fn of(machines: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let state = state(folder.path()).await;
        let setup = setup(Jobs::All, "quay", folder.path(), Arc::clone(&state) as _);
        let setup = setup.expect("a setup");
        let kept = setup.cluster.directory.join("hosts/quay");
        let host = Host::start(setup).await.expect("it starts");
        let client = Client::new(host.api(), None).expect("a client");
        let harbour = Harbour {
            folder,
            kept,
            state,
            host,
            client,
        };
        harbour.remember(1, true, machines).await;
        harbour
    }

    /// Stores the summary of an ended submission.
    async fn remember(&self, submission: u64, finished: bool, machines: &[&str]) {
        let past = json!({
            "job": { "cluster": "local", "name": "relay", "submission": submission },
            "description": {
                "name": "relay", "submission": format!("{submission:x}"),
                "ending": if finished { "finished" } else { "killed" }, "has_run": true,
                "submitted_ms": 1, "ended_ms": 1 + submission, "packing": "round-robin",
                "scheduler": "hosts", "version": "0", "container_count": 2, "instance_count": 2,
                "problems": [], "notes": [], "machines": machines,
            },
        });
        let path = past_job("relay", submission).expect("a path");
        self.set(&path, past.to_string().as_bytes()).await;
    }

    async fn set(&self, path: &StatePath, value: &[u8]) {
        let set = self.state.set(path, value, Expected::Any).await;
        set.expect("it is set");
    }

    /// Writes the output of the first container on the host's machine.
    fn wrote(&self, text: &str) {
        self.wrote_at("quay", text);
    }

    /// Writes the same output for another host name.
    fn wrote_at(&self, host: &str, text: &str) {
        let folder = "jobs/relay-0000000000000001/container-1";
        let folder = self.kept.with_file_name(host).join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("stdout.log"), text).expect("a file");
    }

    /// Returns the lines, and the error at their end.
    async fn told(&self, container: Option<u32>) -> (Vec<String>, Option<Error>) {
        self.told_of(container, None).await
    }

    async fn told_of(
        &self,
        container: Option<u32>,
        submission: Option<&str>,
    ) -> (Vec<String>, Option<Error>) {
        let query = LogQuery {
            container: container.map(ContainerId),
            submission: submission.map(String::from),
            ..LogQuery::default()
        };
        self.told_to(&query).await
    }

    async fn told_to(&self, query: &LogQuery) -> (Vec<String>, Option<Error>) {
        let mut told = Vec::new();
        let mut lines = match self.client.logs("relay", query).await {
            Ok(lines) => lines,
            Err(error) => return (told, Some(error)),
        };
        loop {
            match lines.next().await {
                Ok(Some(line)) => told.push(line.text),
                Ok(None) => return (told, None),
                Err(error) => return (told, Some(error)),
            }
        }
    }
}

fn says(error: Option<Error>, code: ErrorCode, parts: &[&str]) {
    let error = error.expect("an error");
    assert_eq!(error.code(), code, "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_machines_that_no_host_tells_of_is_missing_and_not_said_never_to_have_been() {
    let harbour = Harbour::of(&["127.0.0.1", "10.0.0.8"]).await;
    let away = "10.0.0.8: no host is registered there";
    let (told, error) = harbour.told(None).await;
    assert!(told.is_empty());
    says(error, ErrorCode::ReadFailed, &[away]);
    harbour.wrote("one\n");
    let (told, error) = harbour.told(None).await;
    assert_eq!(told, ["one"]);
    says(error, ErrorCode::ReadFailed, &[away]);
    let (told, error) = harbour.told(Some(2)).await;
    assert!(told.is_empty());
    says(error, ErrorCode::ReadFailed, &[away]);

    // A registered host that does not respond.
    let record = HostRecord {
        host: "10.0.0.8".into(),
        address: "10.0.0.8:1".into(),
        total: Resources::ZERO,
        used: Resources::ZERO,
        attributes: [("api".to_string(), "http://127.0.0.1:1".to_string())].into(),
        holds: Vec::new(),
    };
    let record = record.written().expect("JSON");
    harbour.set(&worker("pier").expect("a path"), &record).await;
    let (_, error) = harbour.told(Some(2)).await;
    says(error, ErrorCode::ReadFailed, &["pier: "]);
    harbour.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_own_registration_is_damaged_misses_nothing_of_its_own_machine() {
    let harbour = Harbour::of(&["127.0.0.1"]).await;
    harbour.wrote("one\n");
    harbour.set(&worker("quay").expect("a path"), b"?").await;
    let (told, error) = harbour.told(None).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(told, ["one"]);
    harbour.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_hosts_that_are_gone_the_first_that_is_left_on_their_machine_tells() {
    let harbour = Harbour::of(&["127.0.0.1"]).await;
    harbour.wrote("one\n");
    harbour.wrote_at("gone", "two\n");
    let here = LogQuery {
        here: true,
        submission: Some("1".into()),
        ..LogQuery::default()
    };
    let told = async || {
        let (mut told, error) = harbour.told_to(&here).await;
        assert!(error.is_none(), "{error:?}");
        told.sort();
        told
    };
    assert_eq!(told().await, ["one", "two"]);

    // A second host shares the folder and is requested too: it serves its own files and those of
    // the missing host.
    let setup = setup(
        Jobs::All,
        "pier",
        harbour.folder.path(),
        Arc::clone(&harbour.state) as _,
    );
    let pier = Host::start(setup.expect("a setup")).await;
    let pier = pier.expect("it starts");
    harbour.wrote_at("pier", "three\n");
    assert_eq!(told().await, ["one"]);
    let (mut all, error) = harbour.told(None).await;
    assert!(error.is_none(), "{error:?}");
    all.sort();
    assert_eq!(all, ["one", "three", "two"]);
    pier.close().await;
    harbour.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_a_submission_ended_that_is_gone_is_told_of_that_one() {
    let harbour = Harbour::of(&["127.0.0.1"]).await;
    harbour.remember(2, false, &[]).await;
    let kill = async |submission| {
        let killed = harbour.client.kill_submission("relay", submission).await;
        killed.err()
    };
    says(kill("1").await, ErrorCode::NoSuchJob, &["finished"]);
    says(kill("2").await, ErrorCode::NoSuchJob, &["killed"]);
    let parts = ["submission 3", "the last that are known: 2, 1"];
    says(kill("3").await, ErrorCode::NoSuchJob, &parts);
    harbour.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_container_of_which_nothing_is_found_it_is_told_where_that_would_be() {
    let harbour = Harbour::of(&["127.0.0.1"]).await;
    harbour.wrote("one\n");
    assert_eq!(harbour.told(Some(1)).await.0, ["one"]);
    let (_, error) = harbour.told(Some(7)).await;
    let parts = ["no logs of a container 7", "it had 2", "127.0.0.1"];
    says(error, ErrorCode::NoSuchContainer, &parts);
    harbour.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_gone_is_told_of_beside_a_job_that_cannot_be_read() {
    let harbour = Harbour::of(&["127.0.0.1"]).await;
    harbour.wrote("one\n");
    let there = job("relay");
    let number = format!("{:x}", there.definition.job.submission);
    harbour.client.submit(&there).await.expect("it is taken");
    let (_, error) = harbour.told_of(None, Some("3")).await;
    let known = format!("the last that are known: {number}, 1");
    says(error, ErrorCode::NoSuchJob, &["submission 3", &known]);

    let layout = JobLayout::of("relay").expect("a name");
    harbour.set(layout.definition(), b"damaged").await;
    assert_eq!(harbour.told_of(None, Some("1")).await.0, ["one"]);
    harbour.host.close().await;
}
