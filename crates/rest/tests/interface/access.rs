//! Tests of roles, named tokens and the audit log.

use std::sync::Arc;

use ardea_core::{ErrorCode, Token};
use ardea_output::OutputBounds;
use ardea_rest::{
    AccessRole, AuditLog, Server, ServerLimits, StoredToken, TokenRegistry, TokenRequest,
    create_token,
};
use serde_json::Value;

use crate::fixture::{Answer, Served, loopback, serve};

/// A time long ago, in milliseconds since 1970.
const LONG_AGO_MS: u64 = 1_000_000;

/// Returns a token created at this time, and its secret.
fn token(
    name: &str,
    role: AccessRole,
    may_upload: bool,
    created_ms: u64,
    expires_in_s: Option<u64>,
) -> (StoredToken, String) {
    let request = TokenRequest {
        name: name.into(),
        role,
        may_upload,
        expires_in_s,
    };
    let (stored, new) = create_token(request, created_ms).unwrap();
    (stored, new.secret)
}

async fn ask(served: &Served, method: &str, path: &str, secret: &str, body: &str) -> Answer {
    let head = format!("authorization: Bearer {secret}\r\n");
    served.ask(method, path, &head, body).await
}

fn code(answer: &Answer) -> String {
    let fault: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    fault["code"].as_str().unwrap_or_default().to_string()
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for_and_nothing_above() {
    let kinds = [
        ("viewer", AccessRole::Viewer, false),
        ("operator", AccessRole::Operator, false),
        ("uploader", AccessRole::Operator, true),
        ("admin", AccessRole::Admin, false),
    ];
    let (stored, secrets): (Vec<_>, Vec<_>) = kinds
        .map(|(name, role, may_upload)| token(name, role, may_upload, LONG_AGO_MS, None))
        .into_iter()
        .unzip();
    let registry = Arc::new(TokenRegistry::default());
    registry.replace(stored);
    let config = loopback()
        .token(Some(Token::new("sesame")))
        .tokens(registry);
    let served = serve(config).await;
    // The statuses of those that may act; 404 and 400 come from the handlers behind the check.
    for (method, path, allowed, status) in [
        ("GET", "/v1/jobs", 0, 200),
        ("GET", "/v1/jobs/none/why", 0, 404),
        ("POST", "/v1/jobs/none/pause", 1, 404),
        ("DELETE", "/v1/jobs/none", 1, 404),
        ("PUT", "/v1/jobs/none/parallelism", 1, 400),
        ("DELETE", "/v1/maps/none", 1, 404),
        ("POST", "/v1/jobs", 2, 400),
        ("POST", "/v1/jobs/none/upgrade", 2, 400),
        ("POST", "/v1/hosts/none/drain", 3, 404),
        ("GET", "/v1/tokens", 3, 200),
        ("POST", "/v1/tokens", 3, 400),
        ("DELETE", "/v1/tokens/none", 3, 404),
        ("GET", "/v1/audit", 3, 200),
    ] {
        for (rank, secret) in secrets.iter().enumerate() {
            let answer = ask(&served, method, path, secret, "").await;
            let what = format!("{method} {path} by {rank}: {answer:?}");
            match rank >= allowed {
                true => assert_eq!(answer.status, status, "{what}"),
                false => {
                    assert_eq!(answer.status, 403, "{what}");
                    assert_eq!(code(&answer), "ARD-653", "{what}");
                }
            }
        }
        // The cluster's token is an admin's.
        let answer = ask(&served, method, path, "sesame", "").await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let answer = served.ask(method, path, "", "").await;
        assert_eq!(answer.status, 401, "{method} {path} without a token");
    }
    assert!(served.cluster.commands().is_empty());
}

#[tokio::test]
async fn wrong_expired_and_revoked_tokens_are_refused_with_the_reason() {
    let (expired, old) = token("old", AccessRole::Admin, true, LONG_AGO_MS, Some(60));
    let (valid, new) = token("new", AccessRole::Admin, true, LONG_AGO_MS, None);
    let registry = Arc::new(TokenRegistry::default());
    registry.replace([expired.clone(), valid]);
    // Also where no token is needed.
    for config in [loopback(), loopback().token(Some(Token::new("sesame")))] {
        let served = serve(config.tokens(Arc::clone(&registry))).await;
        assert_eq!(ask(&served, "GET", "/v1/jobs", &new, "").await.status, 200);
        for (secret, says) in [
            (old.as_str(), "the token \\\"old\\\" has expired"),
            ("ardea_0000", "not one of the cluster's"),
        ] {
            let answer = ask(&served, "GET", "/v1/jobs", secret, "").await;
            assert_eq!(answer.status, 401, "{secret}");
            assert!(answer.body.contains(says), "{answer:?}");
            assert_eq!(code(&answer), "ARD-650");
        }
        registry.replace([]);
        let answer = ask(&served, "GET", "/v1/jobs", &new, "").await;
        assert_eq!(answer.status, 401, "it was revoked");
        registry.replace([expired.clone(), {
            let (stored, _) = token("new", AccessRole::Admin, true, LONG_AGO_MS, None);
            StoredToken {
                digest: digest_of(&new),
                ..stored
            }
        }]);
    }
}

fn digest_of(secret: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(secret.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn actions_and_refused_ones_are_in_the_audit_log_and_reads_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = OutputBounds {
        file_bytes: 1 << 20,
        files: 2,
    };
    let log = Arc::new(AuditLog::new(folder.path(), "audit.jsonl", bounds));
    let (viewer, secret) = token("eve", AccessRole::Viewer, false, LONG_AGO_MS, None);
    let registry = Arc::new(TokenRegistry::default());
    registry.replace([viewer]);
    let served = serve(loopback().tokens(registry).audit(Some(log))).await;
    served.ask("POST", "/v1/jobs/none/pause", "", "").await;
    ask(&served, "GET", "/v1/jobs", &secret, "").await;
    ask(&served, "DELETE", "/v1/jobs/none?submission=7", &secret, "").await;
    // A caller without identity writes nothing.
    ask(&served, "DELETE", "/v1/jobs/none", "wrong", "").await;
    let log = served.client(None).audit(10).await.unwrap();
    let told: Vec<(&str, &str, &str, u16)> = log
        .entries
        .iter()
        .map(|it| (&*it.caller, &*it.method, &*it.path, it.status))
        .collect();
    let expected = [
        ("local", "POST", "/v1/jobs/none/pause", 404),
        ("eve", "DELETE", "/v1/jobs/none?submission=7", 403),
    ];
    assert_eq!(told, expected);
    assert_eq!(log.entries[1].role, AccessRole::Viewer);
    assert_eq!(log.entries[1].address.as_deref(), Some("127.0.0.1"));
    assert_eq!(log.lost_count, 0);
    let refused = served.client(None).audit(20_000).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BadRequest);
}

#[tokio::test]
async fn tokens_are_created_listed_and_revoked_over_the_interface() {
    let served = serve(loopback()).await;
    let client = served.client(None);
    let request = TokenRequest {
        name: "ci".into(),
        role: AccessRole::Operator,
        may_upload: true,
        expires_in_s: Some(3600),
    };
    let new = client.create_token(&request).await.unwrap();
    assert!(new.secret.starts_with("ardea_"));
    assert_eq!(client.tokens().await.unwrap(), [new.token]);
    let taken = client.create_token(&request).await.unwrap_err();
    assert_eq!(taken.code(), ErrorCode::NameTaken);
    client.revoke_token("ci").await.unwrap();
    assert_eq!(client.tokens().await.unwrap(), []);
    let gone = client.revoke_token("ci").await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NoSuchEntry);
    for body in [
        "{}",
        "{\"name\": \"a b\", \"role\": \"viewer\"}",
        "{\"name\": \"a\", \"role\": \"king\"}",
    ] {
        assert_eq!(
            served.ask("POST", "/v1/tokens", "", body).await.status,
            400,
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_viewer_is_refused_before_its_body_is_read() {
    let (viewer, secret) = token("eve", AccessRole::Viewer, false, LONG_AGO_MS, None);
    let registry = Arc::new(TokenRegistry::default());
    registry.replace([viewer]);
    let served = serve(loopback().tokens(registry)).await;
    // The body is announced and never comes.
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {secret}\r\ncontent-length: 9999999\r\n\r\n",
        served.address
    );
    let answer = served.raw(head.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 403);
    // One that may act is told that its body is too large.
    let limits = ServerLimits {
        body_bytes: 1_000,
        ..ServerLimits::default()
    };
    let served = serve(loopback().limits(limits)).await;
    let answer = served.ask("POST", "/v1/jobs", "", &"x".repeat(2_000)).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn an_address_that_sends_too_many_requests_is_told_to_wait() {
    let limits = ServerLimits {
        requests_per_second: 3,
        ..ServerLimits::default()
    };
    let served = serve(loopback().limits(limits)).await;
    let mut statuses = Vec::new();
    // Some fail even if the machine is so slow that a few more are allowed.
    while !statuses.contains(&429) {
        let answer = served.ask("GET", "/v1/jobs", "", "").await;
        if answer.status == 429 {
            assert!(
                answer.head.to_lowercase().contains("retry-after: 1"),
                "{answer:?}"
            );
            assert_eq!(code(&answer), "ARD-401");
        }
        statuses.push(answer.status);
        assert!(statuses.len() < 10_000, "no request was one too many");
    }
    assert!(statuses.starts_with(&[200, 200, 200]), "{statuses:?}");
}

#[tokio::test]
async fn named_tokens_alone_open_no_address_beyond_this_machine() {
    let registry = Arc::new(TokenRegistry::default());
    let (stored, _) = token("ci", AccessRole::Admin, true, LONG_AGO_MS, None);
    registry.replace([stored]);
    let mut config = loopback().tokens(registry);
    config.address = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let cluster = Arc::new(ardea_rest::testing::FakeCluster::new());
    let refused = Server::bind(cluster, config).await.err().unwrap();
    assert_eq!(refused.code(), ErrorCode::InvalidConfig);
}
