//! Server side of a map watch: sends batches of map events over a connection, and empty batches as
//! heartbeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Encoded, Receiver, Sender};
use tokio::sync::mpsc;

use crate::cluster::maps::WatchEvent;
use crate::cluster::request::{GridStoreClient, MESSAGE_BYTES, MapEventStream};

/// Heartbeat interval.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Send timeout. A live client always drains its socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of watches per host; each has a thread.
const MOST_LISTENERS: usize = 256;

/// Number of active watches.
#[derive(Clone, Default)]
pub(crate) struct WatchCounter(Arc<AtomicUsize>);

/// One active watch; the number is decremented on drop.
struct WatchPermit(WatchCounter);

impl WatchCounter {
    fn begin(&self) -> Result<WatchPermit> {
        let counted = WatchPermit(self.clone());
        if self.0.fetch_add(1, Ordering::Relaxed) < MOST_LISTENERS {
            return Ok(counted);
        }
        // The client tries another host.
        let what = format!("this host already serves {MOST_LISTENERS} map watches");
        Err(Error::new(ErrorCode::StateUnavailable, what))
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Encoded batches of map events. The thread that encodes them ends soon after this value is
/// dropped.
pub(crate) struct WatchBatches(mpsc::Receiver<Encoded>);

impl WatchBatches {
    /// Starts to watch the map with this name. Blocks.
    pub fn of(shelter: &dyn GridStoreClient, map: &str, listeners: &WatchCounter) -> Result<Self> {
        let counted = listeners.begin()?;
        let hearing = shelter.watch(map)?;
        let (sender, letters) = mpsc::channel(1);
        let thread = std::thread::Builder::new().name("ardea-map-news".into());
        let spawned = thread.spawn(move || {
            write_all(&*hearing, &sender);
            drop(counted);
        });
        match spawned {
            Ok(_) => Ok(WatchBatches(letters)),
            Err(error) => {
                let what = "cannot start the thread of a map watch";
                Err(Error::new(ErrorCode::StateUnavailable, what).because(error))
            }
        }
    }

    /// Sends all batches until the client disconnects or the watch ends.
    pub async fn send(mut self, mut sender: Sender, mut receiver: Receiver) {
        loop {
            let letter = tokio::select! {
                // The client sends nothing, so the connection is closed.
                _ = receiver.receive::<()>() => return,
                letter = self.0.recv() => letter,
            };
            let Some(letter) = letter else {
                return;
            };
            let sent = tokio::time::timeout(SEND_TIMEOUT, sender.send_encoded(letter)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    }
}

fn write_all(hearing: &dyn MapEventStream, letters: &mpsc::Sender<Encoded>) {
    while !letters.is_closed() {
        let letter = next_letter(hearing).and_then(|letter| Encoded::new(&letter));
        let Ok(letter) = letter else {
            return;
        };
        if letters.blocking_send(letter).is_err() {
            return;
        }
    }
}

/// Waits for events, up to the heartbeat interval, and returns as many as fit into a batch; none on
/// a timeout.
fn next_letter(hearing: &dyn MapEventStream) -> Result<Vec<WatchEvent>> {
    let (mut letter, mut bytes) = (Vec::new(), 0);
    let mut next = hearing.next(HEARTBEAT_INTERVAL)?;
    while let Some(event) = next {
        let news = WatchEvent::from(event);
        bytes += news.cost();
        letter.push(news);
        next = match bytes < MESSAGE_BYTES {
            // An error is returned by the next call, after this batch has been sent.
            true => hearing.next(Duration::ZERO).unwrap_or(None),
            false => None,
        };
    }
    Ok(letter)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use crate::node::MapEvent;
    use bytes::Bytes;

    use super::*;

    /// A watch that returns this many events of one KiB each, and then an error.
    #[derive(Debug)]
    struct Many(Mutex<u32>);

    impl MapEventStream for Many {
        fn next(&self, _: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>> {
            let mut left = self.0.lock().unwrap();
            if *left == 0 {
                return Err(Error::new(ErrorCode::StateUnavailable, "it has stopped"));
            }
            *left -= 1;
            let key = left.to_le_bytes().to_vec();
            Ok(Some(MapEvent::Added(key.into(), vec![7; 1 << 10].into())))
        }
    }

    #[test]
    fn letters_are_bounded_and_all_that_was_heard_is_in_them() {
        let hearing = Many(Mutex::new(10_000));
        let (mut told, mut letters) = (0, 0);
        while let Ok(letter) = next_letter(&hearing) {
            let bytes = Encoded::new(&letter).unwrap().body_bytes();
            assert!(bytes <= MESSAGE_BYTES + (2 << 10), "{bytes}");
            told += letter.len();
            letters += 1;
        }
        assert_eq!(told, 10_000);
        assert!((2..10).contains(&letters), "{letters}");
    }

    #[test]
    fn no_more_than_so_many_listen_at_a_time() {
        let listeners = WatchCounter::default();
        let all: Vec<_> = (0..MOST_LISTENERS).map(|_| listeners.begin()).collect();
        assert!(all.iter().all(Result::is_ok));
        assert!(listeners.begin().is_err());
        drop(all);
        assert!(listeners.begin().is_ok());
    }
}
