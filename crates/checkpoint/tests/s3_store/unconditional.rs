//! Tests with object stores without conditional writes: small HTTP servers with objects in memory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ardea_checkpoint::s3::{Credentials, S3Store};
use ardea_checkpoint::store::{FileName, FileState, ObjectStore};
use ardea_core::ErrorCode;

/// The way in which a store handles the condition `If-None-Match`.
#[derive(Clone, Copy)]
enum Condition {
    Kept,
    PassedOver,
    NotImplemented,
    /// Existing objects are never overwritten, regardless of the condition.
    Forbidden,
}

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server that runs until the test ends.
struct Store {
    address: String,
    objects: Objects,
}

impl Store {
    fn start(condition: Condition) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let objects = Objects::default();
        let kept = Arc::clone(&objects);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(&stream, condition, &kept));
            }
        });
        Store { address, objects }
    }

    fn open(&self) -> S3Store {
        let credentials = Credentials {
            access_key: "somebody".into(),
            secret_key: "a secret".into(),
        };
        let address = format!(
            "s3://states/job?endpoint=http://{}&region=here",
            self.address
        );
        S3Store::open_as(&address, &credentials).unwrap()
    }
}

/// Answers the requests of a connection, one after the other.
fn serve(stream: &TcpStream, condition: Condition, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_string()),
            }
        }
        let header = |name: &str| {
            head.iter().skip(1).find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_string())
            })
        };
        let length = header("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let mut words = head.first()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (status, body) = answer(
            (method, target),
            body,
            header("if-none-match").is_some(),
            condition,
            objects,
        );
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            body.len()
        );
        let mut writer = stream;
        writer.write_all(head.as_bytes()).ok()?;
        writer.write_all(&body).ok()?;
    }
}

fn answer(
    (method, target): (&str, &str),
    body: Vec<u8>,
    has_condition: bool,
    condition: Condition,
    objects: &Objects,
) -> (&'static str, Vec<u8>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut objects = objects.lock().unwrap();
    match method {
        "PUT" => match condition {
            Condition::NotImplemented if has_condition => (
                "501 Not Implemented",
                b"<Error><Code>NotImplemented</Code></Error>".to_vec(),
            ),
            Condition::Kept if has_condition && objects.contains_key(path) => {
                ("412 Precondition Failed", Vec::new())
            }
            Condition::Forbidden if objects.contains_key(path) => ("403 Forbidden", Vec::new()),
            _ => {
                objects.insert(path.to_string(), body);
                ("200 OK", Vec::new())
            }
        },
        "GET" if query.contains("list-type") => (
            "200 OK",
            b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>".to_vec(),
        ),
        "GET" => match objects.get(path) {
            Some(object) => ("200 OK", object.clone()),
            None => ("404 Not Found", Vec::new()),
        },
        // Deletes several objects, named in an XML document.
        "POST" => {
            let body = String::from_utf8_lossy(&body);
            let named = body.split("<Key>").skip(1);
            let mut deleted = String::new();
            for key in named.filter_map(|rest| rest.split("</Key>").next()) {
                objects.remove(&format!("/states/{key}"));
                deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
            (
                "200 OK",
                format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes(),
            )
        }
        _ => {
            objects.remove(path);
            ("204 No Content", Vec::new())
        }
    }
}

#[test]
fn a_store_that_passes_over_conditions_is_refused_with_the_reason_and_nothing_is_left() {
    let store = Store::start(Condition::PassedOver);
    let folder = store.open();
    let error = folder.probe().unwrap_err();
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable);
    let text = error.to_string();
    assert!(
        text.contains("s3://states/job") && text.contains("If-None-Match"),
        "{text}"
    );
    assert!(store.objects.lock().unwrap().is_empty());
}

#[test]
fn a_store_that_does_not_implement_conditions_is_refused_with_the_reason() {
    let store = Store::start(Condition::NotImplemented);
    let error = store.open().probe().unwrap_err();
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
}

#[test]
fn a_write_that_fails_for_another_reason_is_no_kept_condition() {
    let store = Store::start(Condition::Forbidden);
    let error = store.open().probe().unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    assert!(store.objects.lock().unwrap().is_empty());
}

#[test]
fn a_store_that_keeps_conditions_is_taken_and_nothing_is_left() {
    let store = Store::start(Condition::Kept);
    let folder = store.open();
    folder.probe().unwrap();
    assert!(store.objects.lock().unwrap().is_empty());
    let name = FileName::new("a").unwrap();
    folder.write(&name, b"x").unwrap();
    assert!(folder.write(&name, b"y").is_err());
    folder.remove(&[(name, FileState::Whole)]).unwrap();
}
