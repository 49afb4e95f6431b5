//! The count of the words of a text.

use std::path::Path;

use ardea_aggregate::count;
use ardea_connectors::files;
use ardea_pipeline::Pipeline;

/// Returns the job: words of a file to a file of `word count` lines.
pub(super) fn pipeline(input: &Path, output: &Path) -> Pipeline {
    let p = Pipeline::new("words");
    p.read_from(files::lines(input).build())
        .flat_map(|line: String| {
            let words = line.split_ascii_whitespace();
            words.map(String::from).collect::<Vec<_>>()
        })
        .key_by(|word| word.clone())
        .aggregate("words", count())
        .map(|(word, count)| format!("{word} {count}"))
        .write_to(files::write_lines(output).build());
    p
}
