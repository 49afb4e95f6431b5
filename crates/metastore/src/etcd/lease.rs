//! A session: a lease, and somebody who renews it.

use crate::etcd::failure::{Remedy, reason, remedy};
use crate::etcd::keys::session_id;
use crate::etcd::link::{Failed, Link};
use crate::{
    EndTeller, Expected, Patience, Pending, Session, SessionEnd, SessionEnding, SessionId,
    StatePath, Version, session_ending,
};
use ardea_core::Result;
use etcd_client::Error as EtcdError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A lease is renewed when this part of its time is over.
const RENEW_AFTER: u32 = 3;

/// A lease as a session.
#[derive(Debug)]
pub(crate) struct EtcdSession {
    id: SessionId,
    lease: i64,
    link: Arc<Link>,
    teller: EndTeller,
    /// Stops the renewal, and then gives the lease back unless that was done.
    renewal: Option<oneshot::Sender<Leave>>,
}

/// What becomes of the lease when its renewal stops.
#[derive(Debug)]
enum Leave {
    /// Whoever stops it gives it back.
    ToOwner,
}

/// Opens a session.
pub(crate) async fn open(link: &Arc<Link>) -> Result<(Box<dyn Session>, SessionEnding)> {
    // Whole seconds, rounded up; the server may give more.
    let wanted = link.session_timeout().as_millis().div_ceil(1000);
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX).max(1);
    let mut patience = link.patience();
    let (sent, granted) = loop {
        let sent = Instant::now();
        let attempt = link.attempt(&patience, |mut client| async move {
            client.lease_grant(wanted, None).await
        });
        let why = match attempt.await {
            Ok(granted) => break (sent, granted),
            Err(Failed::With(error)) if remedy(&error) == Remedy::None => {
                return Err(link.failed(&StatePath::root(), error));
            }
            // A lease that was granted without an answer runs out by itself.
            Err(Failed::With(error)) => reason(error),
            Err(Failed::Late) => "there was no answer in time".to_string(),
        };
        if !patience.pause().await {
            return Err(link.unreachable("open a session", why));
        }
    };
    let (teller, ending) = session_ending();
    let (stop, stopped) = oneshot::channel();
    let term = Term {
        lease: granted.id(),
        until: sent + seconds(granted.ttl()),
        length: seconds(granted.ttl()),
    };
    let session = EtcdSession {
        id: session_id(term.lease),
        lease: term.lease,
        link: Arc::clone(link),
        teller: teller.clone(),
        renewal: Some(stop),
    };
    tokio::spawn(keep(Arc::clone(link), term, teller, stopped));
    Ok((Box::new(session), ending))
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

/// For how long the lease is certainly held.
#[derive(Debug)]
struct Term {
    lease: i64,
    until: Instant,
    length: Duration,
}

/// Renews the lease until it is stopped, or the lease is over.
async fn keep(
    link: Arc<Link>,
    mut term: Term,
    teller: EndTeller,
    stopped: oneshot::Receiver<Leave>,
) {
    let lease = term.lease;
    let left = tokio::select! {
        why = renew(&link, &mut term) => {
            // Told first: who gives up a lease may not act in its name any more.
            teller.tell(SessionEnd::Expired(link.place().session_ended(why)));
            None
        }
        left = stopped => left.ok(),
    };
    if left.is_none() {
        // Dropped or given up: as a courtesy it is given back now; else it runs out by itself.
        let _ = revoke(&link, lease).await;
    }
}

/// Renews as long as that succeeds; returns why it does not.
async fn renew(link: &Link, term: &mut Term) -> String {
    let mut patience = Patience::new(term.length);
    loop {
        let why =
            match tokio::time::timeout_at(term.until.into(), stream(link, term, &mut patience))
                .await
            {
                Ok(Ok(never)) => match never {},
                Ok(Err(error)) if remedy(&error) == Remedy::LeaseOver => {
                    return "the server has ended it".to_string();
                }
                Ok(Err(error)) => reason(error),
                Err(_) => "no renewal was answered".to_string(),
            };
        if Instant::now() >= term.until {
            return format!("it was not renewed for {:?}: {why}", term.length);
        }
        let _ = tokio::time::timeout_at(term.until.into(), patience.pause_again()).await;
    }
}

/// Nothing is of this kind.
enum Never {}

/// Renews on one stream until it breaks.
async fn stream(link: &Link, term: &mut Term, patience: &mut Patience) -> Result<Never, EtcdError> {
    let line = link.line().await?;
    let limit = term.length / RENEW_AFTER;
    let renewing = async {
        let mut client = line.client.clone();
        let sent = Instant::now();
        // Opening the stream is the first renewal.
        let opened = tokio::time::timeout(limit, client.lease_keep_alive(term.lease)).await;
        let (mut keeper, mut answers) = opened.map_err(|_| silent())??;
        term.until = sent + term.length;
        patience.refresh();
        loop {
            tokio::time::sleep(limit).await;
            let sent = Instant::now();
            let answer = tokio::time::timeout(limit, async {
                keeper.keep_alive().await?;
                answers.message().await
            });
            match answer.await.map_err(|_| silent())?? {
                Some(answer) if answer.ttl() > 0 => term.until = sent + seconds(answer.ttl()),
                Some(_) => return Err(EtcdError::LeaseKeepAliveError("no such lease".into())),
                None => return Err(silent()),
            }
        }
    };
    let failed: Result<Never, EtcdError> = renewing.await;
    if let Err(error) = &failed
        && matches!(remedy(error), Remedy::Again | Remedy::Lost)
    {
        link.replace(&line).await;
    }
    failed
}

fn silent() -> EtcdError {
    EtcdError::Internal("the stream fell silent".to_string())
}

/// Gives a lease back; its keys are gone afterwards.
async fn revoke(link: &Link, lease: i64) -> Result<()> {
    let mut patience = link.patience();
    loop {
        let attempt = link.attempt(&patience, |mut client| async move {
            client.lease_revoke(lease).await
        });
        let why = match attempt.await {
            Ok(_) => return Ok(()),
            Err(Failed::With(error)) => match remedy(&error) {
                Remedy::LeaseOver => return Ok(()),
                Remedy::None => return Err(link.failed(&StatePath::root(), error)),
                // To give it back twice does no harm.
                Remedy::Again | Remedy::Lost => reason(error),
            },
            Err(Failed::Late) => "there was no answer in time".to_string(),
        };
        if !patience.pause().await {
            let doing = "close the session; its nodes go when it has timed out";
            return Err(link.unreachable(doing, why));
        }
    }
}

impl Session for EtcdSession {
    fn id(&self) -> &SessionId {
        &self.id
    }

    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version> {
        Box::pin(async move {
            let ended = || Err(self.link.place().session_ended("its lease is over"));
            if self.teller.has_told() {
                return ended();
            }
            let made = self.link.set(path, value, Expected::Absent, self.lease);
            match made.await {
                // It was made too late, and goes with the lease.
                Ok(_) if self.teller.has_told() => ended(),
                made => made,
            }
        })
    }

    fn close(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.teller.tell(SessionEnd::Closed);
            if let Some(renewal) = self.renewal.take() {
                // If nobody renews any more, it has ended already.
                let _ = renewal.send(Leave::ToOwner);
            }
            revoke(&self.link, self.lease).await
        })
    }
}

impl Drop for EtcdSession {
    fn drop(&mut self) {
        self.teller.tell(SessionEnd::Closed);
    }
}
