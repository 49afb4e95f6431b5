//! Tests of the forwarding of requests to the host that leads a job.

use ardea_core::Token;
use ardea_rest::testing::word_count;

use crate::fixture::{loopback, serve, serve_word_count};

const FORWARD: &str = "ardea-forward: 1\r\n";

#[tokio::test]
async fn a_request_that_asks_for_it_is_forwarded_to_the_leader() {
    let leader = serve_word_count().await;
    let other = serve(loopback()).await;
    let base = format!("http://{}", leader.address);
    other.cluster.set_leader_elsewhere("word-count", &base);
    let path = "/v1/jobs/word-count";
    assert_eq!(other.ask("GET", path, "", "").await.status, 307);
    let described = other.ask("GET", path, FORWARD, "").await;
    assert_eq!(described.status, 200, "{described:?}");
    assert!(described.body.contains("word-count"), "{described:?}");
    let body = r#"{"parallelism": {"words": 5}}"#;
    let path = "/v1/jobs/word-count/parallelism";
    let updated = other.ask("PUT", path, FORWARD, body).await;
    assert_eq!(updated.status, 202, "{updated:?}");
    let described = leader.client(None).describe("word-count").await.unwrap();
    assert_eq!(described.summary.instance_count, 8);
}

#[tokio::test]
async fn a_forwarded_request_has_the_rights_of_its_caller() {
    let leader = serve(loopback().token(Some(Token::new("sesame")))).await;
    let request = word_count("pretended", "word-count", 42);
    let client = leader.client(Some("sesame"));
    client.submit(&request).await.unwrap();
    let other = serve(loopback().token(Some(Token::new("sesame")))).await;
    let base = format!("http://{}", leader.address);
    other.cluster.set_leader_elsewhere("word-count", &base);
    let path = "/v1/jobs/word-count/top";
    let refused = other.ask("GET", path, FORWARD, "").await;
    assert_eq!(refused.status, 401, "{refused:?}");
    let with_token = format!("{FORWARD}authorization: Bearer sesame\r\n");
    assert_eq!(other.ask("GET", path, &with_token, "").await.status, 200);
}

#[tokio::test]
async fn hosts_that_redirect_to_each_other_end_with_an_error() {
    let (one, other) = (serve(loopback()).await, serve(loopback()).await);
    one.cluster
        .set_leader_elsewhere("words", &format!("http://{}", other.address));
    other
        .cluster
        .set_leader_elsewhere("words", &format!("http://{}", one.address));
    let answer = one.ask("GET", "/v1/jobs/words", FORWARD, "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("retry-after"), "{answer:?}");
}

#[tokio::test]
async fn a_leader_that_cannot_be_reached_is_an_error() {
    let gone = serve(loopback()).await;
    let base = format!("http://{}", gone.address);
    drop(gone);
    let other = serve(loopback()).await;
    other.cluster.set_leader_elsewhere("words", &base);
    let answer = other.ask("GET", "/v1/jobs/words", FORWARD, "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("problem+json"), "{answer:?}");
}
