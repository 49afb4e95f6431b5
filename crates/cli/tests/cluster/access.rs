//! Tokens with roles, and the audit log, on a real cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::arena::Arena;

/// Writes a secret to a file that only its owner can read; returns the option that selects it.
fn with_token(arena: &Arena, name: &str, secret: &str) -> String {
    let path = arena.path().join(format!("{name}.token"));
    fs::write(&path, secret).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    format!("--set cluster.token_file={}", path.display())
}

pub fn a_viewer_sees_and_does_nothing_and_a_revoked_token_opens_no_host() {
    let arena = Arena::new();
    let root = with_token(&arena, "root", "open-sesame-of-this-cluster");
    arena.succeed(&format!("cluster start --workers 2 {root}"));
    let refused = arena.fail("list");
    assert!(refused.contains("ARD-650"), "{refused}");
    let create = |name: &str, options: &str| {
        let line = format!("token create {name} {options} {root}");
        let secret = arena.succeed(&line);
        with_token(&arena, name, secret.trim())
    };
    let viewer = create("eve", "--role viewer");
    let operator = create("ann", "--role operator --expires 1h");
    let uploader = create("ci", "--role operator --upload");
    // All hosts know the tokens soon.
    for token in [&viewer, &operator, &uploader] {
        for host in arena.json(&format!("cluster status {root}"))["hosts"]
            .as_array()
            .unwrap()
        {
            let api = host["api"].as_str().unwrap();
            arena.until("the token is known", || {
                arena
                    .run(&format!("list --at {api} {token}"))
                    .status
                    .success()
            });
        }
    }
    let submit = "submit word-count.yaml --set job.containers=1";
    for (line, token) in [
        (submit, &viewer),
        (submit, &operator),
        ("token list", &uploader),
        ("audit", &operator),
        ("cluster drain host-1", &uploader),
    ] {
        let refused = arena.fail(&format!("{line} {token}"));
        assert!(refused.contains("ARD-653"), "{line}: {refused}");
    }
    arena.succeed(&format!("{submit} {uploader}"));
    arena.succeed(&format!("describe word-count {viewer}"));
    for line in ["pause word-count", "kill word-count --yes"] {
        let refused = arena.fail(&format!("{line} {viewer}"));
        assert!(
            refused.contains("ARD-653") && refused.contains("operator"),
            "{refused}"
        );
    }
    arena.succeed(&format!("pause word-count {operator}"));
    arena.succeed(&format!("kill word-count --yes {operator}"));

    let listed = arena.json(&format!("token list {root}"));
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["ann", "ci", "eve"]);
    arena.succeed(&format!("token revoke eve {root}"));
    arena.until("the revoked token is refused", || {
        let output = arena.run(&format!("list {viewer}"));
        String::from_utf8_lossy(&output.stderr).contains("ARD-650")
    });
    let log = arena.json(&format!("audit {root}"));
    let has = |caller: &str, method: &str, path: &str, status: u64| {
        let entries = log["entries"].as_array().unwrap().iter();
        entries.clone().any(|it| {
            let is =
                |name: &str, value: &str| it[name].as_str().is_some_and(|it| it.contains(value));
            is("caller", caller)
                && is("method", method)
                && is("path", path)
                && it["status"] == status
        })
    };
    assert!(
        has("eve", "POST", "/v1/jobs/word-count/pause", 403),
        "{log}"
    );
    assert!(
        has("ann", "POST", "/v1/jobs/word-count/pause", 202),
        "{log}"
    );
    assert!(has("ci", "POST", "/v1/jobs", 201), "{log}");
    assert!(
        has("cluster token", "DELETE", "/v1/tokens/eve", 202),
        "{log}"
    );
}
