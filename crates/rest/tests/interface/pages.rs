//! Tests of pages of lists, of dead letters, and of idempotency keys.

use serde_json::Value;

use ardea_rest::Cluster;
use ardea_rest::testing::word_count;

use crate::fixture::{Served, loopback, serve, serve_word_count};

/// Returns the header of a response, if it has it.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .next()
}

/// Returns the names on all pages from `path` on, following the header `Link`.
async fn names_of_pages(served: &Served, path: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next = Some(path.to_string());
    while let Some(path) = next {
        let answer = served.ask("GET", &path, "", "").await;
        let elements: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
        let names = elements.iter().filter_map(|it| it["name"].as_str());
        pages.push(names.map(str::to_string).collect());
        next = header(&answer.head, "link").map(|link| {
            let (target, relation) = link.split_once(">;").unwrap();
            assert_eq!(relation.trim(), "rel=\"next\"");
            target.trim_start_matches('<').to_string()
        });
    }
    pages
}

#[tokio::test]
async fn lists_are_read_by_pages() {
    let served = serve(loopback()).await;
    for (number, name) in ["d", "a b", "c&d=é", "b"].into_iter().enumerate() {
        let request = word_count("pretended", name, number as u64 + 1);
        served.client(None).submit(&request).await.unwrap();
    }
    let pages = names_of_pages(&served, "/v1/jobs?limit=3").await;
    assert_eq!(pages, [vec!["a b", "b", "c&d=é"], vec!["d"]]);
    let pages = names_of_pages(&served, "/v1/jobs").await;
    assert_eq!(pages[0].len(), 4);
    for name in ["b", "d", "a b"] {
        served.cluster.kill(name, Default::default()).await.unwrap();
    }
    let pages = names_of_pages(&served, "/v1/history?limit=2").await;
    assert_eq!(pages, [vec!["a b", "d"], vec!["b"]]);
    let pages = names_of_pages(&served, "/v1/hosts?limit=1").await;
    assert_eq!(pages.len(), 1);
    for wrong in ["limit=0", "limit=10001", "limit=x", "before=a"] {
        let path = format!("/v1/jobs?{wrong}");
        let answer = served.ask("GET", &path, "", "").await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn dead_letters_are_read_by_pages() {
    let served = serve_word_count().await;
    let path = "/v1/jobs/word-count/dead-letters?limit=2";
    let first = served.ask("GET", path, "", "").await;
    let first: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(first["letters"][1]["origin"], "in.csv:1");
    let path = format!("{path}&after={}", first["next"].as_str().unwrap());
    let second = served.ask("GET", &path, "", "").await;
    let second: Value = serde_json::from_str(&second.body).unwrap();
    assert_eq!(second["letters"][0]["origin"], "in.csv:2");
    assert_eq!(second["next"], Value::Null);
    for wrong in ["limit=1001", "after=x"] {
        let path = format!("/v1/jobs/word-count/dead-letters?{wrong}");
        let answer = served.ask("GET", &path, "", "").await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn an_action_with_an_idempotency_key_is_carried_out_once() {
    let served = serve_word_count().await;
    let key = "idempotency-key: one\r\n";
    let kill = "/v1/jobs/word-count";
    let first = served.ask("DELETE", kill, key, "").await;
    assert_eq!(first.status, 202);
    // The job is gone: a second kill would fail.
    let again = served.ask("DELETE", kill, key, "").await;
    assert_eq!(again.status, 202);
    assert_eq!(header(&again.head, "idempotency-replayed"), Some("true"));
    let without = served.ask("DELETE", kill, "", "").await;
    assert_eq!(without.status, 404);
    let other = served.ask("POST", "/v1/jobs/x/pause", key, "").await;
    assert_eq!(other.status, 422);
    let empty = "idempotency-key: \r\n";
    let refused = served.ask("POST", "/v1/jobs/x/pause", empty, "").await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_program_with_an_invalid_name_or_setting_is_refused() {
    let served = serve(loopback()).await;
    let right = r#"{"action": "submit", "file": "a.yaml", "content": ""}"#;
    let answer = served.ask("POST", "/v1/programs", "", right).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for wrong in [
        r#"{"action": "submit", "file": "../a.yaml", "content": ""}"#,
        r#"{"action": "upgrade", "file": "a.yaml", "content": ""}"#,
        r#"{"action": "submit", "file": "a", "content": "", "settings": {"cluster.api": "x"}}"#,
    ] {
        let answer = served.ask("POST", "/v1/programs", "", wrong).await;
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
    }
}
