//! The count of the words of a text.

use std::path::Path;

use ardea_aggregate::count;
use ardea_columns::{Columns, files as column_files};
use ardea_connectors::files;
use ardea_pipeline::Pipeline;

/// Returns the job over rows: words of a file to a file of `word count` lines.
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

/// Returns the job over columns: words of a file to a file of JSON lines.
pub(super) fn column_pipeline(input: &Path, output: &Path) -> Pipeline {
    let p = Pipeline::new("words");
    Columns::read_from(&p, column_files::lines(input))
        .split_words("line", "word")
        .key_by(["word"])
        .aggregate("words", [ardea_columns::count().alias("count")])
        .write_to(column_files::write_json_lines(output));
    p
}
