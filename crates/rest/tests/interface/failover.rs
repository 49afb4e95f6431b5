//! Tests of clients whose host dies or hangs, or whose job changes its leader.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::testing::word_count;
use ardea_rest::{Client, ClusterError, OUTCOME_UNKNOWN, ParallelismUpdate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::fixture::{Served, loopback, serve, serve_word_count};

fn base_of(served: &Served) -> String {
    format!("http://{}", served.address)
}

/// Creates a client that starts with the first of these hosts, and discovers all of them.
fn finding(bases: &[String]) -> Client {
    let all = bases.to_vec();
    let client = Client::new(&bases[0], None).unwrap();
    client.discover_hosts(move || {
        let all = all.clone();
        async move { Ok(all) }
    })
}

/// Creates a listener that accepts connections but never responds, like a stopped process.
async fn hanging() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    (listener, base)
}

/// Responds to the next request, which must have the method `method`.
async fn answer(listener: &TcpListener, method: &str, answer: &str) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = [0; 4096];
    let read = stream.read(&mut request).await.unwrap();
    assert!(request[..read].starts_with(method.as_bytes()));
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// Runs a request with three hosts: the contacted one, the leader that hangs, and the next leader.
async fn while_the_leader_hangs<T>(ask: impl AsyncFnOnce(Client) -> T) -> (T, Served) {
    let (next, asked) = (serve_word_count().await, serve(loopback()).await);
    let (listener, hangs) = hanging().await;
    asked.cluster.set_leader_elsewhere("word-count", &hangs);
    let client = finding(&[base_of(&asked)]);
    let taking_over = async {
        let (stream, _) = listener.accept().await.unwrap();
        asked
            .cluster
            .set_leader_elsewhere("word-count", &base_of(&next));
        stream
    };
    let (answer, _held) = tokio::join!(ask(client), taking_over);
    (answer, next)
}

#[tokio::test]
async fn a_leader_that_answers_nothing_is_left_for_the_one_that_follows() {
    let ask = async |client: Client| client.describe("word-count").await;
    let (described, _next) = while_the_leader_hangs(ask).await;
    assert_eq!(described.unwrap().summary.name, "word-count");
}

#[tokio::test]
async fn a_change_that_may_be_done_twice_is_asked_for_again() {
    let parallelism = BTreeMap::from([("counts".to_string(), 3)]);
    let update = ParallelismUpdate { parallelism };
    let ask = async |client: Client| client.update("word-count", &update).await;
    let (updated, next) = while_the_leader_hangs(ask).await;
    updated.unwrap();
    assert_eq!(next.cluster.commands().len(), 1);
}

#[tokio::test]
async fn a_change_that_must_not_be_done_twice_is_told_to_be_doubtful() {
    let ask = async |client: Client| client.restart("word-count", ContainerId(1)).await;
    let (restarted, next) = while_the_leader_hangs(ask).await;
    let error = restarted.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Network);
    assert!(error.hint_text().unwrap().contains("may have been taken"));
    assert!(next.cluster.commands().is_empty());
}

/// Creates an address where connections hang, like a machine without power.
async fn out_of_reach() -> (TcpListener, Vec<TcpStream>, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    let connect = || timeout(Duration::from_millis(300), TcpStream::connect(address));
    while let Ok(connected) = connect().await {
        held.push(connected.unwrap());
    }
    (listener, held, format!("http://{address}"))
}

#[tokio::test]
async fn what_was_never_sent_is_not_told_to_be_doubtful() {
    let asked = serve(loopback()).await;
    let (_listener, _held, away) = out_of_reach().await;
    asked.cluster.set_leader_elsewhere("word-count", &away);
    let client = finding(&[base_of(&asked)]).retry_timeout(Duration::from_millis(1));
    let error = client.restart("word-count", ContainerId(1)).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    assert!(
        !error.to_string().contains("may have been taken"),
        "{error}"
    );
}

#[tokio::test]
async fn what_was_not_sent_before_patience_ended_is_not_told_to_be_doubtful() {
    let (_listener, _held, away) = out_of_reach().await;
    // The timeout is too short to detect that the host hangs.
    let client = Client::new(&away, None).unwrap();
    let client = client.timeout(Duration::from_millis(200));
    let error = client.restart("word-count", ContainerId(1)).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    assert!(error.message().contains("within 0.2 s"), "{error}");
    assert_eq!(error.hint_text(), Some("try again"));
}

#[tokio::test]
async fn what_was_sent_before_patience_ended_is_told_to_be_doubtful_unless_it_changes_nothing() {
    let (_listener, hangs) = hanging().await;
    let client = Client::new(&hangs, None).unwrap();
    let client = client.timeout(Duration::from_millis(200));
    let error = client.restart("word-count", ContainerId(1)).await;
    let error = error.unwrap_err();
    assert!(error.message().contains("within 0.2 s"), "{error}");
    assert_eq!(error.hint_text(), Some(OUTCOME_UNKNOWN));
    let error = client.describe("word-count").await.unwrap_err();
    assert_eq!(error.hint_text(), Some("try again"));
}

#[tokio::test]
async fn who_does_not_know_what_became_of_a_command_says_so_once_and_promises_nothing() {
    let (listener, base) = hanging().await;
    let client = Client::new(&base, None).unwrap();
    let promise = "the request is repeated to the new leader";
    for hint in [promise, OUTCOME_UNKNOWN] {
        let fault = format!(r#"{{"code": "ARD-607", "message": "lost", "hint": "{hint}"}}"#);
        let length = fault.len();
        let lost = format!("HTTP/1.1 503 X\r\ncontent-length: {length}\r\n\r\n{fault}");
        let restarting = client.restart("word-count", ContainerId(1));
        let (error, ()) = tokio::join!(restarting, answer(&listener, "POST", &lost));
        assert_eq!(error.unwrap_err().hint_text(), Some(OUTCOME_UNKNOWN));
    }
    let restarting = client.restart("word-count", ContainerId(1));
    let (error, ()) = tokio::join!(restarting, answer(&listener, "POST", ""));
    assert_eq!(error.unwrap_err().hint_text(), Some(OUTCOME_UNKNOWN));
}

#[tokio::test]
async fn a_submission_whose_answer_breaks_off_is_told_to_be_doubtful() {
    let (listener, base) = hanging().await;
    let client = Client::new(&base, None).unwrap();
    let request = word_count("pretended", "word-count", 42);
    let submitting = client.submit(&request);
    let half = "HTTP/1.1 201 X\r\ncontent-length: 100\r\n\r\n{";
    let (error, ()) = tokio::join!(submitting, answer(&listener, "POST", half));
    assert_eq!(error.unwrap_err().hint_text(), Some(OUTCOME_UNKNOWN));
}

#[tokio::test]
async fn a_host_that_is_gone_is_left_for_another_one() {
    let (gone, up) = (serve(loopback()).await, serve_word_count().await);
    let client = finding(&[base_of(&gone), base_of(&up)]);
    drop(gone);
    // The listener closes a moment after its task is aborted. Until then the host lists no jobs.
    while client.base() != base_of(&up) {
        client.list().await.unwrap();
    }
    client.restart("word-count", ContainerId(1)).await.unwrap();
}

#[tokio::test]
async fn that_no_host_is_up_is_told() {
    let nowhere = ["http://127.0.0.1:1", "http://127.0.0.1:2"].map(String::from);
    let error = finding(&nowhere).list().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Network);
    let told = error.to_string();
    assert!(told.contains("no host of the cluster answers"), "{told}");
}

#[tokio::test]
async fn a_job_that_changes_its_leader_is_asked_again() {
    let leader = serve_word_count().await;
    let (listener, base) = hanging().await;
    let fault = r#"{"code": "ARD-607", "message": "it leads the job no longer", "hint": null}"#;
    let superseded = format!(
        "HTTP/1.1 503 X\r\ncontent-length: {}\r\n\r\n{fault}",
        fault.len()
    );
    let elsewhere = format!(
        "HTTP/1.1 307 X\r\nlocation: {}/v1/jobs/word-count\r\ncontent-length: 0\r\n\r\n",
        base_of(&leader)
    );
    let host = tokio::spawn(async move {
        for answer in [&superseded, &superseded, &elsewhere] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let described = finding(&[base]).describe("word-count").await.unwrap();
    assert_eq!(described.summary.name, "word-count");
    host.await.unwrap();
}

#[tokio::test]
async fn who_is_told_to_ask_again_does_so_also_for_what_must_not_be_done_twice() {
    let served = serve_word_count().await;
    served.cluster.fail_without_leader("word-count", 1);
    let restart = "POST /v1/jobs/word-count/containers/1/restart HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = served.raw(restart.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    let client = served.client(None);
    for code in [ErrorCode::Superseded, ErrorCode::Network] {
        let not_yet = ClusterError::RetryLater(Error::new(code, "its host is just starting"));
        served.cluster.refuse("word-count", 1, not_yet);
        client.restart("word-count", ContainerId(1)).await.unwrap();
    }
    let once = "restart word-count 1";
    assert_eq!(served.cluster.commands(), [once, once]);
}

#[tokio::test]
async fn a_host_is_not_asked_again_before_it_wants_to_be_unless_patience_ends() {
    let (listener, base) = hanging().await;
    let fault = r#"{"code": "ARD-607", "message": "it is busy", "hint": null}"#;
    let tomorrow = format!(
        "HTTP/1.1 503 X\r\nretry-after: 86400\r\ncontent-length: {}\r\n\r\n{fault}",
        fault.len()
    );
    let patience = Duration::from_secs(1);
    let client = Client::new(&base, None).unwrap().retry_timeout(patience);
    let asking = async { client.restart("word-count", ContainerId(1)).await };
    let mut asked = 0;
    let answering = async {
        loop {
            answer(&listener, "POST", &tomorrow).await;
            asked += 1;
        }
    };
    let error = tokio::select! {
        answer = asking => answer.unwrap_err(),
        () = answering => unreachable!(),
    };
    assert_eq!(error.message(), "it is busy");
    assert!(asked <= 2, "asked {asked} times");
}

#[tokio::test]
async fn a_kill_of_which_nobody_says_whether_it_was_taken_is_asked_for_again() {
    let (listener, base) = hanging().await;
    let fault = r#"{"code": "ARD-604", "message": "there is no job", "hint": null}"#;
    let gone = format!(
        "HTTP/1.1 404 X\r\ncontent-length: {}\r\n\r\n{fault}",
        fault.len()
    );
    let client = finding(&[base]);
    let answering = async {
        answer(&listener, "DELETE", "").await;
        answer(&listener, "DELETE", &gone).await;
        answer(&listener, "DELETE", &gone).await;
    };
    let killing = async {
        client.kill_submission("words", "2a").await.unwrap();
        // This time the job had ended before.
        client.kill_submission("words", "2a").await.unwrap_err()
    };
    let (error, ()) = tokio::join!(killing, answering);
    assert_eq!(error.code(), ErrorCode::NoSuchJob);
}

#[tokio::test]
async fn a_later_job_of_the_name_is_not_killed() {
    let served = serve_word_count().await;
    let client = served.client(None);
    let error = client.kill_submission("word-count", "29").await;
    assert_eq!(error.unwrap_err().code(), ErrorCode::NoSuchJob);
    assert_eq!(client.list().await.unwrap().len(), 1);
    client.kill_submission("word-count", "2a").await.unwrap();
    assert!(client.list().await.unwrap().is_empty());
}
