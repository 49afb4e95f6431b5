//! Counts the words of a file as a topology, at least once: `cargo run --example topology -- FILE`.

use std::env;
use std::fs;
use std::sync::PoisonError;

use ardea::Result;
use ardea::core::{Error, ErrorCode};
use ardea_examples::topology::{Counts, word_count};

fn main() -> Result<()> {
    let path = env::args().nth(1).ok_or_else(|| {
        Error::new(ErrorCode::InvalidConfig, "no file was named").hint("name a text in UTF-8")
    })?;
    let text = fs::read_to_string(&path).map_err(|error| {
        Error::new(ErrorCode::ReadFailed, format!("{path} can't be read")).because(error)
    })?;
    let counts = Counts::default();
    word_count(&text, &counts)?.run()?;
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let mut words: Vec<(&u64, &String)> =
        counts.iter().map(|(word, count)| (count, word)).collect();
    words.sort_unstable_by(|one, other| other.cmp(one));
    for (count, word) in words.into_iter().take(20) {
        println!("{count:>9}  {word}");
    }
    Ok(())
}
