//! Interned strings, which live as long as the program.
//!
//! A record may contain a `&'static str`, usually one of a few literals. The reader looks up each
//! `&'static str` among the strings read before, and interns a new string for the life of the
//! program. The sender holds the same strings in its own program, so a correct sender has few of
//! them; [`MAX_INTERNED_BYTES`] limits the memory for any sender.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::error::SerdeError;

/// The limit of all interned strings, in bytes.
const MAX_INTERNED_BYTES: usize = 16 << 20;

type Set = HashSet<&'static [u8], foldhash::fast::RandomState>;

/// The strings interned by all threads.
struct Interner {
    texts: Set,
    bytes: usize,
}

static KEPT: Mutex<Option<Interner>> = Mutex::new(None);

thread_local! {
    /// A cache of the interned strings per thread, read without a lock.
    static KNOWN: RefCell<Set> = RefCell::default();
}

/// Returns an interned copy of these bytes.
pub(crate) fn intern(bytes: &[u8]) -> Result<&'static [u8], SerdeError> {
    let known = KNOWN.with_borrow(|known| known.get(bytes).copied());
    if let Some(kept) = known {
        return Ok(kept);
    }
    let kept = intern_globally(bytes)?;
    KNOWN.with_borrow_mut(|known| known.insert(kept));
    Ok(kept)
}

fn intern_globally(bytes: &[u8]) -> Result<&'static [u8], SerdeError> {
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_with(|| Interner {
        texts: Set::default(),
        bytes: 0,
    });
    if let Some(kept) = all.texts.get(bytes) {
        return Ok(kept);
    }
    if all.bytes + bytes.len() > MAX_INTERNED_BYTES {
        return Err(SerdeError::TooManyStrings);
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
        let here = intern(b"once").unwrap();
        let there = std::thread::spawn(|| intern(b"once").unwrap())
            .join()
            .unwrap();
        assert_eq!(here.as_ptr(), there.as_ptr());
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        assert!(matches!(
            intern(&vec![0; MAX_INTERNED_BYTES + 1]),
            Err(SerdeError::TooManyStrings)
        ));
    }
}
