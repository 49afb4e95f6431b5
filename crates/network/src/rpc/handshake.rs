//! The handshake: the first frame in both directions.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::admission::{MembershipError, admit, printable};
use crate::rpc::frame::{Encoded, FrameReader, LENGTH_BYTES, decode};
use crate::rpc::security::Security;

/// The version of the handshake, sent before any messages.
pub const VERSION: u16 = 2;

/// Magic bytes at the beginning of a handshake frame, before the version.
const MAGIC: [u8; 4] = *b"ARDC";

/// Size of magic bytes and version: the part that is the same in all versions.
const FIXED_BYTES: usize = 6;

/// The identity and the purpose of a connecting process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandshakeRequest {
    /// The job that the connection is about, if any: its name and submission, as written by the
    /// job's processes.
    pub job: Option<String>,
    /// The required recipient, if the address may have passed to another process. The listener
    /// compares it in its [admission](crate::rpc::Listener::bind_for) callback.
    pub whom: Option<String>,
    /// Purpose of the connection, such as `worker 3.1 to its master`.
    pub purpose: String,
}

impl HandshakeRequest {
    /// Creates a request with this purpose and no job.
    pub fn new(purpose: impl Into<String>) -> Self {
        HandshakeRequest {
            job: None,
            whom: None,
            purpose: purpose.into(),
        }
    }

    /// Sets the job.
    pub fn of_job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// Sets the required recipient.
    pub fn for_recipient(mut self, whom: impl Into<String>) -> Self {
        self.whom = Some(whom.into());
        self
    }
}

/// The first frame of the connecting side.
#[derive(Serialize, Deserialize)]
struct HandshakeFrame {
    cluster: String,
    token: Option<String>,
    greeting: HandshakeRequest,
}

/// The listener's response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum HandshakeResponse {
    Welcome,
    Refused(Reason, String),
}

/// The reason of a refusal, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Reason {
    Unreadable,
    Version,
    Cluster,
    Secret,
    Unwanted,
}

/// Encodes the first frame of the connecting side.
pub(crate) fn hello(greeting: &HandshakeRequest, security: &Security) -> Result<Encoded> {
    first_frame(&HandshakeFrame {
        cluster: security.cluster.to_string(),
        token: security
            .token
            .as_ref()
            .map(|token| token.secret().to_owned()),
        greeting: greeting.clone(),
    })
}

/// Encodes the first frame of the listener.
pub(crate) fn answer(answer: &HandshakeResponse) -> Result<Encoded> {
    first_frame(answer)
}

fn first_frame(body: &impl Serialize) -> Result<Encoded> {
    let mut bytes = vec![0; LENGTH_BYTES];
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    let bytes = postcard::to_extend(body, bytes).map_err(|error| {
        Error::new(ErrorCode::Internal, "a handshake frame can't be encoded").because(error)
    })?;
    Encoded::framed(bytes)
}

/// The result of checking magic bytes and version: the rest of the frame, another version, or
/// invalid bytes.
enum CheckedHeader<'a> {
    Body(&'a [u8]),
    Version(u16),
    Garbage,
}

fn open(frame: &[u8]) -> CheckedHeader<'_> {
    let Some((fixed, body)) = frame.split_first_chunk::<FIXED_BYTES>() else {
        return CheckedHeader::Garbage;
    };
    let [a, b, c, d, low, high] = *fixed;
    match u16::from_le_bytes([low, high]) {
        _ if [a, b, c, d] != MAGIC => CheckedHeader::Garbage,
        VERSION => CheckedHeader::Body(body),
        version => CheckedHeader::Version(version),
    }
}

/// Checks the first frame of a peer against this cluster's name, token and version.
pub(crate) fn check_request(
    frame: &[u8],
    security: &Security,
) -> Result<HandshakeRequest, HandshakeResponse> {
    let refused = |reason, text: String| Err(HandshakeResponse::Refused(reason, text));
    let body = match open(frame) {
        CheckedHeader::Body(body) => body,
        CheckedHeader::Version(version) => {
            return refused(
                Reason::Version,
                format!(
                    "it speaks version {version} of the protocol between processes, and this cluster version {VERSION}"
                ),
            );
        }
        CheckedHeader::Garbage => {
            return refused(Reason::Unreadable, "it sent no handshake request".into());
        }
    };
    let Ok(hello) = decode::<HandshakeFrame>(body, "it") else {
        return refused(
            Reason::Unreadable,
            "its handshake request can't be decoded".into(),
        );
    };
    let ours = (security.token.as_ref(), &*security.cluster);
    match admit(ours, (hello.token.as_deref(), &hello.cluster)) {
        Err(MembershipError::Token(text)) => return refused(Reason::Secret, text.into()),
        Err(MembershipError::Cluster(text)) => return refused(Reason::Cluster, text),
        Ok(()) => {}
    }
    Ok(hello.greeting)
}

/// Reads a listener's response.
pub(crate) async fn read_response(
    cutter: &mut FrameReader,
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    security: &Security,
    peer: &str,
) -> Result<()> {
    let most = security.limits.greeting_bytes;
    let Some(frame) = cutter.next(from, most, peer).await? else {
        return Err(Error::new(
            ErrorCode::Network,
            format!("{peer} closed the connection without an answer"),
        )
        .hint("check that a process of the cluster listens at this address"));
    };
    let body = match open(frame) {
        CheckedHeader::Body(body) => body,
        CheckedHeader::Version(version) => {
            return Err(Error::new(
                ErrorCode::VersionMismatch,
                format!(
                    "{peer} speaks version {version} of the protocol between processes, and this process version {VERSION}"
                ),
            )
            .hint("run the same version of ardea in all processes of the cluster"));
        }
        CheckedHeader::Garbage => {
            return Err(Error::new(
                ErrorCode::BadMessage,
                format!("{peer} is not a process of a cluster: its response is no handshake frame"),
            )
            .hint("check the address"));
        }
    };
    match decode::<HandshakeResponse>(body, peer)? {
        HandshakeResponse::Welcome => Ok(()),
        HandshakeResponse::Refused(reason, text) => Err(refusal_error(peer, reason, &text)),
    }
}

/// Creates the error that a refused process reports to its user.
fn refusal_error(peer: &str, reason: Reason, text: &str) -> Error {
    let (code, hint) = match reason {
        Reason::Version => (
            ErrorCode::VersionMismatch,
            "run the same version of ardea in all processes of the cluster",
        ),
        Reason::Cluster => (
            ErrorCode::WrongCluster,
            "check the address and the cluster's name",
        ),
        Reason::Secret => (ErrorCode::Refused, "check the cluster's token"),
        Reason::Unreadable | Reason::Unwanted => {
            (ErrorCode::Refused, "check the log of that process")
        }
    };
    let text = printable(text.as_bytes());
    Error::new(code, format!("{peer} refused this process: {text}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Token;
    use proptest::prelude::*;

    fn body(encoded: &Encoded) -> Vec<u8> {
        encoded.bytes()[LENGTH_BYTES..].to_vec()
    }

    fn judged(theirs: &Security, ours: &Security) -> Result<HandshakeRequest, HandshakeResponse> {
        let greeting = HandshakeRequest::new("to be let in").of_job("word-count");
        check_request(&body(&hello(&greeting, theirs).unwrap()), ours)
    }

    fn reason(judged: Result<HandshakeRequest, HandshakeResponse>) -> (Reason, String) {
        match judged {
            Err(HandshakeResponse::Refused(reason, text)) => (reason, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn members_of_a_cluster_greet_each_other() {
        let security = Security::new("harbour").token(Some(Token::new("sesame")));
        let greeting = judged(&security, &security).unwrap();
        assert_eq!(greeting.job.as_deref(), Some("word-count"));
    }

    #[test]
    fn every_refusal_says_its_reason() {
        let ours = Security::new("harbour");
        let secret = ours.clone().token(Some(Token::new("sesame")));
        let (why, text) = reason(judged(&Security::new("airport"), &ours));
        assert_eq!(why, Reason::Cluster);
        assert!(
            text.contains("airport") && text.contains("harbour"),
            "{text}"
        );
        for (theirs, ours) in [(&ours, &secret), (&secret, &ours)] {
            assert_eq!(reason(judged(theirs, ours)).0, Reason::Secret);
        }
        // A peer without the secret must not learn the cluster's name either.
        let stranger = Security::new("airport").token(Some(Token::new("barley")));
        let (why, text) = reason(judged(&stranger, &secret));
        assert_eq!(why, Reason::Secret);
        assert!(!text.contains("harbour"), "{text}");
    }

    #[test]
    fn another_version_is_told_whatever_follows() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([9, 0, 255, 255]);
        let (why, text) = reason(check_request(&bytes, &Security::new("harbour")));
        assert_eq!(why, Reason::Version);
        assert!(
            text.contains("version 9") && text.contains(&format!("version {VERSION}")),
            "{text}"
        );
    }

    #[test]
    fn a_refusal_can_not_write_to_the_terminal() {
        let error = refusal_error("10.0.0.7:7", Reason::Unwanted, "no\x1b[2J way");
        assert!(error.to_string().contains("no�[2J way"), "{error}");
    }

    proptest! {
        #[test]
        fn any_greeting_is_judged_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            version in 0_u16..3,
        ) {
            let security = Security::new("harbour");
            let _ = check_request(&bytes, &security);
            let mut framed = MAGIC.to_vec();
            framed.extend(version.to_le_bytes());
            framed.extend(bytes);
            let _ = check_request(&framed, &security);
        }
    }
}
