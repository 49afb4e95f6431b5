//! Connections of a member to its peers.
//!
//! A member sends on connections that it has made, and receives on those that its peers have made.
//! Connections and handshakes are made by tokio; afterwards the driver polls the sockets. Messages
//! that cannot be sent are lost, which the protocol tolerates. Only unsent requests are reported,
//! so that they can be retried immediately.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{Member, MemberId, Message, Recipient};
use ardea_core::Result;
use ardea_network::exchange::Sockets;
use ardea_network::rpc::{DetachedConnection, HandshakeRequest, Listener, Security, connect};
use tokio::runtime::Handle;

use crate::node::command_queue::{CommandQueue, DriverCommand};
use crate::node::peer_connection::{Ended, MessageBatch, PeerStream};
use crate::node::send_queue::SendQueue;

/// Connect timeout.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);

/// Delay after a failed connection; messages wait meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The sending connections of a member.
pub(crate) struct PeerConnections {
    me: Member,
    security: Security,
    runtime: Handle,
    orders: CommandQueue,
    sockets: Sockets,
    /// A list, since members are few: a linear search is faster than hashing their endpoints.
    ways: Vec<PeerConnection>,
}

/// Connection to one member, or to whichever member is at an address.
struct PeerConnection {
    to: Recipient,
    waiting: SendQueue,
    stage: ConnectionState,
    /// Time of the last send.
    used: Instant,
}

impl PeerConnection {
    fn leads_to(&self, to: &Recipient) -> bool {
        let (its, endpoint) = (&self.to.endpoint, &to.endpoint);
        self.to.member == to.member && (Arc::ptr_eq(its, endpoint) || its == endpoint)
    }
}

enum ConnectionState {
    /// There is no connection, and none is made before this time.
    Apart(Instant),
    Connecting,
    Open(Box<PeerStream>),
}

impl PeerConnections {
    pub fn new(
        me: Member,
        security: Security,
        runtime: Handle,
        orders: CommandQueue,
        sockets: Sockets,
    ) -> Self {
        PeerConnections {
            me,
            security,
            runtime,
            orders,
            sockets,
            ways: Vec::new(),
        }
    }

    /// Queues a message, which is sent by the next [`push`](Self::push). Returns the message if the
    /// queue is full.
    pub fn add(&mut self, now: Instant, to: &Recipient, word: Message) -> Option<Message> {
        let is_it = |way: &PeerConnection| way.leads_to(to);
        let at = match self.ways.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.ways.push(PeerConnection {
                    to: to.clone(),
                    waiting: SendQueue::default(),
                    stage: ConnectionState::Apart(now),
                    used: now,
                });
                self.ways.len() - 1
            }
        };
        self.ways[at].waiting.put(word)
    }

    /// Removes queued requests to a member, given by their sorted numbers. Returns the numbers of
    /// those that had not been sent.
    pub fn recall(&mut self, to: MemberId, numbers: &[u64]) -> Vec<u64> {
        let ways = self.ways.iter_mut();
        ways.filter(|way| way.to.member == Some(to))
            .flat_map(|way| way.waiting.recall(numbers))
            .collect()
    }

    /// Sends as much as possible without blocking. Returns true if anything was sent.
    pub fn push(&mut self, now: Instant) -> bool {
        let mut has_moved = false;
        for way in &mut self.ways {
            match &mut way.stage {
                ConnectionState::Open(line) => match pushed(line, &mut way.waiting) {
                    Ok(0) => {}
                    Ok(_) => {
                        way.used = now;
                        has_moved = true;
                    }
                    // It is unknown whether messages under way have arrived.
                    Err(Ended) => way.stage = ConnectionState::Apart(now + PAUSE),
                },
                ConnectionState::Apart(until) if now >= *until && !way.waiting.is_empty() => {
                    way.stage = ConnectionState::Connecting;
                    let carrier = PeerConnector {
                        to: way.to.clone(),
                        me: self.me.clone(),
                        security: self.security.clone(),
                    };
                    let orders = self.orders.clone();
                    self.runtime.spawn(carrier.connect(orders));
                }
                ConnectionState::Apart(_) | ConnectionState::Connecting => {}
            }
        }
        has_moved
    }

    /// Takes over the result of connecting. Returns the queued messages if it failed.
    pub fn connected(
        &mut self,
        now: Instant,
        to: &Recipient,
        outcome: Result<DetachedConnection>,
    ) -> Vec<Message> {
        let Some(way) = self.ways.iter_mut().find(|way| way.leads_to(to)) else {
            return Vec::new();
        };
        let line = outcome.ok().and_then(|apart| {
            let mut line = PeerStream::new(apart, &self.sockets).ok()?;
            line.write(&MessageBatch::From(self.me.clone())).ok()?;
            Some(line)
        });
        let mut unsent = Vec::new();
        way.used = now;
        way.stage = match line {
            Some(line) => ConnectionState::Open(Box::new(line)),
            None => {
                while !way.waiting.is_empty() {
                    unsent.append(&mut way.waiting.take());
                }
                ConnectionState::Apart(now + PAUSE)
            }
        };
        unsent
    }

    /// Closes idle connections, detects closed ones, frees unused memory, and removes entries
    /// without connection and messages.
    pub fn tidy(&mut self, now: Instant) {
        for way in &mut self.ways {
            if let ConnectionState::Open(line) = &mut way.stage {
                line.tidy();
                // Peers send nothing on this connection, so only its end can be read.
                let is_over = loop {
                    match line.receive() {
                        Ok(Some(_)) => {}
                        Ok(None) => break false,
                        Err(Ended) => break true,
                    }
                };
                if is_over || now >= way.used + IDLE {
                    way.stage = ConnectionState::Apart(now);
                }
            }
        }
        let is_kept = |way: &PeerConnection| match way.stage {
            ConnectionState::Apart(until) => now < until || !way.waiting.is_empty(),
            ConnectionState::Connecting | ConnectionState::Open(_) => true,
        };
        self.ways.retain(is_kept);
    }

    /// Makes the next push try all sockets with unsent data, even if polling has not reported them
    /// as ready.
    pub fn look(&self) {
        for way in &self.ways {
            if let ConnectionState::Open(line) = &way.stage
                && !line.is_empty()
            {
                line.look();
            }
        }
    }
}

/// Sends as much as possible on one connection without blocking. Returns the number of bytes.
fn pushed(line: &mut PeerStream, waiting: &mut SendQueue) -> Result<usize, Ended> {
    let mut sum = 0;
    loop {
        while !line.is_full() && !waiting.is_empty() {
            line.write(&MessageBatch::Batch(waiting.take()))
                .map_err(|_| Ended)?;
        }
        if line.is_empty() {
            return Ok(sum);
        }
        let sent = line.flush().map_err(|_| Ended)?;
        sum += sent;
        if sent == 0 {
            return Ok(sum);
        }
    }
}

/// Task that makes a connection.
struct PeerConnector {
    to: Recipient,
    me: Member,
    security: Security,
}

impl PeerConnector {
    async fn connect(self, orders: CommandQueue) {
        let mut greeting = HandshakeRequest::new(format!("member {} of a grid", self.me.id));
        if let Some(whom) = self.to.member {
            greeting = greeting.for_recipient(whom.to_string());
        }
        let address = &*self.to.endpoint;
        let courier = connect(address, &greeting, &self.security, CONNECTS_WITHIN).await;
        let outcome = courier.and_then(|courier| courier.detach());
        orders
            .bring(DriverCommand::Connected(self.to, outcome.map(Box::new)))
            .await;
    }
}

/// Binds the listener of a member. Connections for another member, which was at this address
/// before, are refused, so their messages are known not to be carried out.
pub(crate) async fn listener(address: &str, security: Security, me: MemberId) -> Result<Listener> {
    let me = me.to_string();
    Listener::bind_for(address, security, move |greeting| match &greeting.whom {
        Some(whom) if *whom != me => Err(format!("member {whom} is not here, this is member {me}")),
        _ => Ok(()),
    })
    .await
}

/// Accepts connections until the listener is dropped or the member stops.
pub(crate) async fn listen(mut listener: Listener, orders: CommandQueue) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|courier| courier.detach()) {
            Ok(apart) => {
                if !orders.bring(DriverCommand::Accepted(Box::new(apart))).await {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
