//! Tells who listens from another process what happens to a map: one letter after the other over a connection, an empty one where nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Encoded, Receiver, Sender};
use tokio::sync::mpsc;

use crate::cluster::ask::{Hearing, LETTER_BYTES, Shelter};
use crate::cluster::maps::News;

/// After how long who listens is told that nothing has happened.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// Who takes nothing for so long is gone: whoever listens takes all that comes.
const STUCK: Duration = Duration::from_secs(10);

/// How many may listen to maps by one host: each has a thread.
const MOST_LISTENERS: usize = 256;

/// How many listen.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<AtomicUsize>);

/// One of them, until it is dropped.
struct Counted(Listeners);

impl Listeners {
    fn begin(&self) -> Result<Counted> {
        let counted = Counted(self.clone());
        if self.0.fetch_add(1, Ordering::Relaxed) < MOST_LISTENERS {
            return Ok(counted);
        }
        // Another host is asked.
        let what = format!("{MOST_LISTENERS} listen to maps by this host already");
        Err(Error::new(ErrorCode::StateUnavailable, what))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Letters of what happens to a map. The thread that writes them ends soon after it is dropped.
pub(crate) struct Letters(mpsc::Receiver<Encoded>);

impl Letters {
    /// Of what happens to the map of this name from when this returns. Blocks.
    pub fn of(shelter: &dyn Shelter, map: &str, listeners: &Listeners) -> Result<Self> {
        let counted = listeners.begin()?;
        let hearing = shelter.listen(map)?;
        let (sender, letters) = mpsc::channel(1);
        let thread = std::thread::Builder::new().name("ardea-map-news".into());
        let spawned = thread.spawn(move || {
            write_all(&*hearing, &sender);
            drop(counted);
        });
        match spawned {
            Ok(_) => Ok(Letters(letters)),
            Err(error) => {
                let what = "no thread could be started that tells of a map";
                Err(Error::new(ErrorCode::StateUnavailable, what).because(error))
            }
        }
    }

    /// Sends all of them, until who listens is gone, or nothing more is heard.
    pub async fn send(mut self, mut sender: Sender, mut receiver: Receiver) {
        loop {
            let letter = tokio::select! {
                // Who listens says nothing: the connection is closed.
                _ = receiver.receive::<()>() => return,
                letter = self.0.recv() => letter,
            };
            let Some(letter) = letter else {
                return;
            };
            let sent = tokio::time::timeout(STUCK, sender.send_encoded(letter)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    }
}

fn write_all(hearing: &dyn Hearing, letters: &mpsc::Sender<Encoded>) {
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

/// What has happened when something has, as far as it fits; nothing if nothing happens.
fn next_letter(hearing: &dyn Hearing) -> Result<Vec<News>> {
    let (mut letter, mut bytes) = (Vec::new(), 0);
    let mut next = hearing.next(BEAT)?;
    while let Some(event) = next {
        let news = News::from(event);
        bytes += news.cost();
        letter.push(news);
        next = match bytes < LETTER_BYTES {
            // What is wrong is told once this letter is written.
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

    /// So many changes of a kibibyte each, and then the end.
    #[derive(Debug)]
    struct Many(Mutex<u32>);

    impl Hearing for Many {
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
            assert!(bytes <= LETTER_BYTES + (2 << 10), "{bytes}");
            told += letter.len();
            letters += 1;
        }
        assert_eq!(told, 10_000);
        assert!((2..10).contains(&letters), "{letters}");
    }

    #[test]
    fn no_more_than_so_many_listen_at_a_time() {
        let listeners = Listeners::default();
        let all: Vec<_> = (0..MOST_LISTENERS).map(|_| listeners.begin()).collect();
        assert!(all.iter().all(Result::is_ok));
        assert!(listeners.begin().is_err());
        drop(all);
        assert!(listeners.begin().is_ok());
    }
}
