//! What members say to each other, between processes.
//!
//! A member has a connection to each other one that it speaks to, and hears on those that others have made. Connections are made by tokio, and greeted; then whoever drives
//! the member polls them. Words that can't be sent are lost, which the members can live with; only of requests it is told, so that they can be tried again at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::Result;
use ardea_courier::{Apart, Greeting, Listener, Security, connect};
use ardea_exchange::Sockets;
use ardea_grid::{Member, Word};
use tokio::runtime::Handle;

use crate::line::{Ended, Letter, Line};
use crate::mailbox::Mailbox;
use crate::orders::{Order, Orders};

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

/// The way to one member.
struct Way {
    to: Arc<str>,
    waiting: Mailbox,
    stage: Stage,
    /// When something was last sent.
    used: Instant,
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

    /// Takes a word for whoever is there; it leaves with the next [`push`](Self::push). What doesn't fit is given back.
    pub fn add(&mut self, now: Instant, to: &Arc<str>, word: Word) -> Option<Word> {
        let is_it = |way: &Way| Arc::ptr_eq(&way.to, to) || way.to == *to;
        let at = match self.ways.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.ways.push(Way {
                    to: Arc::clone(to),
                    waiting: Mailbox::default(),
                    stage: Stage::Apart(now),
                    used: now,
                });
                self.ways.len() - 1
            }
        };
        self.ways[at].waiting.put(word)
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
                        to: Arc::clone(&way.to),
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
    pub fn connected(&mut self, now: Instant, to: &Arc<str>, outcome: Result<Apart>) -> Vec<Word> {
        let Some(way) = self.ways.iter_mut().find(|way| way.to == *to) else {
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

    /// Ends connections that nothing goes over, and finds those that have ended. Of members that are gone nothing is kept.
    pub fn tidy(&mut self, now: Instant) {
        for way in &mut self.ways {
            if let Stage::Open(line) = &mut way.stage {
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
    to: Arc<str>,
    me: Member,
    security: Security,
}

impl Carrier {
    async fn connect(self, orders: Orders) {
        let greeting = Greeting::new(format!("member {} of a grid", self.me.id));
        let courier = connect(&self.to, &greeting, &self.security, CONNECTS_WITHIN).await;
        let outcome = courier.and_then(|courier| courier.apart());
        orders
            .bring(Order::Connected(self.to, outcome.map(Box::new)))
            .await;
    }
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
