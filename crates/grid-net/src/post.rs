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
use ardea_grid::{Member, Operation, Say, Word};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::driver::Order;

/// How many batches may wait for a connection.
const WAITING: usize = 1024;

/// About how long a batch may be, in bytes: well below what a courier takes.
const BATCH_BYTES: usize = 4 << 20;

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
    boxes: HashMap<Arc<str>, mpsc::Sender<Vec<Word>>>,
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
        let mut unsent = Vec::new();
        for batch in batches(words) {
            let is_open = self
                .boxes
                .get(to)
                .is_some_and(|waiting| !waiting.is_closed());
            if !is_open {
                let (sender, receiver) = mpsc::channel(WAITING);
                self.boxes.insert(Arc::clone(to), sender);
                let carrier = Carrier {
                    to: Arc::clone(to),
                    me: self.me.clone(),
                    security: self.security.clone(),
                    orders: self.orders.clone(),
                };
                self.runtime.spawn(carrier.carry(receiver));
            }
            if let Some(waiting) = self.boxes.get(to)
                && let Err(
                    mpsc::error::TrySendError::Full(batch)
                    | mpsc::error::TrySendError::Closed(batch),
                ) = waiting.try_send(batch)
            {
                unsent.extend(batch);
            }
        }
        unsent
    }
}

/// Words in pieces that a courier takes.
fn batches(words: Vec<Word>) -> Vec<Vec<Word>> {
    let mut batches = Vec::new();
    let (mut batch, mut sum) = (Vec::new(), 0);
    for word in words {
        let bytes = weight(&word);
        if sum > 0 && sum + bytes > BATCH_BYTES {
            batches.push(std::mem::take(&mut batch));
            sum = 0;
        }
        sum += bytes;
        batch.push(word);
    }
    batches.push(batch);
    batches
}

/// About how long a word is, in bytes.
fn weight(word: &Word) -> usize {
    let content = match word {
        Word::Council(_) => 64 << 10,
        Word::Replica(_, word) => match &word.say {
            Say::Append { changes, .. } => changes.iter().map(ardea_grid::Change::cost).sum(),
            Say::Chunk { parcels, .. } => parcels
                .iter()
                .map(|parcel| parcel.key.len() + parcel.value.len() + 40)
                .sum(),
            Say::Have(_) | Say::Pull(_) => 0,
        },
        Word::Request { operation, .. } => match operation {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Compute { key, argument, .. } => key.len() + argument.len(),
            _ => 0,
        },
        Word::Reply(..) => 1 << 10,
    };
    content + 64
}

/// Carries words to one place.
struct Carrier {
    to: Arc<str>,
    me: Member,
    security: Security,
    orders: SyncSender<Order>,
}

impl Carrier {
    async fn carry(self, mut words: mpsc::Receiver<Vec<Word>>) {
        let mut way: Option<ardea_courier::Sender> = None;
        loop {
            let Ok(Some(first)) = tokio::time::timeout(IDLE, words.recv()).await else {
                return;
            };
            let mut batch = first;
            // What has gathered meanwhile goes along.
            while batch.len() < 512 {
                match words.try_recv() {
                    Ok(more) => batch.extend(more),
                    Err(_) => break,
                }
            }
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

/// Hears whoever connects, until the listener is dropped.
pub(crate) async fn listen(mut listener: Listener, orders: SyncSender<Order>) {
    loop {
        match listener.accept().await {
            Ok(courier) => {
                tokio::spawn(hear(courier, orders.clone()));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn hear(courier: Courier, orders: SyncSender<Order>) {
    let (_keeps_open, mut receiver) = courier.split();
    let mut from = None;
    // A letter that can't be read is of another version: its sender has to be told by people.
    while let Ok(Some(letter)) = receiver.receive::<Letter>().await {
        match (letter, &from) {
            (Letter::From(member), _) => from = Some(member),
            (Letter::Words(words), Some(member)) => {
                let mut order = Order::Heard(member.clone(), words);
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
