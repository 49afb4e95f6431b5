//! The most frequent words of a text, as a program that submits itself: `word-count help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::word_stream::build)
}
