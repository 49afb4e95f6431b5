//! The most frequent words of a text.

use std::cmp::Reverse;

use ardea::core::Bounded;
use ardea::prelude::*;

use crate::arguments::{Arguments, lines_of};

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("wordcount", args);
    let top = args.count("--top", 20)? as usize;
    let file = args.file()?;
    args.finish()?;
    let p = Pipeline::new("wordcount");
    top_words(p.read_from(lines_of(&file)), top)
        .map(|(word, count)| format!("{count:>9}  {word}"))
        .write_to(stdout::lines().build());
    Ok(p)
}

/// Returns the `top` most frequent words in descending order; equally frequent ones are in
/// alphabetical order.
pub fn top_words<E: 'static>(
    lines: Stream<String, Bounded, E>,
    top: usize,
) -> Stream<(String, u64), Bounded, E> {
    lines
        .flat_map(words)
        .key_by(|word| word.clone())
        .aggregate("words", count())
        .key_by(|_| ())
        .aggregate(
            "top",
            top_n(top, |(word, count): &(String, u64)| {
                (*count, Reverse(word.clone()))
            }),
        )
        .flat_map(|(_, words)| words)
}

/// Splits a line into lower-case words: letters and digits of any script, with apostrophes inside.
fn words(line: String) -> Vec<String> {
    line.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’')
        .map(|word| word.trim_matches(['\'', '’']).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_script_are_counted_in_small_letters() {
        let p = Pipeline::new("words");
        let text = [
            "Don't panic: Ärger, ärger!",
            "ДОН дон ’don’t’ – 'panic' 42",
            "",
            "日本 日本 日本",
        ];
        let top = top_words(
            p.read_from(collections::items(text.map(String::from).to_vec())),
            4,
        )
        .collect();
        p.run().unwrap();
        let expected = [("日本", 3), ("panic", 2), ("ärger", 2), ("дон", 2)];
        assert_eq!(
            top.take(),
            expected.map(|(word, count)| (word.to_string(), count))
        );
    }

    #[test]
    fn lines_that_are_no_text_are_set_aside_and_nothing_else_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        std::fs::write(&path, b"one two\n\xff\xfe\ntwo").unwrap();
        let p = Pipeline::new("words");
        let top = top_words(p.read_from(lines_of(&path.display().to_string())), 9).collect();
        let node = Node::start(NodeConfig::default()).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        assert_eq!(top.take(), [("two".to_string(), 2), ("one".to_string(), 1)]);
        assert_eq!(job.dead_letters().count(), 1);
    }
}
