//! Addresses of buckets, and clients for the addressed object stores.

use std::fmt;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::client::{HttpConnector, ReqwestConnector};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use url::Url;

use crate::part_copy::PartCopier;

const SCHEME: &str = "s3://";
/// The region of a client without one.
const DEFAULT_REGION: &str = "us-east-1";
/// The timeout of a request.
const REQUEST: Duration = Duration::from_secs(30);
/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// The number of retries that fit into [`RETRY_TIMEOUT`] at the shortest delays.
const MAX_RETRIES: usize = 200;
/// The time limit for all retries of a request together.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns true if `place` is a bucket address and not a path.
pub fn is_address(place: &str) -> bool {
    place.starts_with(SCHEME)
}

/// Checks the syntax of a bucket address. Does not contact the store.
///
/// # Errors
/// `InvalidConfig` if the address is malformed or contains credentials.
pub fn check_address(address: &str) -> Result<()> {
    BucketPrefix::parse(address).map(drop)
}

/// An access key with its secret. Never displayed.
#[derive(Clone)]
pub struct Credentials {
    /// The value for `AWS_ACCESS_KEY_ID`.
    pub access_key: String,
    /// The value for `AWS_SECRET_ACCESS_KEY`.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A prefix in a bucket, with the parts of its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketPrefix {
    /// The name of the bucket.
    pub bucket: String,
    /// The prefix, without a slash at its ends.
    pub prefix: Path,
    endpoint: Option<String>,
    region: Option<String>,
}

impl BucketPrefix {
    /// Parses an address.
    ///
    /// # Errors
    /// `InvalidConfig` if the address is malformed or contains credentials.
    pub fn parse(address: &str) -> Result<BucketPrefix> {
        let url = Url::parse(address).map_err(|error| senseless(address, error.to_string()))?;
        let bucket = url.host_str().unwrap_or_default().to_string();
        if url.scheme() != "s3" || bucket.is_empty() {
            return Err(senseless(address, "it does not begin with s3://BUCKET"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // The message does not repeat the credentials, since it may be logged.
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
        Ok(BucketPrefix {
            bucket,
            prefix,
            endpoint,
            region,
        })
    }

    /// Returns the address without endpoint and region.
    pub fn place(&self) -> String {
        match self.prefix.as_ref() {
            "" => format!("{SCHEME}{}", self.bucket),
            prefix => format!("{SCHEME}{}/{prefix}", self.bucket),
        }
    }

    /// Returns the parameters of the address, endpoint and region, with a question mark before
    /// them. The text is empty without parameters.
    pub fn parameters(&self) -> String {
        let values = [("endpoint", &self.endpoint), ("region", &self.region)];
        let mut text = String::new();
        for (name, value) in values {
            if let Some(value) = value {
                let separator = if text.is_empty() { '?' } else { '&' };
                let encoded: String =
                    url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
                text.push_str(&format!("{separator}{name}={encoded}"));
            }
        }
        text
    }

    /// Creates a client with these `credentials`, or with those of the environment if `None`, and a
    /// maker of copies within uploads.
    ///
    /// # Errors
    /// `InvalidConfig` if the client's configuration is invalid.
    pub(crate) fn client(
        &self,
        credentials: Option<&Credentials>,
    ) -> Result<(AmazonS3, PartCopier)> {
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
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        let invalid = |error: object_store::Error| {
            senseless(&format!("{SCHEME}{}", self.bucket), error.to_string())
        };
        let copier = PartCopier {
            http: ReqwestConnector::default()
                .connect(&options)
                .map_err(invalid)?,
            region: region.unwrap_or_else(|| DEFAULT_REGION.to_string()),
            bucket: self.bucket.clone(),
        };
        let client = builder
            .with_client_options(options)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(4),
                    base: 2.0,
                },
                // The delays are random and may all be short: the time is the limit.
                max_retries: MAX_RETRIES,
                retry_timeout: RETRY_TIMEOUT,
            })
            .build();
        Ok((client.map_err(invalid)?, copier))
    }
}

fn senseless(address: &str, why: impl Into<String>) -> Error {
    let what = format!("the address {address} of an object store is invalid");
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
        let place = BucketPrefix::parse("s3://states/a/b?endpoint=http://h:9000&region=r").unwrap();
        assert_eq!(
            (&place.bucket[..], place.prefix.as_ref()),
            ("states", "a/b")
        );
        assert_eq!(place.endpoint.as_deref(), Some("http://h:9000"));
        assert_eq!(place.region.as_deref(), Some("r"));
        assert_eq!(
            BucketPrefix::parse("s3://states").unwrap().prefix.as_ref(),
            ""
        );
        assert!(is_address("s3://states") && !is_address("states/s3"));
    }

    #[test]
    fn what_is_none_is_refused_and_credentials_are_not_repeated() {
        for wrong in ["s3://", "http://states/a", "s3://b/a?colour=red"] {
            let error = BucketPrefix::parse(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
        }
        let error = BucketPrefix::parse("s3://me:secret@states/a").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
