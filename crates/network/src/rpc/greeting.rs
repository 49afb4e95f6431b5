//! Who is there: the first frame in both directions.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::rpc::frame::{Cutter, Encoded, LENGTH_BYTES, decode};
use crate::rpc::security::Security;

/// The version of what couriers say to each other before messages flow.
pub const VERSION: u16 = 2;

/// What a first frame begins with, before the version.
const LETTERS: [u8; 4] = *b"ARDC";

/// Letters and version, in bytes: the part that no version changes.
const FIXED_BYTES: usize = 6;

/// How much of a peer's reason is shown, in letters.
const MOST_REASON: usize = 300;

/// Who speaks, and what for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// The job that it speaks of, if it speaks of one: as its processes write it, with the submission.
    pub job: Option<String>,
    /// Whom it wants to speak to, if only that one will do: an address may be somebody else's meanwhile. Who listens there says in its
    /// [admission](crate::rpc::Listener::bind_for) who it is.
    pub whom: Option<String>,
    /// What it wants, such as `worker 3.1 to its master`.
    pub purpose: String,
}

impl Greeting {
    /// Somebody who wants this, and speaks of no job.
    pub fn new(purpose: impl Into<String>) -> Self {
        Greeting {
            job: None,
            whom: None,
            purpose: purpose.into(),
        }
    }

    /// The same, speaking of this job.
    pub fn of_job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// The same, for nobody but this one.
    pub fn for_whom(mut self, whom: impl Into<String>) -> Self {
        self.whom = Some(whom.into());
        self
    }
}

/// What whoever connected says first.
#[derive(Serialize, Deserialize)]
struct Hello {
    cluster: String,
    token: Option<String>,
    greeting: Greeting,
}

/// What a listener says to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Welcome,
    Refused(Reason, String),
}

/// Why somebody was refused, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Reason {
    Unreadable,
    Version,
    Cluster,
    Secret,
    Unwanted,
}

/// The first frame of whoever connects.
pub(crate) fn hello(greeting: &Greeting, security: &Security) -> Result<Encoded> {
    first_frame(&Hello {
        cluster: security.cluster.to_string(),
        token: security
            .token
            .as_ref()
            .map(|token| token.secret().to_owned()),
        greeting: greeting.clone(),
    })
}

/// The first frame of a listener.
pub(crate) fn answer(answer: &Answer) -> Result<Encoded> {
    first_frame(answer)
}

fn first_frame(body: &impl Serialize) -> Result<Encoded> {
    let mut bytes = vec![0; LENGTH_BYTES];
    bytes.extend(LETTERS);
    bytes.extend(VERSION.to_le_bytes());
    let bytes = postcard::to_extend(body, bytes).map_err(|error| {
        Error::new(ErrorCode::Internal, "a greeting can't be encoded").because(error)
    })?;
    Encoded::framed(bytes)
}

/// What is behind letters and version; the version if it is another one; nothing if this is no first frame.
enum Opened<'a> {
    Body(&'a [u8]),
    Version(u16),
    Garbage,
}

fn open(frame: &[u8]) -> Opened<'_> {
    let Some((fixed, body)) = frame.split_first_chunk::<FIXED_BYTES>() else {
        return Opened::Garbage;
    };
    let [a, b, c, d, low, high] = *fixed;
    match u16::from_le_bytes([low, high]) {
        _ if [a, b, c, d] != LETTERS => Opened::Garbage,
        VERSION => Opened::Body(body),
        version => Opened::Version(version),
    }
}

/// Judges the first frame of a stranger, as a listener of this cluster.
pub(crate) fn judge(frame: &[u8], security: &Security) -> Result<Greeting, Answer> {
    let refused = |reason, text: String| Err(Answer::Refused(reason, text));
    let body = match open(frame) {
        Opened::Body(body) => body,
        Opened::Version(version) => {
            return refused(
                Reason::Version,
                format!(
                    "it speaks version {version} of the protocol between processes, and this cluster version {VERSION}"
                ),
            );
        }
        Opened::Garbage => return refused(Reason::Unreadable, "that is no greeting".into()),
    };
    let Ok(hello) = decode::<Hello>(body, "it") else {
        return refused(Reason::Unreadable, "its greeting can't be read".into());
    };
    match (&security.token, &hello.token) {
        (None, None) => {}
        (Some(ours), Some(theirs)) if ours.is(theirs) => {}
        (Some(_), Some(_)) => {
            return refused(
                Reason::Secret,
                "its token is not that of this cluster".into(),
            );
        }
        (Some(_), None) => {
            return refused(
                Reason::Secret,
                "it has no token, and this cluster asks for one".into(),
            );
        }
        (None, Some(_)) => {
            return refused(
                Reason::Secret,
                "it has a token, and this cluster has none".into(),
            );
        }
    }
    if hello.cluster != *security.cluster {
        return refused(
            Reason::Cluster,
            format!(
                "it belongs to the cluster {:?}, and this is {:?}",
                hello.cluster, security.cluster
            ),
        );
    }
    Ok(hello.greeting)
}

/// Reads a listener's answer.
pub(crate) async fn read_answer(
    cutter: &mut Cutter,
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
        .hint("does a process of the cluster listen at this address?"));
    };
    let body = match open(frame) {
        Opened::Body(body) => body,
        Opened::Version(version) => {
            return Err(Error::new(
                ErrorCode::VersionMismatch,
                format!(
                    "{peer} speaks version {version} of the protocol between processes, and this process version {VERSION}"
                ),
            )
            .hint("run the same version of ardea in all processes of the cluster"));
        }
        Opened::Garbage => {
            return Err(Error::new(
                ErrorCode::BadMessage,
                format!("{peer} is no process of a cluster: it answers something else"),
            )
            .hint("check the address"));
        }
    };
    match decode::<Answer>(body, peer)? {
        Answer::Welcome => Ok(()),
        Answer::Refused(reason, text) => Err(told(peer, reason, &text)),
    }
}

/// What a refused process tells its user.
fn told(peer: &str, reason: Reason, text: &str) -> Error {
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
            (ErrorCode::Refused, "look at the log of that process")
        }
    };
    let text = shown(text);
    Error::new(code, format!("{peer} refused this process: {text}")).hint(hint)
}

/// A stranger's words, made safe for a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .take(MOST_REASON)
        .map(|letter| if letter.is_control() { '�' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Token;
    use proptest::prelude::*;

    fn body(encoded: &Encoded) -> Vec<u8> {
        encoded.bytes()[LENGTH_BYTES..].to_vec()
    }

    fn judged(theirs: &Security, ours: &Security) -> Result<Greeting, Answer> {
        let greeting = Greeting::new("to be let in").of_job("word-count");
        judge(&body(&hello(&greeting, theirs).unwrap()), ours)
    }

    fn reason(judged: Result<Greeting, Answer>) -> (Reason, String) {
        match judged {
            Err(Answer::Refused(reason, text)) => (reason, text),
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
        // Who doesn't know the secret doesn't learn the cluster's name either.
        let stranger = Security::new("airport").token(Some(Token::new("barley")));
        let (why, text) = reason(judged(&stranger, &secret));
        assert_eq!(why, Reason::Secret);
        assert!(!text.contains("harbour"), "{text}");
    }

    #[test]
    fn another_version_is_told_whatever_follows() {
        let mut bytes = LETTERS.to_vec();
        bytes.extend([9, 0, 255, 255]);
        let (why, text) = reason(judge(&bytes, &Security::new("harbour")));
        assert_eq!(why, Reason::Version);
        assert!(
            text.contains("version 9") && text.contains(&format!("version {VERSION}")),
            "{text}"
        );
    }

    #[test]
    fn a_refusal_can_not_write_to_the_terminal() {
        let error = told("10.0.0.7:7", Reason::Unwanted, "no\x1b[2J way");
        assert!(error.to_string().contains("no�[2J way"), "{error}");
    }

    proptest! {
        #[test]
        fn any_greeting_is_judged_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            version in 0_u16..3,
        ) {
            let security = Security::new("harbour");
            let _ = judge(&bytes, &security);
            let mut framed = LETTERS.to_vec();
            framed.extend(version.to_le_bytes());
            framed.extend(bytes);
            let _ = judge(&framed, &security);
        }
    }
}
