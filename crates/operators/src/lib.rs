//! The physical operators: every processor that pipelines compile to.
