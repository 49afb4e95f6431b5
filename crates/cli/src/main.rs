//! The program `ardea`.

fn main() {}
