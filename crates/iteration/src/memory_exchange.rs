//! An exchange between threads of one process, for tests and measurements.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{Error, ErrorCode, Result};

use crate::exchange::{Exchange, ExchangeMessage};
use crate::mailbox::{DeliveryOrder, Mailbox};

/// One of several parties in one process that exchange encoded updates.
pub struct MemoryExchange {
    process: u32,
    mailboxes: Arc<[Mailbox]>,
    order: DeliveryOrder,
    has_finished: AtomicBool,
}

impl fmt::Debug for MemoryExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemoryExchange({} of {})",
            self.process,
            self.mailboxes.len()
        )
    }
}

impl MemoryExchange {
    /// Creates a party for each of `processes`, with connections to all others.
    pub fn mesh(processes: u32) -> Vec<Self> {
        MemoryExchange::connected(processes, DeliveryOrder::OldestFirst)
    }

    /// Creates the same parties with connections that deliver the latest message first, for tests
    /// of reordering.
    pub fn reordering_mesh(processes: u32) -> Vec<Self> {
        MemoryExchange::connected(processes, DeliveryOrder::LatestFirst)
    }

    fn connected(processes: u32, order: DeliveryOrder) -> Vec<Self> {
        let mailboxes: Arc<[Mailbox]> = (0..processes).map(|_| Mailbox::default()).collect();
        let party = |process| MemoryExchange {
            process,
            mailboxes: Arc::clone(&mailboxes),
            order,
            has_finished: AtomicBool::new(false),
        };
        (0..processes).map(party).collect()
    }

    fn mailbox(&self, process: u32) -> Result<&Mailbox> {
        self.mailboxes.get(process as usize).ok_or_else(|| {
            let what = format!("there is no process {process}");
            Error::new(ErrorCode::Internal, what)
        })
    }
}

impl Exchange for MemoryExchange {
    fn process(&self) -> u32 {
        self.process
    }

    fn processes(&self) -> u32 {
        self.mailboxes.len() as u32
    }

    fn send(&self, to: u32, message: ExchangeMessage) -> Result<()> {
        if matches!(message, ExchangeMessage::Finished { .. }) {
            self.has_finished.store(true, Ordering::Relaxed);
        }
        self.mailbox(to)?.push(message);
        Ok(())
    }

    fn receive(&self) -> Result<Option<ExchangeMessage>> {
        self.mailbox(self.process)?.receive(self.order)
    }

    fn close(&self) {
        let has_finished = self.has_finished.load(Ordering::Relaxed);
        for (process, mailbox) in self.mailboxes.iter().enumerate() {
            match process == self.process as usize {
                true => mailbox.close(),
                false if has_finished => {}
                false => mailbox.lose(self.process, None),
            }
        }
    }
}
