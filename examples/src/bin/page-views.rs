//! The views of a log's pages, by a program that may run twice: `page-views LOG RESULTS`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::page_views::build)
}
