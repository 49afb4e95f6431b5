//! The words of a file, counted into a table of PostgreSQL: `word-table URL TABLE FILE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::word_table::build)
}
