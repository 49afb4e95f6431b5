//! Stores and the cache on real files, sockets and processes.

mod cache;
mod site;
mod stores;
