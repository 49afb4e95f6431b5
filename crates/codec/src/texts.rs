//! Texts that live as long as the program.
//!
//! A record may hold a `&'static str`: a literal, as a rule, one of few. Where such a record is read the text is looked for among
//! those that were read before, and kept for ever if it is new. The sender has as many of them for ever as well, so that this is
//! bounded wherever the program is honest; for others there is [`MOST_BYTES`].

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::fault::Fault;

/// The most that is kept, in bytes.
const MOST_BYTES: usize = 16 << 20;

type Set = HashSet<&'static [u8], foldhash::fast::RandomState>;

/// What all threads have kept.
struct Kept {
    texts: Set,
    bytes: usize,
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

thread_local! {
    /// What this thread knows of it: asked first, without a lock.
    static KNOWN: RefCell<Set> = RefCell::default();
}

/// These bytes, for ever.
pub(crate) fn keep(bytes: &[u8]) -> Result<&'static [u8], Fault> {
    let known = KNOWN.with_borrow(|known| known.get(bytes).copied());
    if let Some(kept) = known {
        return Ok(kept);
    }
    let kept = keep_for_all(bytes)?;
    KNOWN.with_borrow_mut(|known| known.insert(kept));
    Ok(kept)
}

fn keep_for_all(bytes: &[u8]) -> Result<&'static [u8], Fault> {
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_with(|| Kept {
        texts: Set::default(),
        bytes: 0,
    });
    if let Some(kept) = all.texts.get(bytes) {
        return Ok(kept);
    }
    if all.bytes + bytes.len() > MOST_BYTES {
        return Err(Fault::TooManyTexts);
    }
    all.bytes += bytes.len();
    let kept: &'static [u8] = Box::leak(bytes.into());
    all.texts.insert(kept);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_whatever_thread_asks() {
        let here = keep(b"once").unwrap();
        let there = std::thread::spawn(|| keep(b"once").unwrap())
            .join()
            .unwrap();
        assert_eq!(here.as_ptr(), there.as_ptr());
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        assert!(matches!(
            keep(&vec![0; MOST_BYTES + 1]),
            Err(Fault::TooManyTexts)
        ));
    }
}
