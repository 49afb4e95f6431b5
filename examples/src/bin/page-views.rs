//! The views of each page in a log, as a program that can run as several replicas:
//! `page-views LOG RESULTS`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::page_views::build)
}
