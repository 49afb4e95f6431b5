//! Tests of the web page.

use ardea_core::Token;

use crate::fixture::{loopback, serve};

#[tokio::test]
async fn the_page_is_served_without_a_token_and_nothing_else() {
    let served = serve(loopback().token(Some(Token::new("sesame")))).await;
    for (path, kind) in [
        ("/ui/", "text/html"),
        ("/ui/app.js", "text/javascript"),
        ("/ui/style.css", "text/css"),
        ("/ui/icon.svg", "image/svg+xml"),
    ] {
        let answer = served.ask("GET", path, "", "").await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.head.contains(kind), "{answer:?}");
        assert!(answer.head.contains("frame-ancestors 'none'"), "{answer:?}");
        assert!(!answer.body.is_empty(), "{path}");
    }
    for path in ["/", "/ui"] {
        let answer = served.ask("GET", path, "", "").await;
        assert_eq!(answer.status, 302, "{path}");
        assert!(answer.head.contains("location: ui/"), "{answer:?}");
    }
    for path in [
        "/v1/jobs",
        "/v1/events",
        "/ui/../v1/jobs",
        "/ui/x",
        "//v1/jobs",
    ] {
        assert_eq!(served.ask("GET", path, "", "").await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn an_unchanged_file_is_not_sent_again() {
    let served = serve(loopback()).await;
    let first = served.ask("GET", "/ui/app.js", "", "").await;
    let tag = first
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "));
    let known = format!("if-none-match: {}\r\n", tag.unwrap());
    let again = served.ask("GET", "/ui/app.js", &known, "").await;
    assert_eq!((again.status, &*again.body), (304, ""));
    let other = "if-none-match: \"0\"\r\n";
    assert_eq!(served.ask("GET", "/ui/app.js", other, "").await.status, 200);
}

#[tokio::test]
async fn the_page_cannot_be_changed() {
    let served = serve(loopback()).await;
    for method in ["POST", "PUT", "DELETE"] {
        let answer = served.ask(method, "/ui/", "", "").await;
        assert_eq!(answer.status, 405, "{method}");
    }
}
