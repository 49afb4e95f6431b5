//! Tests of authentication.

use std::net::SocketAddr;
use std::sync::Arc;

use ardea_core::{ErrorCode, Token};
use ardea_rest::testing::FakeCluster;
use ardea_rest::{Client, Server, ServerConfig};

use crate::fixture::{loopback, serve};

#[tokio::test]
async fn without_a_token_it_listens_on_this_machine_only() {
    let bind = |config| Server::bind(Arc::new(FakeCluster::new()), config);
    let everywhere = ServerConfig::at(SocketAddr::from(([0, 0, 0, 0], 0)));
    let error = bind(everywhere.clone()).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("cluster.token_file"), "{error}");
    let with_token = everywhere.token(Some(Token::new("sesame")));
    assert!(bind(with_token).await.is_ok());
}

#[tokio::test]
async fn a_taken_port_is_told_with_its_number() {
    let served = serve(loopback()).await;
    let config = ServerConfig::at(served.address);
    let taken = Server::bind(Arc::new(FakeCluster::new()), config).await;
    let error = taken.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Network);
    assert!(error.to_string().contains(&served.address.to_string()));
}

#[tokio::test]
async fn only_the_token_opens_and_the_document_is_for_everybody() {
    let served = serve(loopback().token(Some(Token::new("sesame")))).await;
    served.client(Some("sesame")).list().await.unwrap();
    for token in [None, Some("sesam"), Some("sesames"), Some("")] {
        let error = served.client(token).list().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unauthorized, "{error}");
    }
    let refused = served.ask("DELETE", "/v1/jobs/a", "", "").await;
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .head
            .to_lowercase()
            .contains("www-authenticate: bearer")
    );
    let document = served.ask("GET", "/v1/openapi.json", "", "").await;
    assert_eq!(document.status, 200);
    let broken = Client::new(
        &format!("http://{}", served.address),
        Some(Token::new("two\nlines")),
    );
    let error = broken.unwrap().list().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}

#[tokio::test]
async fn a_page_of_another_site_can_command_nothing() {
    let served = serve(loopback()).await;
    let path = "/v1/jobs/a/resume";
    let from_a_page = served.ask("POST", path, "origin: http://evil.example\r\n", "");
    assert_eq!(from_a_page.await.status, 400);
    let under_a_name = b"POST /v1/jobs/a/resume HTTP/1.1\r\nhost: evil.example\r\n\r\n";
    assert_eq!(served.raw(under_a_name).await.unwrap().status, 400);
    assert_eq!(served.ask("POST", path, "", "").await.status, 404);
}
