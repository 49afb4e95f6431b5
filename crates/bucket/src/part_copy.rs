//! Copies of objects as parts of an upload, within the store.

use std::error::Error as StdError;
use std::time::Duration;

use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{Error as StoreError, HeaderValue, Result};

/// The header with the object to copy.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// The validity of the signature from which the address of an object is taken.
const SIGNATURE_VALIDITY: Duration = Duration::from_secs(60);

/// A maker of requests that copy an object into an upload.
#[derive(Debug)]
pub(crate) struct PartCopier {
    pub(crate) http: HttpClient,
    pub(crate) region: String,
    pub(crate) bucket: String,
}

impl PartCopier {
    /// Makes the object `from` the part at `index` of an upload to the object `to`.
    pub(crate) async fn copy(
        &self,
        store: &AmazonS3,
        from: &Path,
        (to, upload, index): (&Path, &str, usize),
    ) -> Result<PartId> {
        let put = || "PUT".parse().map_err(invalid);
        // The address at which the client finds the object, without the signature.
        let mut url = store.signed_url(put()?, to, SIGNATURE_VALIDITY).await?;
        url.set_query(None);
        url.query_pairs_mut()
            .append_pair("partNumber", &(index + 1).to_string())
            .append_pair("uploadId", upload);
        let source = format!("{}/{}", self.bucket, percent_encoded(from.as_ref()));
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = put()?;
        *request.uri_mut() = url.as_str().parse().map_err(invalid)?;
        let source = HeaderValue::from_str(&source).map_err(invalid)?;
        request.headers_mut().insert(COPY_SOURCE, source);
        let credential = store.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).authorize(&mut request, None);
        let (head, body) = self
            .http
            .execute(request)
            .await
            .map_err(invalid)?
            .into_parts();
        let body = body.bytes().await.map_err(invalid)?;
        let body = String::from_utf8_lossy(&body);
        let status = head.status.as_u16();
        match tag_of(&body) {
            Some(content_id) if head.status.is_success() => Ok(PartId { content_id }),
            _ if status == 404 => Err(StoreError::NotFound {
                path: from.to_string(),
                source: body.into(),
            }),
            // An error may come after the status 200, and may then be repeated.
            _ => Err(invalid(format!("status code: {status}: {body}"))),
        }
    }
}

fn invalid(source: impl Into<Box<dyn StdError + Send + Sync>>) -> StoreError {
    StoreError::Generic {
        store: "S3",
        source: source.into(),
    }
}

/// Returns the entity tag in the answer to a copy.
fn tag_of(answer: &str) -> Option<String> {
    let (_, rest) = answer.split_once("<ETag>")?;
    let (tag, _) = rest.split_once("</ETag>")?;
    Some(tag.replace("&quot;", "\"").replace("&#34;", "\""))
}

/// Encodes the key of an object for a header. Slashes stay.
fn percent_encoded(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_part_is_read_with_its_quotes() {
        let answer = |tag: &str| format!("<CopyPartResult><ETag>{tag}</ETag></CopyPartResult>");
        for tag in ["&quot;ab&quot;", "&#34;ab&#34;", "\"ab\""] {
            assert_eq!(tag_of(&answer(tag)).as_deref(), Some("\"ab\""));
        }
        assert_eq!(tag_of("<Error><Code>SlowDown</Code></Error>"), None);
    }

    #[test]
    fn a_key_is_encoded_and_its_slashes_stay() {
        assert_eq!(percent_encoded("a b/ü+~.txt"), "a%20b/%C3%BC%2B~.txt");
    }
}
