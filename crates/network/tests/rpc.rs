//! Tests of connections over real sockets, with members of the cluster and with other peers.

use std::time::Duration;

use ardea_core::{ErrorCode, Token};
use ardea_network::rpc::{
    Encoded, HandshakeRequest, Limits, Listener, RpcConnection, Security, VERSION, connect,
};
use ardea_network::tls::testing::certificates;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of a test.
const TIMEOUT: Duration = Duration::from_secs(60);

fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let outcome = runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await });
    outcome.expect("timed out")
}

fn security() -> Security {
    Security::new("harbour").token(Some(Token::new("sesame")))
}

fn quick() -> Limits {
    Limits {
        handshake_timeout: Duration::from_millis(50),
        message_bytes: 1000,
        ..Limits::default()
    }
}

async fn listener(security: Security) -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0", security).await.unwrap();
    let address = listener.address().to_string();
    (listener, address)
}

async fn pair(security: &Security) -> (RpcConnection, RpcConnection) {
    let (mut listener, address) = listener(security.clone()).await;
    let greeting = HandshakeRequest::new("test");
    let ours = connect(&address, &greeting, security, TIMEOUT).await;
    (ours.unwrap(), listener.accept().await.unwrap())
}

#[test]
fn messages_travel_both_ways_in_their_order() {
    run(async {
        let (ours, theirs) = pair(&security()).await;
        let (mut to_them, mut from_them) = ours.split();
        let (mut to_us, mut from_us) = theirs.split();
        let long = Encoded::new(&vec![7_u8; 5 << 20]).unwrap();
        let sending = tokio::spawn(async move {
            for number in 0..1000_u32 {
                to_them.send(&number).await.unwrap();
            }
            to_them.send_encoded(long).await.unwrap();
            to_them.finish().await.unwrap();
        });
        for number in 0..1000_u32 {
            assert_eq!(from_us.receive().await.unwrap(), Some(number));
        }
        assert_eq!(from_us.expect::<Vec<u8>>().await.unwrap(), vec![7; 5 << 20]);
        assert_eq!(from_us.receive::<u32>().await.unwrap(), None);
        sending.await.unwrap();
        to_us.send("farewell").await.unwrap();
        assert_eq!(from_them.expect::<String>().await.unwrap(), "farewell");
    });
}

#[test]
fn a_message_whose_sending_is_aborted_is_not_torn() {
    run(async {
        let (ours, theirs) = pair(&security()).await;
        let (mut sender, _keep) = ours.split();
        let (_keep_too, mut receiver) = theirs.split();
        let long = Encoded::new(&vec![7_u8; 20 << 20]).unwrap();
        let moment = Duration::from_millis(20);
        // The peer does not read yet, so the kernel's buffers fill up soon.
        let given_up = tokio::time::timeout(moment, sender.send_encoded(long)).await;
        assert!(given_up.is_err());
        let sending = tokio::spawn(async move { sender.send(&8_u8).await });
        // Reads are cancelled repeatedly as well.
        let message = loop {
            let read = receiver.receive::<Vec<u8>>();
            if let Ok(read) = tokio::time::timeout(Duration::from_micros(100), read).await {
                break read.unwrap().unwrap();
            }
        };
        assert_eq!(message, vec![7; 20 << 20]);
        assert_eq!(receiver.receive::<u8>().await.unwrap(), Some(8));
        sending.await.unwrap().unwrap();
    });
}

#[test]
fn who_is_refused_learns_why() {
    run(async {
        let ours = security();
        let admission = |greeting: &HandshakeRequest| match greeting.job.as_deref() {
            Some("ferry") => Ok(()),
            _ => Err("only the ferry is served here".to_string()),
        };
        let mut listener = Listener::bind_for("127.0.0.1:0", ours.clone(), admission)
            .await
            .unwrap();
        let address = listener.address().to_string();
        let strangers = [
            (
                Security::new("airport").token(Some(Token::new("sesame"))),
                ErrorCode::WrongCluster,
                "airport",
            ),
            (Security::new("harbour"), ErrorCode::Refused, "no token"),
            (
                Security::new("harbour").token(Some(Token::new("barley"))),
                ErrorCode::Refused,
                "token",
            ),
            (ours.clone(), ErrorCode::Refused, "only the ferry"),
        ];
        for (stranger, code, word) in strangers {
            let refused =
                connect(&address, &HandshakeRequest::new("test"), &stranger, TIMEOUT).await;
            let error = refused.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
        let greeting = HandshakeRequest::new("test").of_job("ferry");
        let welcome = connect(&address, &greeting, &ours, TIMEOUT).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().greeting(), &greeting);
        drop(welcome);
    });
}

#[test]
fn with_certificates_members_meet_and_nobody_else_gets_in() {
    run(async {
        let security = Security::new("harbour").tls(Some(certificates()));
        let (ours, theirs) = pair(&security).await;
        let (mut sender, _keep) = ours.split();
        let (_keep_too, mut receiver) = theirs.split();
        sender.send("over TLS").await.unwrap();
        assert_eq!(receiver.expect::<String>().await.unwrap(), "over TLS");

        let (_listener, address) = listener(security.limits(quick())).await;
        let strangers = [
            Security::new("harbour"),
            Security::new("harbour").tls(Some(certificates())),
        ];
        for stranger in strangers {
            let asked = HandshakeRequest::new("test");
            let error = connect(&address, &asked, &stranger, TIMEOUT)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("TLS"), "{error}");
        }
    });
}

#[test]
fn another_version_is_told_both_numbers() {
    run(async {
        let (_listener, address) = listener(security()).await;
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket
            .write_all(&[7, 0, 0, 0, b'A', b'R', b'D', b'C', 9, 0, 0])
            .await
            .unwrap();
        let mut said = Vec::new();
        socket.read_to_end(&mut said).await.unwrap();
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.contains("version 9") && said.contains(&format!("version {VERSION}")),
            "{said}"
        );
    });
}

#[test]
fn a_listener_of_another_kind_or_version_is_told_from_one_of_ours() {
    run(async {
        let answers: [(&[u8], ErrorCode); 4] = [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorCode::BadMessage),
            (
                &[7, 0, 0, 0, b'A', b'R', b'D', b'C', 9, 0, 0],
                ErrorCode::VersionMismatch,
            ),
            (
                &[6, 0, 0, 0, b'S', b'S', b'H', b'-', 1, 0],
                ErrorCode::BadMessage,
            ),
            (&[], ErrorCode::Network),
        ];
        for (answer, code) in answers {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (asked, security) = (HandshakeRequest::new("test"), security());
            let served = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut greeting = [0; 10];
                socket.read_exact(&mut greeting).await.unwrap();
                socket.write_all(answer).await.unwrap();
                socket.shutdown().await.unwrap();
                socket
            };
            let asking = connect(&address, &asked, &security, TIMEOUT);
            let (_socket, outcome) = tokio::join!(served, asking);
            let error = outcome.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(&address), "{error}");
        }
    });
}

#[test]
fn a_silent_stranger_keeps_nobody_waiting_and_is_sent_away() {
    run(async {
        let security = security().limits(quick());
        let (mut listener, address) = listener(security.clone()).await;
        let mut silent = TcpStream::connect(&address).await.unwrap();
        let courier = connect(&address, &HandshakeRequest::new("test"), &security, TIMEOUT).await;
        courier.unwrap();
        listener.accept().await.unwrap();
        assert_eq!(
            silent.read(&mut [0; 10]).await.unwrap(),
            0,
            "it is sent away"
        );
    });
}

#[test]
fn nobody_there_is_an_error_with_the_address() {
    run(async {
        let (listener, address) = listener(security()).await;
        drop(listener);
        let wait = async {
            loop {
                let outcome = connect(
                    &address,
                    &HandshakeRequest::new("test"),
                    &security(),
                    TIMEOUT,
                )
                .await;
                if let Err(error) = outcome {
                    break error;
                }
            }
        };
        let error = wait.await;
        assert_eq!(error.code(), ErrorCode::Network);
        assert!(error.to_string().contains(&address), "{error}");
    });
}

#[test]
fn without_proof_only_this_machine_is_listened_to() {
    run(async {
        let error = Listener::bind("0.0.0.0:0", Security::new("harbour"))
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
        Listener::bind("0.0.0.0:0", security()).await.unwrap();
    });
}

#[test]
fn a_message_that_is_too_long_ends_the_connection_with_an_error() {
    run(async {
        let (ours, theirs) = pair(&security().limits(quick())).await;
        let (mut sender, _keep) = ours.split();
        let (_keep_too, mut receiver) = theirs.split();
        sender.send(&vec![1_u8; 2000]).await.unwrap();
        let error = receiver.receive::<Vec<u8>>().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage, "{error}");
        assert!(error.to_string().contains("1000"), "{error}");
    });
}

#[test]
fn a_message_of_another_type_is_an_error_and_the_next_one_may_be_read() {
    run(async {
        let (ours, theirs) = pair(&security()).await;
        let (mut sender, _keep) = ours.split();
        let (_keep_too, mut receiver) = theirs.split();
        sender.send(&[255_u8; 30]).await.unwrap();
        sender.send("whole").await.unwrap();
        let error = receiver.receive::<String>().await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage, "{error}");
        assert_eq!(receiver.expect::<String>().await.unwrap(), "whole");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_stranger_sends_the_next_member_is_welcome(
        garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..8),
        looks_like_a_greeting in any::<bool>(),
    ) {
        run(async {
            let security = security().limits(quick());
            let (mut listener, address) = listener(security.clone()).await;
            for bytes in garbage {
                let mut socket = TcpStream::connect(&address).await.unwrap();
                let mut sent = bytes;
                if looks_like_a_greeting {
                    let length = (sent.len() as u32 + 6).to_le_bytes();
                    sent.splice(0..0, [&length[..], b"ARDC", &VERSION.to_le_bytes()].concat());
                }
                // The connection may have been closed already.
                let _ = socket.write_all(&sent).await;
            }
            let ours = connect(&address, &HandshakeRequest::new("test"), &security, TIMEOUT).await;
            let (mut sender, _keep) = ours.unwrap().split();
            let (_keep_too, mut receiver) = listener.accept().await.unwrap().split();
            sender.send(&1_u8).await.unwrap();
            assert_eq!(receiver.receive().await.unwrap(), Some(1_u8));
        });
    }
}
