//! How often each word comes in a file, in a table of PostgreSQL that is always up to date.
//!
//! The program `word-table` is this job: `word-table postgres://localhost/shop words FILE`. The table has been made before:
//! `create table words (word text primary key, count bigint)`. With `--set guarantee=exactly-once --set snapshots.folder=state/words` each count
//! is right whatever is killed in between.

use ardea::core::{Error, ErrorCode};
use ardea::postgres::write;
use ardea::prelude::*;

/// The job for these arguments: `URL TABLE FILE`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for others. The server is not asked before the job runs.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [url, table, file] = arguments else {
        let what = "the address of a server, a table and a file are wanted, and nothing else";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("write for example word-table postgres://localhost/shop words book.txt"));
    };
    let table = write(
        url,
        table,
        ["word", "count"],
        |(word, count): &(String, u64), row| {
            row.set(word).set(count);
        },
    );
    let p = Pipeline::new("word-table");
    p.read_from(files::lines(file).build())
        .flat_map(|line| {
            let words = line.split(|letter: char| !letter.is_alphanumeric());
            let words = words.filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect::<Vec<_>>()
        })
        .key_by(|word| word.clone())
        .rolling("words", count())
        .write_to(table.upsert(["word"]).exactly_once());
    Ok(p)
}
