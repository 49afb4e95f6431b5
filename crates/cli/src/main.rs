//! The program `ardea`.
#![forbid(unsafe_code)]

fn main() {}
