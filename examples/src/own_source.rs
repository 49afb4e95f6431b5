//! A custom source: the lines of a log in partitions, one file each.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use ardea::connect::{PollStatus, SourceBatch, SourceBuilder};
use ardea::prelude::*;

/// Returns a source of the lines of the files `0`, `1` … of a folder. The instances share the
/// files. A restored source continues at the next line of each file.
pub fn log(folder: PathBuf, partitions: u32) -> Source<String, Bounded> {
    SourceBuilder::batch("log")
        .partitions(partitions)
        .open(move |partition, from: Option<u64>| {
            let mut file = BufReader::new(File::open(folder.join(partition.to_string()))?);
            let offset = file.seek(SeekFrom::Start(from.unwrap_or(0)))?;
            Ok((file, offset))
        })
        .poll(|(file, offset), batch: &mut SourceBatch<'_, String>| {
            for line in file.lines().take(batch.room()) {
                let line = line?;
                *offset += line.len() as u64 + 1;
                batch.push(line);
            }
            Ok(PollStatus::end_if(batch.has_room()))
        })
        .offset(|(_, offset)| *offset)
        .blocking()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea::testkit::{Expected, SourceTest};

    #[test]
    fn each_line_is_read_once_whatever_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("0"), "a\n\nb\n").expect("written");
        std::fs::write(folder.path().join("1"), "ä\nc").expect("written");
        let expected = ["a", "", "b", "ä", "c"].map(String::from);
        SourceTest::of(log(folder.path().to_path_buf(), 2).parallelism(2))
            .output::<String>(Expected::unordered(expected))
            .survives()
            .run();
    }
}
