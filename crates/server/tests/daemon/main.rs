//! Hosts with faults of their machine, as clients see them.

mod retained_logs;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_config::{Resolver, Schema};
use ardea_coordination::control::{JobDefinition, JobRef, LeaseConfig, ProgramRef};
use ardea_coordination::elasticity::ElasticityPolicies;
use ardea_coordination::optimizer::OptimizerRules;
use ardea_coordination::packing::{
    ContainerId, JobDemand, PackingConfig, PackingPolicies, Resources, VertexDemand,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::conformance::{Fault, FaultyStore};
use ardea_metastore::{Expected, FileState, MetadataStore, StateOptions, layout};
use ardea_network::rpc::Security;
use ardea_rest::{CLUSTER_SETTINGS, Client, ClusterSettings, ParallelismUpdate, SubmitRequest};
use ardea_scheduler::artifacts::{Cache, CacheConfig, PackageStores, StoreOptions};
use ardea_scheduler::{CachedPrograms, Schedulers};
use ardea_server::daemon::{Host, HostSetup};
use ardea_server::leader::{Jobs, StoredJob, new_submission};

/// The timeout of any wait.
const DEADLINE: Duration = Duration::from_secs(60);

async fn state(folder: &Path) -> Arc<FaultyStore> {
    let state = FileState::open(&folder.join("state"), StateOptions::default()).await;
    Arc::new(FaultyStore::over(Arc::new(state.expect("it opens"))))
}

async fn host(name: &str, folder: &Path, state: Arc<dyn MetadataStore>) -> Result<Host> {
    host_for(Jobs::All, name, folder, state).await
}

/// Starts a host, with a client of its interface.
async fn opened(name: &str, folder: &Path, state: &Arc<FaultyStore>) -> (Host, Client) {
    let host = host(name, folder, Arc::clone(state) as _).await;
    with_client(host.expect("it starts"))
}

fn with_client(host: Host) -> (Host, Client) {
    let client = Client::new(host.api(), None).expect("a client");
    (host, client)
}

/// Submits the job `words`, and waits until it has a leader.
async fn submit_words(client: &Client) {
    client.submit(&job("words")).await.expect("it is taken");
    until("it is led", async || {
        client.describe("words").await.ok()?.master
    })
    .await;
}

async fn host_for(
    jobs: Jobs,
    name: &str,
    folder: &Path,
    state: Arc<dyn MetadataStore>,
) -> Result<Host> {
    Host::start(setup(jobs, name, folder, state)?).await
}

fn setup(
    jobs: Jobs,
    name: &str,
    folder: &Path,
    state: Arc<dyn MetadataStore>,
) -> Result<HostSetup> {
    let schema = Schema::of(CLUSTER_SETTINGS);
    let resolved = Resolver::new(&schema).flags(["cluster.port=0"]).resolve()?;
    let cluster = ClusterSettings::from_settings(&resolved, Some(folder))?;
    let cache = Cache::open(folder.join("cache"), CacheConfig::default())?;
    let (stores, options) = (PackageStores::builtin(), StoreOptions::default());
    Ok(HostSetup {
        name: name.into(),
        jobs,
        state,
        security: Security::new(cluster.name.as_str()),
        managers: PackingPolicies::builtin(),
        elasticity: ElasticityPolicies::builtin(),
        optimizer: OptimizerRules::builtin(),
        schedulers: Schedulers::none(),
        programs: Arc::new(CachedPrograms::new(cache, stores, options)),
        runner: None,
        attributes: Default::default(),
        lease: LeaseConfig {
            term: Duration::from_secs(2),
            drift_margin: Duration::from_millis(200),
            renew_interval: Duration::from_millis(400),
            request_timeout: Duration::from_secs(1),
        },
        master: Default::default(),
        masters: tokio::runtime::Handle::current(),
        cluster,
    })
}

/// A job whose program does not exist. The job still gets a leader.
fn job(name: &str) -> SubmitRequest {
    SubmitRequest {
        definition: JobDefinition {
            job: JobRef {
                cluster: "local".into(),
                name: name.into(),
                submission: new_submission(),
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "none".into(),
                arguments: Vec::new(),
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: Default::default(),
            version: "0.1.0".into(),
        },
        demand: JobDemand::new(name).vertex(VertexDemand::new("words", 1, Resources::ZERO)),
        packing: PackingConfig::default(),
    }
}

/// Polls until there is a result.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    let asked = tokio::time::timeout(DEADLINE, asking).await;
    asked.unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn says_full(error: &Error) {
    assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("free some room"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_disk_keeps_from_being_done_is_answered_with_that_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let (host, client) = opened("quay", folder.path(), &state).await;
    submit_words(&client).await;

    state.set_fault(Fault::Full);
    // Commands stored before the lease expires may succeed; later ones fail.
    let lost = client.pause("words").await.expect_err("not stored");
    assert_eq!(lost.code(), ErrorCode::Superseded, "{lost}");
    let text = lost.to_string();
    for part in [
        "leads the job no longer",
        "No space left on device",
        "free some room",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let next = lost.hint_text().expect("a hint");
    assert!(next.contains("may have been taken"), "{lost}");
    assert_eq!(next, ardea_rest::OUTCOME_UNKNOWN, "{lost}");
    let update = ParallelismUpdate {
        parallelism: [("words".to_string(), 2)].into(),
    };
    says_full(&client.update("words", &update).await.expect_err("not led"));
    says_full(&client.kill("words").await.expect_err("not led"));
    let refused = client.submit(&job("others")).await.expect_err("not stored");
    says_full(&refused);
    assert!(
        refused.to_string().contains("was not submitted"),
        "{refused}"
    );

    state.set_fault(Fault::None);
    until("it is led again", async || client.pause("words").await.ok()).await;
    let names = client.list().await.expect("a list").into_iter();
    let names: Vec<String> = names.map(|job| job.name).collect();
    assert_eq!(names, ["words"]);
    client.kill("words").await.expect("it is led");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_told_to_whom_it_is_in_the_way_of_and_to_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let (host, client) = opened("quay", folder.path(), &state).await;
    submit_words(&client).await;
    // The leader has read and written the job.
    client.pause("words").await.expect("it is stored");
    let node = layout::JobLayout::of("words").expect("a name");
    let damaged = state.set(node.definition(), b"damaged", Expected::Any);
    damaged.await.expect("it is set");
    let stored = StoredJob::decode(b"damaged").expect_err("it is damaged");

    let unknown = client.restart("words", ContainerId(7)).await;
    let unknown = unknown.expect_err("there is no such container");
    assert_eq!(unknown.code(), ErrorCode::NoSuchContainer, "{unknown}");
    assert_eq!(unknown.hint_text(), Some("it has one: 1"));
    let refused = client.resume("words").await.expect_err("not stored");
    assert_eq!(refused.to_string(), stored.to_string());
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_has_one_host_of_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let first = host("quay", folder.path(), Arc::clone(&state) as _).await;
    let first = first.expect("it starts");
    let second = host("quay", folder.path(), Arc::clone(&state) as _).await;
    let refused = second.expect_err("it has the name");
    assert_eq!(refused.code(), ErrorCode::NameTaken, "{refused}");
    let other = host("pier", folder.path(), Arc::clone(&state) as _).await;
    other.expect("another name").close().await;
    first.close().await;
    let again = host("quay", folder.path(), state).await;
    again.expect("the name is free").close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_a_host_is_not_said_to_be_taken_over_and_one_that_comes_leads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let (first, client) = opened("quay", folder.path(), &state).await;
    client.submit(&job("words")).await.expect("it is taken");
    first.close().await;
    let others = Jobs::Named("others".into());
    let other = host_for(others, "pier", folder.path(), Arc::clone(&state) as _).await;
    let (other, client) = with_client(other.expect("it starts"));
    let error = until("its host is gone", async || {
        let error = client.pause("words").await.expect_err("nobody leads");
        (error.code() != ErrorCode::Superseded).then_some(error)
    })
    .await;
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    assert!(error.to_string().contains("ardea cluster start"), "{error}");
    let (again, _) = opened("quay", folder.path(), &state).await;
    until("it is led", async || client.pause("words").await.ok()).await;
    again.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_kills_a_submission_kills_no_later_job_of_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let (host, client) = opened("quay", folder.path(), &state).await;
    let later = job("words");
    client.submit(&later).await.expect("it is taken");
    let kill = async |submission: u64| {
        let submission = format!("{submission:x}");
        client.kill_submission("words", &submission).await
    };
    let later = later.definition.job.submission;
    let error = kill(later ^ 1).await.expect_err("it is another");
    assert_eq!(error.code(), ErrorCode::NoSuchJob, "{error}");
    kill(later).await.expect("it is there");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_will_lead_a_job_says_so_though_none_is_registered() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let (first, client) = opened("quay", folder.path(), &state).await;
    submit_words(&client).await;
    let (next, client_of_next) = opened("pier", folder.path(), &state).await;
    // The drop acts like the death of the process: the lease lasts a while.
    drop(first);
    for name in ["quay", "pier"] {
        let path = layout::worker(name).expect("a path");
        // The session may have expired already.
        let _ = state.delete(&path, Expected::Any).await;
    }
    let led = client_of_next.pause("words").await;
    led.expect("it comes to lead");
    next.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_tells_which_port_it_did_not_get() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = state(folder.path()).await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("its number").port();
    let start = async |name: &str, port: u16| {
        let state = Arc::clone(&state) as _;
        let mut setup = setup(Jobs::All, name, folder.path(), state).expect("a setup");
        setup.cluster.port = port;
        setup.cluster.is_port_chosen = false;
        Host::start(setup).await.expect("it starts")
    };
    for (name, port, not_got) in [("quay", taken, Some(taken)), ("pier", 0, None)] {
        let host = start(name, port).await;
        assert_eq!(host.taken_port(), not_got);
        host.close().await;
    }
}
