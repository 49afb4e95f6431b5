//! Runs jobs on the threads of one process.
