//! Schema registries with the REST interface of Confluent's: settings, a client, and the header of
//! messages.

pub(super) mod cache;
mod client;
mod requests;
pub(super) mod wire;

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::kafka::security::Secret;
pub(super) use client::{RegistryAnswer, RegistryClient, RegistryRequest};
pub(super) use requests::{RegisteredSchema, SchemaKind};

/// The address of a schema registry, and how to authenticate there.
///
/// The source and the sink wait for a registry that does not answer, and report the beginning and
/// the end of an outage on standard error. [`give_up_after`](Self::give_up_after) limits the wait.
///
/// ```
/// use ardea_connectors::kafka::SchemaRegistry;
///
/// let registry = SchemaRegistry::at("http://localhost:8081").basic_auth("job", "job-secret");
/// assert!(!format!("{registry:?}").contains("job-secret"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaRegistry {
    url: String,
    credentials: Credentials,
    give_up_after: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Credentials {
    None,
    Basic { user: String, password: Secret },
    Bearer(Secret),
}

impl SchemaRegistry {
    /// Sets the URL, such as `http://localhost:8081`. Certificates of `https` are verified with the
    /// system's authorities.
    pub fn at(url: impl Into<String>) -> Self {
        SchemaRegistry {
            url: url.into(),
            credentials: Credentials::None,
            give_up_after: None,
        }
    }

    /// Authenticates with a user and a password.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Credentials::Basic {
            user: user.into(),
            password: Secret::new(password),
        };
        self
    }

    /// Authenticates with a token.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Credentials::Bearer(Secret::new(token));
        self
    }

    /// Fails the job if the registry has not answered a request for this long. By default the job
    /// waits.
    pub fn give_up_after(mut self, limit: Duration) -> Self {
        self.give_up_after = Some(limit);
        self
    }

    /// Returns the URL of a path, whose segments are encoded.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the URL of the registry is malformed or has credentials.
    fn url_of(&self, segments: &[&str]) -> Result<reqwest::Url> {
        let invalid = |why: String| {
            // The URL is not repeated, since it may contain a password.
            Error::new(
                ErrorCode::InvalidConfig,
                "the URL of the schema registry is invalid",
            )
            .because(why)
            .hint(
                "write it as http://HOST:PORT or https://HOST, and set a password with basic_auth",
            )
        };
        let mut url = reqwest::Url::parse(&self.url).map_err(|error| invalid(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it holds credentials".to_string()));
        }
        let Ok(mut path) = url.path_segments_mut() else {
            return Err(invalid("it has no host".to_string()));
        };
        path.pop_if_empty().extend(segments);
        drop(path);
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded_and_follow_the_path_of_the_registry() {
        let registry = SchemaRegistry::at("https://host/registry/");
        let url = registry.url_of(&["subjects", "a/b c"]).unwrap();
        assert_eq!(url.as_str(), "https://host/registry/subjects/a%2Fb%20c");
        for wrong in ["host:80", "mailto:x", "http://me:secret@host"] {
            let error = SchemaRegistry::at(wrong).url_of(&[]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
