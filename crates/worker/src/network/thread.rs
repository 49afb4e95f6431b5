//! The event loop of the network thread.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ardea_core::{Clock, Result};
use ardea_engine::{BatchDelay, wake_on_time};
use ardea_network::exchange::{Identity, LinkConfig, Listener, Transport};

use super::links::{Links, MOST_STRANGERS};
use super::{EventCallback, NetworkEvent, Request, Shared};

/// Interval between two updates of the published connection counters.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// Maximum time that the thread sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Maximum time for sending pending data at the end.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);

/// The start parameters of the thread.
pub(super) struct Setup {
    pub(super) transport: Box<dyn Transport>,
    pub(super) listeners: Vec<Box<dyn Listener>>,
    pub(super) identity: Identity,
    pub(super) config: LinkConfig,
    pub(super) clock: Clock,
    pub(super) tell: Arc<EventCallback>,
}

/// A guard that reports the end of the thread, including a panic.
struct FinalFlush<'a> {
    tell: &'a EventCallback,
    why: Option<String>,
}

impl Drop for FinalFlush<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why.take() {
            (self.tell)(NetworkEvent::Failed(why));
        }
    }
}

/// Runs the event loop until a stop request or an error of polling.
pub(super) fn run(setup: Setup, shared: &Shared) {
    let tell = Arc::clone(&setup.tell);
    let mut word = FinalFlush {
        tell: &*tell,
        why: Some("the network's thread panicked".into()),
    };
    word.why = work(setup, shared).err().map(|error| error.to_string());
}

fn work(setup: Setup, shared: &Shared) -> Result<()> {
    let Setup {
        mut transport,
        mut listeners,
        identity,
        config,
        clock,
        tell,
    } = setup;
    let mut batching = BatchDelay::of_bytes(config.latency);
    let scope = transport.scope();
    let mut links = Links::new(identity, config, scope, tell);
    let mut requests = Vec::new();
    let mut publish_at = Duration::ZERO;
    wake_on_time();
    let mut woken_at = clock.now();
    loop {
        let now = clock.now();
        shared.take_requests(&mut requests);
        for request in requests.drain(..) {
            match request {
                Request::Stop => return finish(&mut *transport, links, &clock),
                Request::LimitLatency(most) => {
                    batching = BatchDelay::of_bytes(config.latency.min(most));
                }
                request => grant(request, &mut links, now),
            }
        }
        for listener in &mut listeners {
            while links.strangers() < MOST_STRANGERS
                && let Ok(Some(connection)) = listener.accept()
            {
                links.accepted(connection, &*transport, now);
            }
        }
        links.connect_due(&mut *transport, now);
        let made = links.poll(now);
        if now >= publish_at {
            publish_at = now + PUBLISH_EVERY;
            shared.set_counts(links.counts());
        }
        if made {
            transport.wait(Duration::ZERO)?;
            continue;
        }
        batching.end_call(woken_at, links.moved_bytes(), true);
        match batching.delay(now) {
            Some(until) => {
                thread::sleep(until - now);
                transport.wait(Duration::ZERO)?;
            }
            None if links.may_wait() => {
                let poll_at = links.next_poll().unwrap_or(now + LONGEST_WAIT);
                transport.wait(poll_at.saturating_sub(now).min(LONGEST_WAIT))?;
            }
            None => transport.wait(Duration::ZERO)?,
        }
        woken_at = clock.now();
    }
}

fn grant(request: Request, links: &mut Links, now: Duration) {
    match request {
        Request::Join(station) => links.join(&station),
        Request::Peers(peers) => links.set_addresses(peers, now),
        Request::Members(members) => links.set_members(members),
        Request::Complaint(site, link, why) => links.drop_if_current(site, link, &why, now),
        Request::Tend(tended) => {
            if let Some(tended) = tended.upgrade() {
                tended.service();
            }
        }
        Request::Stop | Request::LimitLatency(_) => {}
    }
}

/// Sends pending data for a limited time.
fn finish(transport: &mut dyn Transport, mut links: Links, clock: &Clock) -> Result<()> {
    let end = clock.now() + FINISH_TIMEOUT;
    while links.poll(clock.now()) && clock.now() < end {
        transport.wait(Duration::ZERO)?;
    }
    Ok(())
}
