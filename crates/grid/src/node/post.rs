//! What members say to each other, between processes.
//!
//! A member has a connection to each other one that it speaks to, and hears on those that others have made. Connections are made by tokio, and greeted; then whoever drives
//! the member polls them. Words that can't be sent are lost, which the members can live with; only of requests it is told, so that they can be tried again at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{Member, MemberId, Recipient, Word};
use ardea_core::Result;
use ardea_network::exchange::Sockets;
use ardea_network::rpc::{Apart, Greeting, Listener, Security, connect};
use tokio::runtime::Handle;

use crate::node::line::{Ended, Letter, Line};
use crate::node::mailbox::Mailbox;
use crate::node::orders::{Order, Orders};

/// How long it is tried to connect.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);

/// How long after a failure nothing is tried; what is said meanwhile waits.
const PAUSE: Duration = Duration::from_millis(50);

/// For how long a connection is kept that nothing goes over.
const IDLE: Duration = Duration::from_secs(60);

/// Where words are handed in.
pub(crate) struct Post {
    me: Member,
    security: Security,
    runtime: Handle,
    orders: Orders,
    sockets: Sockets,
    /// Members are few: looking through them is quicker than a hash of their names.
    ways: Vec<Way>,
}

/// The way to one member, or to whoever is at an address.
struct Way {
    to: Recipient,
    waiting: Mailbox,
    stage: Stage,
    /// When something was last sent.
    used: Instant,
}

impl Way {
    fn leads_to(&self, to: &Recipient) -> bool {
        let (its, endpoint) = (&self.to.endpoint, &to.endpoint);
        self.to.member == to.member && (Arc::ptr_eq(its, endpoint) || its == endpoint)
    }
}

enum Stage {
    /// There is no connection, and none is made before then.
    Apart(Instant),
    Connecting,
    Open(Box<Line>),
}

impl Post {
    pub fn new(
        me: Member,
        security: Security,
        runtime: Handle,
        orders: Orders,
        sockets: Sockets,
    ) -> Self {
        Post {
            me,
            security,
            runtime,
            orders,
            sockets,
            ways: Vec::new(),
        }
    }

    /// Takes a word for that one; it leaves with the next [`push`](Self::push). What doesn't fit is given back.
    pub fn add(&mut self, now: Instant, to: &Recipient, word: Word) -> Option<Word> {
        let is_it = |way: &Way| way.leads_to(to);
        let at = match self.ways.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.ways.push(Way {
                    to: to.clone(),
                    waiting: Mailbox::default(),
                    stage: Stage::Apart(now),
                    used: now,
                });
                self.ways.len() - 1
            }
        };
        self.ways[at].waiting.put(word)
    }

    /// Takes requests to a member back, given by their numbers in order; which of them had not left.
    pub fn recall(&mut self, to: MemberId, numbers: &[u64]) -> Vec<u64> {
        let ways = self.ways.iter_mut();
        ways.filter(|way| way.to.member == Some(to))
            .flat_map(|way| way.waiting.recall(numbers))
            .collect()
    }

    /// Sends what goes without waiting; whether that was something.
    pub fn push(&mut self, now: Instant) -> bool {
        let mut has_moved = false;
        for way in &mut self.ways {
            match &mut way.stage {
                Stage::Open(line) => match pushed(line, &mut way.waiting) {
                    Ok(0) => {}
                    Ok(_) => {
                        way.used = now;
                        has_moved = true;
                    }
                    // What was under way may have arrived or not: nobody knows.
                    Err(Ended) => way.stage = Stage::Apart(now + PAUSE),
                },
                Stage::Apart(until) if now >= *until && !way.waiting.is_empty() => {
                    way.stage = Stage::Connecting;
                    let carrier = Carrier {
                        to: way.to.clone(),
                        me: self.me.clone(),
                        security: self.security.clone(),
                    };
                    let orders = self.orders.clone();
                    self.runtime.spawn(carrier.connect(orders));
                }
                Stage::Apart(_) | Stage::Connecting => {}
            }
        }
        has_moved
    }

    /// That is what came of connecting. The words that waited for it in vain, if it failed.
    pub fn connected(&mut self, now: Instant, to: &Recipient, outcome: Result<Apart>) -> Vec<Word> {
        let Some(way) = self.ways.iter_mut().find(|way| way.leads_to(to)) else {
            return Vec::new();
        };
        let line = outcome.ok().and_then(|apart| {
            let mut line = Line::new(apart, &self.sockets).ok()?;
            line.write(&Letter::From(self.me.clone())).ok()?;
            Some(line)
        });
        let mut unsent = Vec::new();
        way.used = now;
        way.stage = match line {
            Some(line) => Stage::Open(Box::new(line)),
            None => {
                while !way.waiting.is_empty() {
                    unsent.append(&mut way.waiting.take());
                }
                Stage::Apart(now + PAUSE)
            }
        };
        unsent
    }

    /// Ends connections that nothing goes over, and finds those that have ended. Of members that are gone nothing is kept, nor memory that nobody needs.
    pub fn tidy(&mut self, now: Instant) {
        for way in &mut self.ways {
            if let Stage::Open(line) = &mut way.stage {
                line.tidy();
                // Nobody answers on it: only its end can come.
                let is_over = loop {
                    match line.receive() {
                        Ok(Some(_)) => {}
                        Ok(None) => break false,
                        Err(Ended) => break true,
                    }
                };
                if is_over || now >= way.used + IDLE {
                    way.stage = Stage::Apart(now);
                }
            }
        }
        let is_kept = |way: &Way| match way.stage {
            Stage::Apart(until) => now < until || !way.waiting.is_empty(),
            Stage::Connecting | Stage::Open(_) => true,
        };
        self.ways.retain(is_kept);
    }

    /// Whatever polling has told, the operating system is asked the next time whether what waits can leave.
    pub fn look(&self) {
        for way in &self.ways {
            if let Stage::Open(line) = &way.stage
                && !line.is_empty()
            {
                line.look();
            }
        }
    }
}

/// Sends what goes without waiting; how many bytes.
fn pushed(line: &mut Line, waiting: &mut Mailbox) -> Result<usize, Ended> {
    let mut sum = 0;
    loop {
        while !line.is_full() && !waiting.is_empty() {
            line.write(&Letter::Words(waiting.take()))
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

/// Makes a connection.
struct Carrier {
    to: Recipient,
    me: Member,
    security: Security,
}

impl Carrier {
    async fn connect(self, orders: Orders) {
        let mut greeting = Greeting::new(format!("member {} of a grid", self.me.id));
        if let Some(whom) = self.to.member {
            greeting = greeting.for_whom(whom.to_string());
        }
        let address = &*self.to.endpoint;
        let courier = connect(address, &greeting, &self.security, CONNECTS_WITHIN).await;
        let outcome = courier.and_then(|courier| courier.apart());
        orders
            .bring(Order::Connected(self.to, outcome.map(Box::new)))
            .await;
    }
}

/// Listens there for those who want to speak to this member. One that was there before may be who they mean: its connections aren't taken over, and what
/// they would have said is certainly not done.
pub(crate) async fn listener(address: &str, security: Security, me: MemberId) -> Result<Listener> {
    let me = me.to_string();
    Listener::bind_for(address, security, move |greeting| match &greeting.whom {
        Some(whom) if *whom != me => Err(format!("member {whom} isn't here, this is member {me}")),
        _ => Ok(()),
    })
    .await
}

/// Takes whoever connects, until the listener is dropped.
pub(crate) async fn listen(mut listener: Listener, orders: Orders) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|courier| courier.apart()) {
            Ok(apart) => {
                if !orders.bring(Order::Accepted(Box::new(apart))).await {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
