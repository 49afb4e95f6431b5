//! Tests of the streams of server-sent events.

use ardea_rest::{ClusterEvent, ContainersUpdate, JobEvent};

use crate::fixture::{Answer, serve_word_count};

/// Returns the events in a response.
fn events<E: serde::de::DeserializeOwned>(answer: &Answer) -> Vec<E> {
    // The body comes in pieces, with lines that have their lengths.
    let lines = answer.body.lines();
    let events = lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
    events.collect()
}

#[tokio::test]
async fn the_events_of_the_cluster_begin_with_its_state() {
    let served = serve_word_count().await;
    let answer = served.begin("/v1/events", "loads").await;
    assert!(answer.head.contains("text/event-stream"), "{answer:?}");
    let events: Vec<ClusterEvent> = events(&answer);
    let [ClusterEvent::Jobs(jobs), ClusterEvent::Hosts(hosts), ..] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(jobs[0].name, "word-count");
    assert_eq!(hosts.len(), 1);
}

#[tokio::test]
async fn the_events_of_a_job_have_the_figures_of_the_requested_vertex() {
    let served = serve_word_count().await;
    let path = "/v1/jobs/word-count/events?vertex=words";
    let answer = served.begin(path, "samples").await;
    let events: Vec<JobEvent> = events(&answer);
    assert!(matches!(&events[0], JobEvent::Job(job) if job.summary.name == "word-count"));
    let loads = events.iter().any(|event| matches!(event, JobEvent::Top(_)));
    assert!(loads, "{events:?}");
}

#[tokio::test]
async fn a_change_of_a_job_is_an_event() {
    let served = serve_word_count().await;
    let path = "/v1/jobs/word-count/events";
    let before = served.begin(path, "top").await;
    assert!(before.body.contains(r#""container_count":2"#), "{before:?}");
    let three = ContainersUpdate { containers: 3 };
    let client = served.client(None);
    let (after, changed) = tokio::join!(
        served.begin(path, r#""container_count":3"#),
        client.rescale("word-count", &three),
    );
    changed.unwrap();
    assert_eq!(after.status, 200);
}

#[tokio::test]
async fn an_unknown_job_has_no_events() {
    let served = serve_word_count().await;
    let answer = served.ask("GET", "/v1/jobs/none/events", "", "").await;
    assert_eq!(answer.status, 404);
    assert!(
        answer.head.contains("application/problem+json"),
        "{answer:?}"
    );
}
