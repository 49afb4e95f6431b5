//! The handshake: the first frame in both directions.
//!
//! The connecting side sends its hello first. The listener answers with its own hello. It refuses
//! an unauthenticated peer, closes the connection, and reveals nothing about itself. A hello holds
//! the protocol version, the cluster name, the worker number, its incarnation, and the cluster
//! token if there is one. The token is sent in clear: between hosts whose traffic can be
//! intercepted the transport must use TLS.

use ardea_core::Token;

use crate::admission::{MembershipError, admit, printable};
use crate::exchange::frame::{Frame, Payload};
use crate::exchange::header::{Header, Kind};
use crate::exchange::ids::{StreamId, WorkerNumber};
use ardea_codec::{Wire, WireError};

/// The version of the protocol above frames.
pub const PROTOCOL_VERSION: u16 = 1;

/// Largest payload accepted before the handshake, in bytes: the initial limit for a custom
/// transport's [`Framed`](crate::exchange::Framed). The link raises the limit after the handshake.
pub const MAX_HELLO_BYTES: usize = 4096;

/// The identity that a worker presents in the handshake.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of the cluster.
    pub cluster: String,
    /// Number of the worker.
    pub worker: WorkerNumber,
    /// Number of this start of the worker: a greater number is a later start.
    pub incarnation: u64,
    /// The cluster's secret, if it has one.
    pub token: Option<Token>,
}

/// The identity of the peer after the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// Number of the worker.
    pub worker: WorkerNumber,
    /// Number of the start of that worker.
    pub incarnation: u64,
}

/// The role of a worker in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// This worker connected. It expects the given worker, or any worker if `None`.
    Connected(Option<WorkerNumber>),
    /// This worker listened.
    Accepted,
}

/// The result of checking a peer's first frame.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    /// The peer is accepted; a listener answers with `reply`.
    Welcome {
        peer: PeerIdentity,
        reply: Option<Frame>,
    },
    /// The peer is refused; `reply` reports the refusal to the peer.
    Refuse { reason: String, reply: Frame },
    /// The peer refused this worker.
    Refused { reason: String },
}

/// Version, worker, incarnation, cluster, token.
type Greeting = (u16, u64, u64, String, Option<String>);

/// Encodes the hello frame of this worker.
pub(crate) fn hello(identity: &Identity) -> Frame {
    let greeting: Greeting = (
        PROTOCOL_VERSION,
        identity.worker.0,
        identity.incarnation,
        identity.cluster.clone(),
        identity
            .token
            .as_ref()
            .map(|token| token.secret().to_owned()),
    );
    let mut bytes = Vec::new();
    greeting.put(&mut bytes);
    frame(Kind::Hello, &bytes)
}

/// Checks the first frame of a peer.
pub(crate) fn check_hello(identity: &Identity, side: Side, first: &Frame) -> Outcome {
    match first.header.kind {
        Kind::Refusal => Outcome::Refused {
            reason: printable(&first.payload),
        },
        Kind::Hello => match read(&first.payload)
            .map_err(unreadable)
            .and_then(|greeting| check(identity, side, greeting))
        {
            Ok(peer) => Outcome::Welcome {
                peer,
                reply: (side == Side::Accepted).then(|| hello(identity)),
            },
            Err(reason) => refuse(reason),
        },
        kind => refuse(format!("a {kind:?} frame came before any greeting")),
    }
}

/// Encodes the frame that reports a refusal and its reason to a peer.
pub(crate) fn refusal(reason: &str) -> Frame {
    frame(Kind::Refusal, reason.as_bytes())
}

fn refuse(reason: String) -> Outcome {
    Outcome::Refuse {
        reply: refusal(&reason),
        reason,
    }
}

fn unreadable(error: WireError) -> String {
    format!("its hello frame can't be decoded: {error}")
}

fn read(mut payload: &[u8]) -> Result<Greeting, WireError> {
    // The version comes first and determines the layout of the rest.
    let version = u16::get(&mut &payload[..])?;
    if version != PROTOCOL_VERSION {
        return Ok((version, 0, 0, String::new(), None));
    }
    let greeting = Greeting::get(&mut payload)?;
    if payload.is_empty() {
        Ok(greeting)
    } else {
        Err(WireError::Long)
    }
}

fn check(identity: &Identity, side: Side, greeting: Greeting) -> Result<PeerIdentity, String> {
    let (version, worker, incarnation, cluster, token) = greeting;
    if version != PROTOCOL_VERSION {
        return Err(format!(
            "it speaks version {version} of the exchange protocol, {} speaks version {PROTOCOL_VERSION}",
            identity.worker
        ));
    }
    let ours = (identity.token.as_ref(), &*identity.cluster);
    admit(ours, (token.as_deref(), &cluster)).map_err(MembershipError::into_text)?;
    let peer = PeerIdentity {
        worker: WorkerNumber(worker),
        incarnation,
    };
    match side {
        Side::Connected(Some(expected)) if expected != peer.worker => {
            Err(format!("it is {}, and not {expected}", peer.worker))
        }
        _ if peer.worker == identity.worker && incarnation != identity.incarnation => {
            Err(format!("both sides claim to be {}", peer.worker))
        }
        _ => Ok(peer),
    }
}

fn frame(kind: Kind, bytes: &[u8]) -> Frame {
    Frame {
        header: Header::new(kind, StreamId::new(0, 0)),
        payload: Payload::copy_of(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(worker: u64) -> Identity {
        Identity {
            cluster: "harbour".into(),
            worker: WorkerNumber(worker),
            incarnation: 1,
            token: None,
        }
    }

    fn refused(ours: &Identity, side: Side, theirs: &Identity) -> String {
        match check_hello(ours, side, &hello(theirs)) {
            Outcome::Refuse { reason, reply } => {
                assert_eq!(printable(&reply.payload), reason);
                reason
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn members_of_a_cluster_greet_each_other() {
        let (ours, theirs) = (identity(1), identity(2));
        let Outcome::Welcome { peer, reply } = check_hello(&ours, Side::Accepted, &hello(&theirs))
        else {
            panic!("not welcome")
        };
        assert_eq!(peer.worker, WorkerNumber(2));
        let back = check_hello(
            &theirs,
            Side::Connected(Some(WorkerNumber(1))),
            &reply.unwrap(),
        );
        assert!(matches!(back, Outcome::Welcome { reply: None, .. }));
    }

    #[test]
    fn every_refusal_says_its_reason() {
        let ours = identity(1);
        let other_cluster = Identity {
            cluster: "airport".into(),
            ..identity(2)
        };
        assert!(refused(&ours, Side::Accepted, &other_cluster).contains("airport"));
        let with_token = |secret: &str| Identity {
            token: Some(Token::new(secret)),
            ..identity(2)
        };
        assert!(refused(&with_token("a"), Side::Accepted, &ours).contains("no token"));
        let wrong = refused(&with_token("a"), Side::Accepted, &with_token("b"));
        assert!(
            wrong.contains("token") && !wrong.contains("harbour"),
            "{wrong}"
        );
        let side = Side::Connected(Some(WorkerNumber(7)));
        assert!(refused(&ours, side, &identity(2)).contains("worker 7"));
        let again = Identity {
            incarnation: 9,
            ..identity(1)
        };
        assert!(refused(&ours, Side::Accepted, &again).contains("worker 1"));
    }

    #[test]
    fn a_later_protocol_is_told_by_its_version_whatever_follows() {
        let later = frame(Kind::Hello, &[9, 0, 1, 2, 3]);
        let Outcome::Refuse { reason, .. } = check_hello(&identity(1), Side::Accepted, &later)
        else {
            panic!("not refused")
        };
        assert!(reason.contains("version 9"), "{reason}");
    }

    #[test]
    fn data_before_a_greeting_is_refused() {
        let frame = frame(Kind::Records, &[1; 40]);
        let outcome = check_hello(&identity(1), Side::Accepted, &frame);
        assert!(matches!(outcome, Outcome::Refuse { .. }));
    }

    #[test]
    fn a_refusal_can_not_write_to_the_terminal() {
        let frame = frame(Kind::Refusal, b"no\x1b[2J\xff way");
        let Outcome::Refused { reason } = check_hello(&identity(1), Side::Connected(None), &frame)
        else {
            panic!("not refused")
        };
        assert_eq!(reason, "no�[2J� way");
    }

    proptest! {
        #[test]
        fn any_greeting_is_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            let _ = check_hello(&identity(1), Side::Accepted, &frame(Kind::Hello, &bytes));
            if bytes.len() > 2 {
                bytes[..2].copy_from_slice(&[1, 0]);
            }
            let _ = check_hello(&identity(1), Side::Accepted, &frame(Kind::Hello, &bytes));
        }
    }
}
