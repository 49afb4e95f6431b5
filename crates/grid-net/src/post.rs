//! What members say to each other, between processes.
//!
//! A member has a connection to each other one that it speaks to, and hears on those that others have made. Words that can't be sent are lost, which the
//! members can live with; only of requests it is told, so that they can be tried again at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use ardea_core::Result;
use ardea_courier::{Courier, Greeting, Listener, Security, connect};
use ardea_grid::{Member, Word};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::driver::Order;
use crate::mailbox::{Outgoing, Slot, mailbox, weight};
use crate::room::Room;

/// How long it is tried to connect.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);

/// How long after a failure nothing is tried; what is said meanwhile is lost.
const PAUSE: Duration = Duration::from_millis(50);

/// For how long a connection is kept that nothing goes over.
const IDLE: Duration = Duration::from_secs(60);

/// What goes over a connection: first who speaks, then what is said.
#[derive(Serialize, Deserialize)]
enum Letter {
    From(Member),
    Words(Vec<Word>),
}

/// Where words are handed in.
pub(crate) struct Post {
    me: Member,
    security: Security,
    runtime: Handle,
    orders: SyncSender<Order>,
    boxes: HashMap<Arc<str>, Slot>,
}

impl Post {
    pub fn new(me: Member, security: Security, runtime: Handle, orders: SyncSender<Order>) -> Self {
        Post {
            me,
            security,
            runtime,
            orders,
            boxes: HashMap::new(),
        }
    }

    /// Sends words to whoever is there; which were not sent is told, if that matters.
    pub fn send(&mut self, to: &Arc<str>, words: Vec<Word>) -> Vec<Word> {
        if let Some(slot) = self.boxes.get(to).filter(|slot| !slot.is_closed()) {
            return slot.put(words);
        }
        // Of members that are gone nothing is kept.
        self.boxes.retain(|_, slot| !slot.is_closed());
        let (slot, outgoing) = mailbox();
        let unsent = slot.put(words);
        self.boxes.insert(Arc::clone(to), slot);
        let carrier = Carrier {
            to: Arc::clone(to),
            me: self.me.clone(),
            security: self.security.clone(),
            orders: self.orders.clone(),
        };
        self.runtime.spawn(carrier.carry(outgoing));
        unsent
    }
}

/// Carries words to one place.
struct Carrier {
    to: Arc<str>,
    me: Member,
    security: Security,
    orders: SyncSender<Order>,
}

impl Carrier {
    async fn carry(self, mut words: Outgoing) {
        let mut way: Option<ardea_courier::Sender> = None;
        loop {
            let Ok(Some(batch)) = tokio::time::timeout(IDLE, words.next()).await else {
                return;
            };
            if way.is_none() {
                way = self.connected().await.ok();
            }
            let letter = Letter::Words(batch);
            let is_sent = match &mut way {
                Some(sender) => sender.send(&letter).await.is_ok(),
                None => false,
            };
            if let (false, Letter::Words(batch)) = (is_sent, letter) {
                // On a connection that broke some may have arrived: of those nobody knows.
                if way.take().is_none() {
                    self.give_back(batch);
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn connected(&self) -> Result<ardea_courier::Sender> {
        let greeting = Greeting::new(format!("member {} of a grid", self.me.id));
        let courier = connect(&self.to, &greeting, &self.security, CONNECTS_WITHIN).await?;
        let (mut sender, _) = courier.split();
        sender.send(&Letter::From(self.me.clone())).await?;
        Ok(sender)
    }

    fn give_back(&self, words: Vec<Word>) {
        let requests: Vec<Word> = words
            .into_iter()
            .filter(|word| matches!(word, Word::Request { .. }))
            .collect();
        if !requests.is_empty() {
            // If there is no room for it, they are answered when patience ends.
            let _ = self
                .orders
                .try_send(Order::Unsent(Arc::clone(&self.to), requests));
        }
    }
}

/// Hears whoever connects, until the listener is dropped. What all say has that much room until it is taken.
pub(crate) async fn listen(mut listener: Listener, orders: SyncSender<Order>, room: Arc<Room>) {
    loop {
        match listener.accept().await {
            Ok(courier) => {
                tokio::spawn(hear(courier, orders.clone(), Arc::clone(&room)));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn hear(courier: Courier, orders: SyncSender<Order>, room: Arc<Room>) {
    let (_keeps_open, mut receiver) = courier.split();
    let mut from = None;
    // A letter that can't be read is of another version: its sender has to be told by people.
    while let Ok(Some(letter)) = receiver.receive::<Letter>().await {
        match (letter, &from) {
            (Letter::From(member), _) => from = Some(member),
            (Letter::Words(words), Some(member)) => {
                let bytes: usize = words.iter().map(weight).sum();
                let share = loop {
                    match room.try_take(bytes) {
                        Some(share) => break share,
                        // The connection waits, and so its other end.
                        None => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                };
                let mut order = Order::Heard(member.clone(), words, share);
                loop {
                    match orders.try_send(order) {
                        Ok(()) => break,
                        Err(TrySendError::Disconnected(_)) => return,
                        Err(TrySendError::Full(again)) => order = again,
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            (Letter::Words(_), None) => return,
        }
    }
}
