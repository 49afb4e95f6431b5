//! A custom sink with exactly-once delivery: a folder of text files, one for each transaction.

use std::fs::{File, rename};
use std::io::ErrorKind::NotFound;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use ardea::connect::SinkBuilder;
use ardea::core::Instance;
use ardea::prelude::*;

/// The files of an instance.
struct Ledger {
    folder: PathBuf,
    instance: u32,
    /// The lines of the current epoch, in a file that no reader looks at.
    staged: BufWriter<File>,
}

/// Returns a sink that writes lines to a folder, which must exist. The lines of an epoch are a file
/// `I-E.txt`, for instance I and epoch E, that appears when the epoch is committed.
pub fn ledger(folder: PathBuf) -> Sink<String> {
    SinkBuilder::new("ledger")
        .open(move |Instance { index, .. }| {
            let staged = File::create(folder.join(format!("{index}.staged")))?;
            Ok(Ledger {
                folder: folder.clone(),
                instance: index,
                staged: BufWriter::new(staged),
            })
        })
        .write(|ledger, lines: &[String]| {
            let mut lines = lines.iter();
            Ok(lines.try_for_each(|line| writeln!(ledger.staged, "{line}"))?)
        })
        .prepare(|ledger, epoch| {
            ledger.staged.flush()?;
            ledger.staged.get_ref().sync_all()?;
            let staged = ledger.folder.join(format!("{}.staged", ledger.instance));
            let prepared = format!("{}-{}.prepared", ledger.instance, epoch.0);
            rename(&staged, ledger.folder.join(&prepared))?;
            ledger.staged = BufWriter::new(File::create(staged)?);
            Ok(prepared)
        })
        .commit(|ledger, prepared: &String| {
            let prepared = ledger.folder.join(prepared);
            let committed = prepared.with_extension("txt");
            match rename(prepared, &committed) {
                // A restored transaction may have been committed before the failure.
                Err(error) if error.kind() == NotFound && committed.exists() => Ok(()),
                outcome => Ok(outcome?),
            }
        })
        .blocking()
        .build()
}
