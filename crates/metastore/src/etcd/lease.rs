//! Sessions as leases, and their renewal.

use crate::etcd::connection::{EtcdConnection, Failed};
use crate::etcd::failure::{RetryAction, reason, retry_action};
use crate::etcd::keys::session_id;
use crate::{
    Expected, Pending, RetryDeadline, Session, SessionEnd, SessionEndNotifier, SessionEnding,
    SessionId, StatePath, Version, session_ending,
};
use ardea_core::Result;
use etcd_client::Error as EtcdError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A lease is renewed after its duration divided by this number.
const RENEW_AFTER: u32 = 3;

/// A lease as a session.
#[derive(Debug)]
pub(crate) struct EtcdSession {
    id: SessionId,
    lease: i64,
    link: Arc<EtcdConnection>,
    end_notifier: SessionEndNotifier,
    /// Stops the renewal task when it is used or dropped. The task revokes the lease unless a value
    /// is sent.
    renewal: Option<oneshot::Sender<RevokedBy>>,
}

/// Responsibility for revoking the lease when its renewal stops.
#[derive(Debug)]
enum RevokedBy {
    /// The owner of the session revokes the lease.
    Owner,
}

/// Opens a session.
pub(crate) async fn open(link: &Arc<EtcdConnection>) -> Result<(Box<dyn Session>, SessionEnding)> {
    // In whole seconds, rounded up; the server may grant more.
    let wanted = link.session_timeout().as_millis().div_ceil(1000);
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX).max(1);
    let mut patience = link.deadline();
    let (sent, granted) = loop {
        let sent = Instant::now();
        let attempt = link.attempt(&patience, |mut client| async move {
            client.lease_grant(wanted, None).await
        });
        let why = match attempt.await {
            Ok(granted) => break (sent, granted),
            Err(Failed::With(error)) if retry_action(&error) == RetryAction::None => {
                return Err(link.failed(&StatePath::root(), error));
            }
            // A lease that was granted but not acknowledged expires by itself.
            Err(Failed::With(error)) => reason(error),
            Err(Failed::Late) => "there was no answer in time".to_string(),
        };
        if !patience.pause().await {
            return Err(link.unreachable("open a session", why));
        }
    };
    let (teller, ending) = session_ending();
    let (stop, stopped) = oneshot::channel();
    let term = LeaseTerm {
        lease: granted.id(),
        until: sent + seconds(granted.ttl()),
        length: seconds(granted.ttl()),
    };
    let session = EtcdSession {
        id: session_id(term.lease),
        lease: term.lease,
        link: Arc::clone(link),
        end_notifier: teller.clone(),
        renewal: Some(stop),
    };
    tokio::spawn(run_renewal(Arc::clone(link), term, teller, stopped));
    Ok((Box::new(session), ending))
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

/// The time until which the lease is certainly held.
#[derive(Debug)]
struct LeaseTerm {
    lease: i64,
    until: Instant,
    length: Duration,
}

/// Renews the lease until the renewal is stopped or the lease ends.
async fn run_renewal(
    link: Arc<EtcdConnection>,
    mut term: LeaseTerm,
    teller: SessionEndNotifier,
    stopped: oneshot::Receiver<RevokedBy>,
) {
    let lease = term.lease;
    let left = tokio::select! {
        why = renew(&link, &mut term) => {
            // The owner is notified first: it must stop acting under the lease before the lease is
            // revoked.
            teller.notify(SessionEnd::Expired(link.place().session_ended(why)));
            None
        }
        left = stopped => left.ok(),
    };
    if left.is_none() {
        // Dropped or expired: the lease is revoked early if possible, otherwise it expires by
        // itself.
        let _ = revoke(&link, lease).await;
    }
}

/// Renews the lease as long as possible; returns the reason of the failure.
async fn renew(link: &EtcdConnection, term: &mut LeaseTerm) -> String {
    let mut patience = RetryDeadline::new(term.length);
    loop {
        let why =
            match tokio::time::timeout_at(term.until.into(), stream(link, term, &mut patience))
                .await
            {
                Ok(Ok(never)) => match never {},
                Ok(Err(error)) if retry_action(&error) == RetryAction::LeaseOver => {
                    return "the server has ended it".to_string();
                }
                Ok(Err(error)) => reason(error),
                Err(_) => "no renewal was acknowledged".to_string(),
            };
        if Instant::now() >= term.until {
            return format!("it was not renewed for {:?}: {why}", term.length);
        }
        let _ =
            tokio::time::timeout_at(term.until.into(), patience.pause_ignoring_deadline()).await;
    }
}

/// A type without values.
enum Uninhabited {}

/// Renews the lease on one stream until it breaks.
async fn stream(
    link: &EtcdConnection,
    term: &mut LeaseTerm,
    patience: &mut RetryDeadline,
) -> Result<Uninhabited, EtcdError> {
    let line = link.shared_client().await?;
    let limit = term.length / RENEW_AFTER;
    let renewing = async {
        let mut client = line.client.clone();
        let sent = Instant::now();
        // Opening the stream is the first renewal.
        let opened = tokio::time::timeout(limit, client.lease_keep_alive(term.lease)).await;
        let (mut keeper, mut answers) = opened.map_err(|_| silent())??;
        term.until = sent + term.length;
        patience.reset();
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
    let failed: Result<Uninhabited, EtcdError> = renewing.await;
    if let Err(error) = &failed
        && matches!(
            retry_action(error),
            RetryAction::RetryAny | RetryAction::RetryReads
        )
    {
        link.replace(&line).await;
    }
    failed
}

fn silent() -> EtcdError {
    EtcdError::Internal("there was no response on the stream".to_string())
}

/// Revokes a lease; its keys are deleted afterwards.
async fn revoke(link: &EtcdConnection, lease: i64) -> Result<()> {
    let mut patience = link.deadline();
    loop {
        let attempt = link.attempt(&patience, |mut client| async move {
            client.lease_revoke(lease).await
        });
        let why = match attempt.await {
            Ok(_) => return Ok(()),
            Err(Failed::With(error)) => match retry_action(&error) {
                RetryAction::LeaseOver => return Ok(()),
                RetryAction::None => return Err(link.failed(&StatePath::root(), error)),
                // Revoking twice is harmless.
                RetryAction::RetryAny | RetryAction::RetryReads => reason(error),
            },
            Err(Failed::Late) => "there was no answer in time".to_string(),
        };
        if !patience.pause().await {
            let doing = "close the session; its nodes are deleted when it times out";
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
            if self.end_notifier.is_notified() {
                return ended();
            }
            let made = self.link.set(path, value, Expected::Absent, self.lease);
            match made.await {
                // It was created too late, and is deleted with the lease.
                Ok(_) if self.end_notifier.is_notified() => ended(),
                made => made,
            }
        })
    }

    fn close(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.end_notifier.notify(SessionEnd::Closed);
            if let Some(renewal) = self.renewal.take() {
                // If the renewal task has stopped, the session has ended already.
                let _ = renewal.send(RevokedBy::Owner);
            }
            revoke(&self.link, self.lease).await
        })
    }
}

impl Drop for EtcdSession {
    fn drop(&mut self) {
        self.end_notifier.notify(SessionEnd::Closed);
    }
}
