//! The benchmarks behind `ardea bench`.
