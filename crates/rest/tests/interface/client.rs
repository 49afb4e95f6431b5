//! Tests that a client's requests reach the cluster, and its responses and errors reach the client.

use std::collections::BTreeMap;

use ardea_coordination::packing::ContainerId;
use ardea_core::ErrorCode;
use ardea_rest::testing::word_count;
use ardea_rest::{
    Client, ContainersUpdate, JobEnding, LogQuery, LogSource, MapPutRequest, MapQuery,
    MetricsQuery, ParallelismUpdate, Phase, RangeQuery, RecoverRequest,
};

use crate::fixture::{loopback, serve, serve_word_count};

#[tokio::test]
async fn a_job_is_submitted_looked_at_commanded_and_killed() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let jobs = client.list().await.unwrap();
    assert_eq!(jobs.len(), 1);
    assert_eq!(
        (jobs[0].name.as_str(), jobs[0].phase),
        ("word-count", Phase::Running)
    );
    assert_eq!(client.about().await.unwrap().jobs, 1);
    assert_eq!(client.hosts().await.unwrap()[0].leads, ["word-count"]);

    client.pause("word-count").await.unwrap();
    let described = client.describe("word-count").await.unwrap();
    assert_eq!(described.summary.phase, Phase::Paused);
    assert_eq!(described.containers.len(), 2);
    client.resume("word-count").await.unwrap();
    client.restart("word-count", ContainerId(2)).await.unwrap();
    let top = client.top("word-count").await.unwrap();
    assert_eq!(top.containers[1].restarts, 1);

    let parallelism = BTreeMap::from([("words".to_string(), 4)]);
    let update = ParallelismUpdate { parallelism };
    client.update("word-count", &update).await.unwrap();
    let plans = client.plans("word-count").await.unwrap();
    assert_eq!(plans.version, Some(2));
    assert_eq!(plans.logical.edges.len(), 2);
    assert_eq!(plans.packing.unwrap().instance_count(), 7);

    let spread = ContainersUpdate { containers: 3 };
    client.rescale("word-count", &spread).await.unwrap();
    let plans = client.plans("word-count").await.unwrap();
    assert_eq!(plans.packing.unwrap().containers().len(), 3);
    let none = ContainersUpdate { containers: 0 };
    let error = client.rescale("word-count", &none).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRequest);

    let request = RecoverRequest {
        from_epoch: Some(7),
        ..RecoverRequest::default()
    };
    client.recover("word-count", &request).await.unwrap();
    let seen = client.checkpoints("word-count").await.unwrap();
    assert_eq!((seen.job.as_str(), seen.checked), ("word-count", false));
    let checked = client.check_checkpoints("word-count").await.unwrap();
    assert!(checked.checked);

    client.kill("word-count").await.unwrap();
    assert!(client.list().await.unwrap().is_empty());
    let past = client.past("word-count").await.unwrap();
    assert_eq!(past[0].summary.ending, JobEnding::Killed);
    assert_eq!(past[0].summary.instance_count, 7);
    assert_eq!(client.past_jobs().await.unwrap(), [past[0].summary.clone()]);
    assert!(client.past("word/count").await.unwrap().is_empty());
    assert_eq!(
        served.cluster.commands(),
        [
            "pause word-count",
            "resume word-count",
            "restart word-count 2",
            "update word-count {\"words\": 4}",
            "rescale word-count 3",
            "recover word-count RecoverRequest { from_epoch: Some(7), from_nothing: false }",
            "kill word-count"
        ]
    );
}

#[tokio::test]
async fn metrics_and_logs_are_chosen_by_what_is_asked_for() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let all = MetricsQuery::default();
    assert_eq!(client.metrics("word-count", &all).await.unwrap().len(), 5);
    let words = MetricsQuery {
        vertex: Some("words".into()),
        instance: Some(1),
        ..all
    };
    assert_eq!(client.metrics("word-count", &words).await.unwrap().len(), 1);
    let range = RangeQuery {
        name: "ardea_records_in_total".into(),
        vertex: None,
        instance: None,
        container: Some(1),
        from_ms: Some(7),
        to_ms: None,
    };
    let range = client.metrics_range("word-count", &range).await.unwrap();
    assert!(
        range
            .series
            .iter()
            .all(|series| series.points[0].at_ms == 7)
    );

    let query = LogQuery {
        container: Some(ContainerId(2)),
        source: Some(LogSource::Stderr),
        tail: Some(10),
        follow: true,
        ..LogQuery::default()
    };
    let mut lines = client.logs("word-count", &query).await.unwrap();
    let line = lines.next().await.unwrap().unwrap();
    assert_eq!(line.text, "hello from container 2");
    assert_eq!(line.source, LogSource::Stderr);
    assert!(lines.next().await.unwrap().is_none());
}

#[tokio::test]
async fn errors_come_through_with_code_and_hint() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let error = client.describe("word-cuont").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchJob);
    assert_eq!(error.hint_text(), Some("did you mean word-count?"));

    let same = word_count("pretended", "word-count", 42);
    client.submit(&same).await.unwrap();
    let other = word_count("pretended", "word-count", 43);
    let error = client.submit(&other).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NameTaken);

    let mut too_large = word_count("pretended", "large", 1);
    too_large.packing.limits.instances = std::num::NonZeroU32::new(1);
    let error = client.submit(&too_large).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ResourcesImpossible);

    let parallelism = BTreeMap::from([("wrods".to_string(), 4)]);
    let update = ParallelismUpdate { parallelism };
    let error = client.update("word-count", &update).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[tokio::test]
async fn names_of_any_letters_reach_the_cluster_as_they_are() {
    let served = serve(loopback()).await;
    let client = served.client(None);
    for name in ["a b", "ä?#%2F", "x&y=z"] {
        let request = word_count("pretended", name, 1);
        client.submit(&request).await.unwrap();
        let described = client.describe(name).await.unwrap();
        assert_eq!(described.summary.name, name);
    }
}

#[tokio::test]
async fn a_name_that_is_a_path_is_refused_before_it_travels() {
    let served = serve(loopback()).await;
    let client = served.client(None);
    for name in ["a/b", "..", "../up"] {
        let request = word_count("pretended", name, 1);
        let error = client.submit(&request).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
    }
    assert!(client.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_request_follows_to_the_host_that_leads_the_job() {
    let (leader, other) = (serve_word_count().await, serve(loopback()).await);
    let base = format!("http://{}", leader.address);
    other.cluster.set_leader_elsewhere("word-count", &base);
    let told = other.ask("GET", "/v1/jobs/word-count", "", "").await;
    assert_eq!(told.status, 307);
    let body: serde_json::Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(body["location"], format!("{base}/v1/jobs/word-count"));
    assert!(body["message"].as_str().unwrap().contains("another host"));
    let client = other.client(None);
    assert_eq!(client.top("word-count").await.unwrap().vertices.len(), 3);
    let parallelism = BTreeMap::from([("counts".to_string(), 3)]);
    let update = ParallelismUpdate { parallelism };
    client.update("word-count", &update).await.unwrap();
    assert_eq!(leader.cluster.commands().len(), 1);
    assert!(other.cluster.commands().is_empty());

    leader
        .cluster
        .set_leader_elsewhere("word-count", &format!("http://{}", other.address));
    let error = client.top("word-count").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
}

#[tokio::test]
async fn an_address_at_which_nobody_or_somebody_else_answers_is_told() {
    let gone = serve(loopback()).await;
    let client = gone.client(None);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let stranger = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 307 X\r\nlocation: ftp://x\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        let (stream, _) = listener.accept().await.unwrap();
        drop(stream);
    });
    let other = Client::new(&base, None).unwrap();
    for _ in 0..3 {
        let error = other.list().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadResponse, "{error}");
    }
    assert_eq!(other.list().await.unwrap_err().code(), ErrorCode::Network);
    stranger.await.unwrap();

    drop(gone);
    let error = loop {
        // The listener closes a moment after its task is aborted.
        match client.list().await {
            Err(error) => break error,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(error.code(), ErrorCode::Network);
}

#[tokio::test]
async fn a_host_is_drained_and_that_is_taken_back() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let drained = async || client.hosts().await.unwrap()[0].drained;
    assert!(!drained().await);
    for _ in 0..2 {
        client.drain("here").await.unwrap();
        assert!(drained().await);
    }
    client.undrain("here").await.unwrap();
    assert!(!drained().await);
    let refused = client.drain("hare/1").await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NoSuchHost);
    assert!(refused.to_string().contains("\"hare/1\""), "{refused}");
    assert_eq!(
        served
            .ask("POST", "/v1/hosts/there/drain", "", "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_map_is_listed_read_watched_and_changed() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let maps = client.maps().await.unwrap();
    assert_eq!(
        (maps.maps[0].name.as_str(), maps.maps[0].entries),
        ("berths", 1)
    );
    let request = MapPutRequest {
        value: serde_json::json!({ "berth": 9 }),
    };
    let key = "a key/with ?&# and ä";
    let put = client.put_entry("berths", key, &request).await.unwrap();
    assert_eq!((put.key, put.value), (key.into(), request.value.clone()));
    let found = client.map_entry("berths", key).await.unwrap();
    assert_eq!(found.value, request.value);

    let query = MapQuery {
        prefix: Some("sea".into()),
        ..MapQuery::default()
    };
    let entries = client.map_entries("berths", &query).await.unwrap();
    assert_eq!((entries.entries.len(), entries.more), (1, false));
    let mut changes = client.map_changes("berths", &query).await.unwrap();
    let mut told = 0;
    while changes.next().await.unwrap().is_some() {
        told += 1;
    }
    assert_eq!(told, 2);
    let many = MapQuery {
        limit: Some(10_001),
        ..MapQuery::default()
    };
    let error = client.map_entries("berths", &many).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRequest);

    let had = client.remove_entry("berths", key).await.unwrap();
    assert_eq!(had.value, request.value);
    let error = client.remove_entry("berths", key).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchEntry);
    client.drop_map("berths").await.unwrap();
    let error = client.map_entry("quays", "a").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchEntry);
}
