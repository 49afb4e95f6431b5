//! A custom sink with exactly-once delivery: a folder of text files, one for each transaction.

use std::fs::{File, rename};
use std::io::ErrorKind::NotFound;
use std::io::Write;
use std::path::PathBuf;

use ardea::connect::SinkBuilder;
use ardea::core::Instance;
use ardea::prelude::*;

/// Returns a sink that writes lines to a folder, which must exist. The lines of an epoch are a file
/// `I.E.txt`, for instance I and epoch E, that appears when the epoch is committed. Until the end
/// of the epoch they are in memory.
pub fn ledger(folder: PathBuf) -> Sink<String> {
    SinkBuilder::new("ledger")
        .open(move |instance: Instance| {
            let path = folder.join(instance.index.to_string());
            Ok((path, Vec::<u8>::new()))
        })
        .write(|(_, staged), lines: &[String]| {
            let mut lines = lines.iter();
            Ok(lines.try_for_each(|line| writeln!(staged, "{line}"))?)
        })
        .prepare(|(path, staged), epoch| {
            let prepared = path.with_extension(format!("{}.prepared", epoch.0));
            let mut file = File::create(&prepared)?;
            file.write_all(staged)?;
            file.sync_all()?;
            staged.clear();
            Ok(prepared)
        })
        .commit(|_, prepared: &PathBuf| {
            let committed = prepared.with_extension("txt");
            match rename(prepared, &committed) {
                // It was committed before a failure.
                Err(error) if error.kind() == NotFound && committed.exists() => Ok(()),
                outcome => Ok(outcome?),
            }
        })
        .blocking()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea::core::Epoch;
    use ardea::testkit::ExternalHarness;

    #[test]
    fn lines_appear_when_their_epoch_is_committed_and_once_although_it_is_committed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, supplier, ..) = ledger(folder.path().to_path_buf()).into_parts();
        let begin = |kept| ExternalHarness::begin(&supplier, "job", Instance::ONLY, kept);
        let committed =
            |epoch| std::fs::read_to_string(folder.path().join(format!("0.{epoch}.txt")));
        let mut first = begin(None);
        first.write(["a".to_string(), "b".to_string()]);
        let kept = first.end_epoch(Epoch(1), true);
        assert!(committed(1).is_err());
        first.commit(&kept);
        assert_eq!(committed(1).expect("a file"), "a\nb\n");
        first.write(["lost".to_string()]);
        first.end_epoch(Epoch(2), true);
        drop(first);
        let mut second = begin(Some(&kept));
        second.write(["c".to_string()]);
        let kept = second.end_epoch(Epoch(2), true);
        second.commit(&kept);
        let both = (committed(1).expect("a file"), committed(2).expect("a file"));
        assert_eq!(both, ("a\nb\n".to_string(), "c\n".to_string()));
    }
}
