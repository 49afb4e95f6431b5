//! Where a bucket is.

use std::fmt;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use url::Url;

/// What an address begins with.
const SCHEME: &str = "s3://";
/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a request is made again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether this is the address of a bucket, and not the path of a folder.
pub fn is_address(place: &str) -> bool {
    place.starts_with(SCHEME)
}

/// Refuses what is no address of a part of a bucket; asks no store.
///
/// # Errors
/// `InvalidConfig`.
pub fn check_address(address: &str) -> Result<()> {
    Place::parse(address).map(drop)
}

/// A key of a store, and the secret that belongs to it. Never shown.
#[derive(Clone)]
pub struct Credentials {
    /// As `AWS_ACCESS_KEY_ID` would have it.
    pub access_key: String,
    /// As `AWS_SECRET_ACCESS_KEY` would have it.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A part of a bucket.
#[derive(Debug)]
pub(crate) struct Place {
    pub bucket: String,
    pub prefix: Path,
    endpoint: Option<String>,
    region: Option<String>,
}

impl Place {
    /// Makes sense of an address.
    ///
    /// # Errors
    /// `InvalidConfig`.
    pub fn parse(address: &str) -> Result<Place> {
        let url = Url::parse(address).map_err(|error| senseless(address, error.to_string()))?;
        let bucket = url.host_str().unwrap_or_default().to_string();
        if url.scheme() != "s3" || bucket.is_empty() {
            return Err(senseless(address, "it does not begin with s3://BUCKET"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // It is not repeated: somebody may read it.
            return Err(senseless("s3://…", "it holds credentials"));
        }
        let prefix = Path::from_url_path(url.path())
            .map_err(|error| senseless(address, error.to_string()))?;
        let (mut endpoint, mut region) = (None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "endpoint" => endpoint = Some(value.into_owned()),
                "region" => region = Some(value.into_owned()),
                other => {
                    let why = format!("{other:?} is neither endpoint nor region");
                    return Err(senseless(address, why));
                }
            }
        }
        Ok(Place {
            bucket,
            prefix,
            endpoint,
            region,
        })
    }

    /// A client for it, with these credentials, or those of the environment.
    ///
    /// # Errors
    /// `InvalidConfig`.
    pub fn client(&self, credentials: Option<&Credentials>) -> Result<AmazonS3> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
        if let Some(credentials) = credentials {
            builder = builder
                .with_access_key_id(&credentials.access_key)
                .with_secret_access_key(&credentials.secret_key);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let from_environment = std::env::var("AWS_ENDPOINT_URL").ok();
        let endpoint = self.endpoint.as_ref().or(from_environment.as_ref());
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let options = ClientOptions::new()
            .with_timeout(REQUEST)
            .with_connect_timeout(CONNECT)
            .with_allow_http(is_plain);
        builder
            .with_client_options(options)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(4),
                    base: 2.0,
                },
                max_retries: 12,
                retry_timeout: PATIENCE,
            })
            .build()
            .map_err(|error| senseless(&format!("{SCHEME}{}", self.bucket), error.to_string()))
    }
}

fn senseless(address: &str, why: impl Into<String>) -> Error {
    let what = format!("the address {address} of an object store makes no sense");
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why.into())
        .hint(
            "write it as s3://BUCKET/PREFIX, with ?endpoint=http://host:port behind it where the store is not Amazon's; credentials are those of \
             the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_bucket_prefix_and_endpoint() {
        let place = Place::parse("s3://states/a/b?endpoint=http://h:9000&region=r").unwrap();
        assert_eq!(
            (&place.bucket[..], place.prefix.as_ref()),
            ("states", "a/b")
        );
        assert_eq!(place.endpoint.as_deref(), Some("http://h:9000"));
        assert_eq!(place.region.as_deref(), Some("r"));
        assert_eq!(Place::parse("s3://states").unwrap().prefix.as_ref(), "");
        assert!(is_address("s3://states") && !is_address("states/s3"));
    }

    #[test]
    fn what_is_none_is_refused_and_credentials_are_not_repeated() {
        for wrong in ["s3://", "http://states/a", "s3://b/a?colour=red"] {
            let error = Place::parse(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
        }
        let error = Place::parse("s3://me:secret@states/a").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
