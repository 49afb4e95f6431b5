//! The requests to a schema registry.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Credentials, SchemaRegistry};

/// The timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);

/// The type of the requests and answers.
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// The maximum number of schemas to which a schema refers, directly or not.
const MAX_REFERENCES: usize = 1000;

/// The language of a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaKind {
    Avro,
    Protobuf,
}

impl SchemaKind {
    /// Returns the name in requests and answers.
    pub fn name(self) -> &'static str {
        match self {
            SchemaKind::Avro => "AVRO",
            SchemaKind::Protobuf => "PROTOBUF",
        }
    }
}

/// A schema of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisteredSchema {
    /// The name of the language; Avro by default.
    pub kind: String,
    pub text: String,
    /// The names and texts of the schemas to which it refers, those without references first.
    pub references: Vec<(String, String)>,
}

/// An outcome of a request that is no error of the job.
pub enum RequestOutcome<T> {
    Done(T),
    /// The registry does not know the schema; contains its answer.
    Unknown(String),
    /// The registry does not answer, or cannot at present; contains the reason.
    Away(String),
}

#[derive(Deserialize)]
struct SchemaAnswer {
    schema: String,
    #[serde(rename = "schemaType", default)]
    kind: Option<String>,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Clone, Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

#[derive(Serialize)]
struct SchemaBody<'a> {
    schema: &'a str,
    #[serde(rename = "schemaType")]
    kind: &'a str,
}

#[derive(Deserialize)]
struct IdAnswer {
    id: u32,
}

/// The connections to a registry.
pub struct Requests {
    registry: SchemaRegistry,
    client: Client,
}

impl Requests {
    pub fn new(registry: SchemaRegistry) -> Result<Self> {
        // Fails early for a malformed URL.
        registry.url_of(&[])?;
        let client = Client::builder().timeout(REQUEST).connect_timeout(CONNECT);
        let client = client.build().map_err(|error| {
            Error::new(
                ErrorCode::InvalidConfig,
                "no client of a schema registry can be created",
            )
            .because(reason(&error))
        })?;
        Ok(Requests { registry, client })
    }

    /// Returns the schema with an id, and those to which it refers.
    pub async fn schema(&self, id: u32) -> Result<RequestOutcome<RegisteredSchema>> {
        let url = self.registry.url_of(&["schemas", "ids", &id.to_string()])?;
        let answer: SchemaAnswer = match self.send(self.client.get(url)).await? {
            RequestOutcome::Done(answer) => answer,
            RequestOutcome::Unknown(why) => return Ok(RequestOutcome::Unknown(why)),
            RequestOutcome::Away(why) => return Ok(RequestOutcome::Away(why)),
        };
        let mut schema = RegisteredSchema {
            kind: answer
                .kind
                .unwrap_or_else(|| SchemaKind::Avro.name().to_string()),
            text: answer.schema,
            references: Vec::new(),
        };
        let mut known = BTreeSet::new();
        let mut pending = answer.references;
        while let Some(reference) = pending.pop() {
            if !known.insert(reference.name.clone()) {
                continue;
            }
            if known.len() > MAX_REFERENCES {
                let why = format!("it refers to more than {MAX_REFERENCES} schemas");
                return Ok(RequestOutcome::Unknown(why));
            }
            let version = reference.version.to_string();
            let path = ["subjects", &reference.subject, "versions", &version];
            let url = self.registry.url_of(&path)?;
            let answer: SchemaAnswer = match self.send(self.client.get(url)).await? {
                RequestOutcome::Done(answer) => answer,
                RequestOutcome::Unknown(why) => return Ok(RequestOutcome::Unknown(why)),
                RequestOutcome::Away(why) => return Ok(RequestOutcome::Away(why)),
            };
            pending.extend(answer.references);
            schema.references.push((reference.name, answer.schema));
        }
        schema.references.reverse();
        Ok(RequestOutcome::Done(schema))
    }

    /// Returns the id of a schema of a subject. Registers the schema if `registers`; otherwise the
    /// subject must have it.
    pub async fn id_of(
        &self,
        subject: &str,
        (kind, text): (SchemaKind, &str),
        registers: bool,
    ) -> Result<RequestOutcome<u32>> {
        let path = ["subjects", subject, "versions"];
        let url = self
            .registry
            .url_of(&path[..if registers { 3 } else { 2 }])?;
        let body = SchemaBody {
            schema: text,
            kind: kind.name(),
        };
        let body = serde_json::to_vec(&body).map_err(|error| {
            Error::new(ErrorCode::Internal, "a request cannot be written").because(error)
        })?;
        let request = self.client.post(url).header("content-type", CONTENT_TYPE);
        let answer: RequestOutcome<IdAnswer> = self.send(request.body(body)).await?;
        Ok(match answer {
            RequestOutcome::Done(answer) => RequestOutcome::Done(answer.id),
            RequestOutcome::Unknown(why) => RequestOutcome::Unknown(why),
            RequestOutcome::Away(why) => RequestOutcome::Away(why),
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthorized`] if the registry refuses the credentials.
    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<RequestOutcome<T>> {
        let request = match &self.registry.credentials {
            Credentials::None => request,
            Credentials::Basic { user, password } => {
                request.basic_auth(user, Some(password.reveal()))
            }
            Credentials::Bearer(token) => request.bearer_auth(token.reveal()),
        };
        let response = match request.header("accept", CONTENT_TYPE).send().await {
            Ok(response) => response,
            Err(error) => return Ok(RequestOutcome::Away(reason(&error))),
        };
        let status = response.status();
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(error) => return Ok(RequestOutcome::Away(reason(&error))),
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(status)),
            status if status.is_success() => match serde_json::from_slice(&body) {
                Ok(answer) => Ok(RequestOutcome::Done(answer)),
                Err(error) => Ok(RequestOutcome::Away(format!(
                    "its answer is malformed: {error}"
                ))),
            },
            status if status.is_server_error() || is_temporary(status) => {
                Ok(RequestOutcome::Away(format!("it answers {status}")))
            }
            status => Ok(RequestOutcome::Unknown(told(status, &body))),
        }
    }

    fn refused(&self, status: StatusCode) -> Error {
        let what = format!("the schema registry {} denies access", self.registry.url);
        Error::new(ErrorCode::Unauthorized, what)
            .because(format!("it answers {status}"))
            .hint("check the user and the password, or the token, and its rights to the subjects")
            .permanent()
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    )
}

/// Returns the message of an answer that refuses a request.
fn told(status: StatusCode, body: &[u8]) -> String {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let message = answer.as_ref().and_then(|answer| answer.get("message"));
    match message.and_then(Value::as_str) {
        Some(message) => message.chars().take(400).collect(),
        None => format!("it answers {status}"),
    }
}

/// Returns the reason of a failed request, without its URL.
fn reason(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        // The outermost error contains the URL.
        text = error.to_string();
        cause = error.source();
    }
    text
}
