//! Word counts of a file, in a PostgreSQL table that is always up to date.
//!
//! The program `word-table` is this job: `word-table postgres://localhost/shop words FILE`. The
//! table must exist: `create table words (word text primary key, count bigint)`. With
//! `--set guarantee=exactly-once --set checkpoints.folder=state/words` each count is exact in spite
//! of failures.

use ardea::core::{Error, ErrorCode};
use ardea::postgres::write;
use ardea::prelude::*;

/// Builds the job for the arguments `URL TABLE FILE`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for other arguments. The server is contacted only when the job
/// runs.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [url, table, file] = arguments else {
        let what = "three arguments are required: the address of a server, a table and a file";
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
