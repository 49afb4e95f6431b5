//! A small server with the REST interface of a schema registry, which has its schemas in memory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use ardea_connectors::kafka::SchemaRegistry;
use serde_json::{Value, json};

/// The token, or the password of any user, of a registry with credentials.
pub const TOKEN: &str = "registry-secret";

#[derive(Default)]
struct Content {
    /// The bodies of registered schemas, by id from one.
    schemas: Vec<Value>,
    /// The ids of the versions of each subject.
    subjects: BTreeMap<String, Vec<usize>>,
    is_away: bool,
    needs_token: bool,
    answered: u32,
    refused: u32,
}

/// A registry that runs until the test program ends.
pub struct Registry {
    address: String,
    content: Arc<Mutex<Content>>,
}

impl Registry {
    pub fn start() -> Registry {
        Registry::with(Content::default())
    }

    /// Starts a registry that needs credentials.
    pub fn with_token() -> Registry {
        Registry::with(Content {
            needs_token: true,
            ..Content::default()
        })
    }

    fn with(content: Content) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let content = Arc::new(Mutex::new(content));
        let served = Arc::clone(&content);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || while serve(&stream, &served).is_some() {});
            }
        });
        Registry { address, content }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self) -> SchemaRegistry {
        SchemaRegistry::at(self.url())
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("not poisoned")
    }

    /// Closes connections without an answer from now on.
    pub fn stop(&self) {
        self.lock().is_away = true;
    }

    /// Answers again.
    pub fn go_on(&self) {
        self.lock().is_away = false;
    }

    /// Returns the number of answered requests.
    pub fn requests(&self) -> u32 {
        self.lock().answered
    }

    /// Returns the number of requests without an answer.
    pub fn refused(&self) -> u32 {
        self.lock().refused
    }

    pub fn subjects(&self) -> Vec<String> {
        self.lock().subjects.keys().cloned().collect()
    }
}

/// Answers the next request of a connection; `None` at its end.
fn serve(mut stream: &TcpStream, content: &Mutex<Content>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|count| *count > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = value.to_string(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (status, answer) = {
        let mut content = content.lock().expect("not poisoned");
        if content.is_away {
            content.refused += 1;
            return None;
        }
        content.answered += 1;
        match content.needs_token && !is_known(&authorization) {
            true => (
                "401 Unauthorized",
                json!({"error_code": 401, "message": "Unauthorized"}),
            ),
            false => answer(&mut content, &method, &path, &body),
        }
    };
    let answer = answer.to_string();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    )
    .ok()
}

fn is_known(authorization: &str) -> bool {
    // `job:registry-secret` in base64.
    authorization == format!("Bearer {TOKEN}")
        || authorization == "Basic am9iOnJlZ2lzdHJ5LXNlY3JldA=="
}

fn answer(content: &mut Content, method: &str, path: &str, body: &[u8]) -> (&'static str, Value) {
    let missing = |code: u32, what: &str| {
        let answer = json!({"error_code": code, "message": format!("{what} not found")});
        ("404 Not Found", answer)
    };
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match (method, parts.as_slice()) {
        ("GET", ["schemas", "ids", id]) => {
            let id: usize = id.parse().unwrap_or(0);
            match id
                .checked_sub(1)
                .and_then(|index| content.schemas.get(index))
            {
                Some(schema) => ("200 OK", schema.clone()),
                None => missing(40403, "Schema"),
            }
        }
        ("POST", ["subjects", subject, rest @ ..]) => {
            let schema: Value = serde_json::from_slice(body).expect("JSON");
            let known = content.schemas.iter().position(|it| *it == schema);
            let id = match (known, rest) {
                (Some(index), _) => index + 1,
                (None, ["versions"]) => {
                    content.schemas.push(schema);
                    content.schemas.len()
                }
                (None, _) => return missing(40403, "Schema"),
            };
            let versions = content.subjects.entry(subject.to_string()).or_default();
            if !versions.contains(&id) {
                versions.push(id);
            }
            ("200 OK", json!({"id": id}))
        }
        _ => missing(404, "Path"),
    }
}
